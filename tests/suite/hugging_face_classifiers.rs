//! The classifiers against transformers': logits, losses, gradients and ten steps of AdamW of both families.

use crate::tolerance::{F64, MODEL_BF16, MODEL_F16, MODEL_F32, TRAINING, Tolerance, assert_close, values};
use crate::whole_model::{self, File, Slot};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::cast_module;
use burn_bert::model::{
    BertForQuestionAnswering, BertForQuestionAnsweringConfig, BertForSequenceClassification,
    BertForSequenceClassificationConfig, BertForTokenClassification, BertForTokenClassificationConfig,
    BertModelConfig, LoadReport, PretrainedModel, ProblemType, QuestionAnsweringBatch,
    SequenceClassificationBatch, TokenClassificationBatch,
};
use burn_bert::optim::{AdamWConfig, adamw};
use std::path::{Path, PathBuf};

const FAMILIES: [&str; 2] = ["bert", "roberta"];
const DTYPES: [(FloatDType, &str, Tolerance); 2] =
    [(FloatDType::F32, "f32", MODEL_F32), (FloatDType::F64, "f64", F64)];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/classifiers")
}

fn undropped(bert: &mut BertModelConfig) {
    bert.embeddings.hidden_dropout_prob = 0.0;
    bert.attention_probs_dropout_prob = 0.0;
}

/// Scores of tokens without those of padding, which mean nothing; scores of sequences as they are.
fn of_tokens(logits: Vec<f64>, case: &File) -> Vec<f64> {
    let mask = case.values("attention_mask");
    if !logits.len().is_multiple_of(mask.len()) {
        return logits;
    }
    let rows = logits.chunks(logits.len() / mask.len()).zip(&mask);
    rows.filter(|(_, mask)| **mask == 1.0).flat_map(|(row, _)| row.to_vec()).collect()
}

/// A classifier of either kind, as these tests need it.
trait Classifier: PretrainedModel {
    const KIND: &'static str;
    type Batch;
    fn undropped(dir: &Path, weights: Option<Vec<f64>>) -> Self::Config;
    fn batch(case: &File, problem: &str, device: &Device) -> Self::Batch;
    fn run(&self, batch: &Self::Batch) -> (Tensor<1>, Tensor<1>);

    /// Every parameter by its Hugging Face name.
    fn slots(&mut self, family: &str) -> Vec<(String, Slot<'_>)>;

    /// The model of a fixture, found to hold all tensors of the file.
    fn read(family: &str, dtype: FloatDType, weights: Option<Vec<f64>>, device: &Device) -> Self {
        let dir = folder().join(format!("{family}_{}", Self::KIND));
        let config = Self::undropped(&dir, weights);
        let (model, report) = Self::from_pretrained_with(&config, &dir, device).unwrap();
        assert_eq!(report, LoadReport::default());
        let mut model = cast_module(model, dtype);
        let file = File::at(&dir.join("model.safetensors"));
        for (name, slot) in model.slots(family) {
            assert_eq!(slot.values(), file.values(&name), "{name}");
        }
        model
    }

    fn assert_equal(problem: &str) {
        let device = Device::default().autodiff();
        for family in FAMILIES {
            for (dtype, suffix, tolerance) in DTYPES {
                let case = File::at(&folder().join(format!("{family}_{problem}_{suffix}.safetensors")));
                let batch = Self::batch(&case, problem, &device);
                let mut model = Self::read(family, dtype, None, &device);
                let (loss, logits) = model.run(&batch);
                assert_close(
                    &of_tokens(values(logits), &case),
                    &of_tokens(case.values("logits"), &case),
                    tolerance,
                );
                assert_close(&values(loss.clone()), &case.values("loss"), tolerance);
                let gradients = loss.backward();
                let mut compared = 0;
                for (name, slot) in model.slots(family) {
                    let expected = case.values(&format!("grad.{name}"));
                    assert_close(&slot.gradient(&gradients), &expected, tolerance);
                    compared += 1;
                }
                assert!(compared >= 39, "{compared} gradients");

                let config = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01);
                let mut optimizer = adamw(&config);
                let mut losses = Vec::new();
                for _ in 0..10 {
                    let (loss, _) = model.run(&batch);
                    losses.extend(values(loss.clone()));
                    let gradients = GradientsParams::from_grads(loss.backward(), &model);
                    model = optimizer.step(1e-3, model, gradients);
                }
                assert_close(&losses, &case.values("losses"), TRAINING);
            }
        }
    }

    fn assert_held_in_16_bits(problem: &str) {
        let device = Device::default();
        for family in FAMILIES {
            let case = File::at(&folder().join(format!("{family}_{problem}_f32.safetensors")));
            let batch = Self::batch(&case, problem, &device);
            for (dtype, tolerance) in [(FloatDType::BF16, MODEL_BF16), (FloatDType::F16, MODEL_F16)] {
                let model = cast_module(Self::read(family, FloatDType::F32, None, &device), dtype);
                let (_, logits) = model.run(&batch);
                assert_eq!(FloatDType::from(logits.dtype()), dtype);
                assert_close(
                    &of_tokens(values(logits), &case),
                    &of_tokens(case.values("logits"), &case),
                    tolerance,
                );
            }
        }
    }

    fn assert_weighted(problem: &str, weights: &[f64]) {
        let device = Device::default().autodiff();
        for family in FAMILIES {
            for (dtype, suffix, tolerance) in DTYPES {
                let case = File::at(&folder().join(format!("{family}_{problem}_{suffix}.safetensors")));
                let mut model = Self::read(family, dtype, Some(weights.into()), &device);
                let (loss, _) = model.run(&Self::batch(&case, problem, &device));
                assert_close(&values(loss.clone()), &case.values("weighted.loss"), tolerance);
                let gradients = loss.backward();
                let mut slots = model.slots(family);
                slots.retain(|(name, _)| name.starts_with("classifier."));
                assert!(slots.len() >= 2);
                for (name, slot) in slots {
                    let expected = case.values(&format!("weighted.grad.{name}"));
                    assert_close(&slot.gradient(&gradients), &expected, tolerance);
                }
            }
        }
    }
}

impl Classifier for BertForSequenceClassification {
    const KIND: &'static str = "sequence";
    type Batch = SequenceClassificationBatch;

    fn undropped(dir: &Path, weights: Option<Vec<f64>>) -> BertForSequenceClassificationConfig {
        let mut config = BertForSequenceClassificationConfig::from_pretrained(dir).unwrap();
        undropped(&mut config.bert);
        config.with_problem_type(None).with_class_weights(weights)
    }

    fn slots(&mut self, family: &str) -> Vec<(String, Slot<'_>)> {
        whole_model::sequence_classifier(self, family)
    }

    fn batch(case: &File, problem: &str, device: &Device) -> SequenceClassificationBatch {
        let (input, padding) = case.batch(device);
        let labels = case.values("labels");
        let rows: Vec<&[f64]> = labels.chunks(3).collect();
        match problem {
            "regression" => SequenceClassificationBatch::regression(input, Some(padding), &rows),
            "multi_label_classification" => {
                SequenceClassificationBatch::multi_label(input, Some(padding), &rows)
            }
            _ => {
                let labels: Vec<i64> = labels.iter().map(|&label| label as i64).collect();
                SequenceClassificationBatch::single_label(input, Some(padding), &labels)
            }
        }
        .unwrap()
    }

    fn run(&self, batch: &SequenceClassificationBatch) -> (Tensor<1>, Tensor<1>) {
        let output = self.forward(batch);
        (output.loss, output.logits.flatten(0, 1))
    }
}

impl Classifier for BertForTokenClassification {
    const KIND: &'static str = "token";
    type Batch = TokenClassificationBatch;

    fn undropped(dir: &Path, weights: Option<Vec<f64>>) -> BertForTokenClassificationConfig {
        let mut config = BertForTokenClassificationConfig::from_pretrained(dir).unwrap();
        assert_eq!(config.classifier_dropout, Some(0.25));
        undropped(&mut config.bert);
        config.with_classifier_dropout(None).with_class_weights(weights)
    }

    fn slots(&mut self, family: &str) -> Vec<(String, Slot<'_>)> {
        whole_model::token_classifier(self, family)
    }

    fn batch(case: &File, _problem: &str, device: &Device) -> TokenClassificationBatch {
        let (input, padding) = case.batch(device);
        let labels: Vec<i64> = case.data("labels").iter().collect();
        let rows: Vec<&[i64]> = labels.chunks(6).collect();
        TokenClassificationBatch::new(input, Some(padding), &rows).unwrap()
    }

    fn run(&self, batch: &TokenClassificationBatch) -> (Tensor<1>, Tensor<1>) {
        let output = self.forward(batch);
        (output.loss, output.logits.flatten(0, 2))
    }
}

impl Classifier for BertForQuestionAnswering {
    const KIND: &'static str = "qa";
    type Batch = QuestionAnsweringBatch;

    fn undropped(dir: &Path, _weights: Option<Vec<f64>>) -> BertForQuestionAnsweringConfig {
        let mut config = BertForQuestionAnsweringConfig::from_pretrained(dir).unwrap();
        undropped(&mut config.bert);
        config
    }

    fn slots(&mut self, family: &str) -> Vec<(String, Slot<'_>)> {
        let mut slots = whole_model::bert(&mut self.bert, family);
        slots.extend(whole_model::linear("qa_outputs".into(), &mut self.qa_outputs));
        slots
    }

    fn batch(case: &File, _problem: &str, device: &Device) -> QuestionAnsweringBatch {
        let (input, padding) = case.batch(device);
        let answers: Vec<usize> = case.data("labels").iter::<i64>().map(|place| place as usize).collect();
        let answers: Vec<[usize; 2]> = answers.chunks(2).map(|answer| [answer[0], answer[1]]).collect();
        QuestionAnsweringBatch::new(input, Some(padding), &answers).unwrap()
    }

    fn run(&self, batch: &QuestionAnsweringBatch) -> (Tensor<1>, Tensor<1>) {
        let output = self.forward(batch);
        let logits: Tensor<3> = Tensor::stack(vec![output.start_logits, output.end_logits], 2);
        (output.loss, logits.flatten(0, 2))
    }
}

/// Two of the answers lie outside their sequences in part.
#[test]
fn answers_to_questions_equal_transformers() {
    BertForQuestionAnswering::assert_equal("qa");
}

/// The reference gives padding the score minus infinity.
#[test]
fn padding_has_no_part_in_the_loss_of_answers() {
    BertForQuestionAnswering::assert_equal("qa_padded");
}

#[test]
fn one_class_a_sequence_equals_transformers() {
    BertForSequenceClassification::assert_equal("single_label_classification");
}

#[test]
fn any_number_of_classes_a_sequence_equals_transformers() {
    BertForSequenceClassification::assert_equal("multi_label_classification");
}

#[test]
fn regression_equals_transformers() {
    BertForSequenceClassification::assert_equal("regression");
}

#[test]
fn a_class_a_token_equals_transformers() {
    BertForTokenClassification::assert_equal("token");
}

#[test]
fn models_held_in_16_bits_equal_transformers_in_f32() {
    BertForQuestionAnswering::assert_held_in_16_bits("qa");
    BertForSequenceClassification::assert_held_in_16_bits("single_label_classification");
    BertForTokenClassification::assert_held_in_16_bits("token");
}

#[test]
fn class_weights_weigh_as_in_pytorch() {
    let weights = [0.5, 2.0, 1.25];
    BertForSequenceClassification::assert_weighted("single_label_classification", &weights);
    BertForSequenceClassification::assert_weighted("multi_label_classification", &weights);
    BertForTokenClassification::assert_weighted("token", &[0.25, 1.0, 3.0, 0.5]);
}

#[test]
fn labels_and_problem_type_are_those_of_the_config() {
    let config = |family| {
        let dir = folder().join(format!("{family}_sequence"));
        BertForSequenceClassificationConfig::from_pretrained(dir).unwrap()
    };
    assert_eq!(config("bert").id2label, ["no", "perhaps", "yes"]);
    assert_eq!((config("bert").problem_type, config("bert").classifier_dropout), (None, None));
    assert_eq!(config("roberta").problem_type, Some(ProblemType::MultiLabelClassification));
}
