//! Whole models equal transformers and sentence-transformers: values and every gradient, from the f64 fixtures.

use crate::case::{Case, assert_close};
use crate::reference::host;
use crate::whole_model::{self, File, Slot, linear, norm};
use burn::prelude::*;
use burn::tensor::Gradients;
use burn_bert::functional::{Precision, autocast};
use burn_bert::model::{
    BertForMaskedLm, BertForMaskedLmConfig, BertForSentenceEmbedding, BertForSentenceEmbeddingConfig,
    BertForSequenceClassification, BertForSequenceClassificationConfig, BertForTokenClassification,
    BertForTokenClassificationConfig, BertModel, BertModelConfig, MaskedLmBatch, Pooling, PretrainedModel,
    SentencePairBatch, SequenceClassificationBatch, TokenClassificationBatch,
};
use burn_bert::optim::LossScale;
use burn_bert::{BertEmbeddingsInput, PaddingMask};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// In the checkout, or in the folder that `BURN_BERT_ROOT` names.
fn fixture(name: &str) -> PathBuf {
    let root = std::env::var_os("BURN_BERT_ROOT").map(PathBuf::from);
    root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).into()).join("tests/fixtures").join(name)
}

fn undropped(bert: &mut BertModelConfig) {
    bert.embeddings.hidden_dropout_prob = 0.0;
    bert.attention_probs_dropout_prob = 0.0;
}

/// Compares the gradient of each parameter with that of the fixture.
fn assert_gradients(
    case: &Case,
    what: &str,
    slots: Vec<(String, Slot<'_>)>,
    gradients: &Gradients,
    file: &File,
) {
    assert!(slots.len() >= 37, "{what}: {} gradients", slots.len());
    for (name, slot) in slots {
        let expected = file.values(&format!("grad.{name}"));
        assert_close(
            &format!("{what}: gradient of {name}"),
            &slot.gradient(gradients),
            &expected,
            case.tolerance,
        );
    }
}

pub fn bert_model_equals_transformers(case: &Case) {
    let dir = fixture("masked_lm/tiny_bert_encoder_only");
    let (model, _) = BertModel::from_pretrained(dir, &case.device).unwrap();
    let file = File::at(&fixture("masked_lm/cases_f64.safetensors"));
    let (input, padding) = file.batch(&case.device);
    let output = model.forward(&input, Some(&padding));
    let hidden = host(output.last_hidden_state);
    let expected = file.values("encoder_only.last_hidden_state");
    for (place, _) in padding.rows().flatten().enumerate().filter(|(_, is_padding)| !**is_padding) {
        let token = place * 12..(place + 1) * 12;
        assert_close("hidden state", &hidden[token.clone()], &expected[token], case.tolerance);
    }
    // The third sequence is padded on the left: transformers pools what padding looked at.
    let pooled = host(output.pooler_output.unwrap());
    let expected = file.values("encoder_only.pooler_output");
    for row in [0, 1, 3].map(|sequence| 12 * sequence..12 * (sequence + 1)) {
        assert_close("pooler output", &pooled[row.clone()], &expected[row], case.tolerance);
    }
}

/// A model, a batch and what transformers computes.
fn masked_lm(device: &Device) -> (BertForMaskedLm, MaskedLmBatch, File) {
    let dir = fixture("masked_lm/tiny_bert");
    let mut config = BertForMaskedLmConfig::from_pretrained(&dir).unwrap();
    undropped(&mut config.bert);
    let (model, _) = BertForMaskedLm::from_pretrained_with(&config, &dir, device).unwrap();
    let file = File::at(&fixture("masked_lm/cases_f64.safetensors"));
    let (input, padding) = file.batch(device);
    let [_, seq] = input.dims();
    let all: Vec<i64> = file.data("labels").iter().collect();
    let labelled = || all.iter().enumerate().filter(|(_, label)| **label >= 0);
    let positions: Vec<[usize; 2]> = labelled().map(|(place, _)| [place / seq, place % seq]).collect();
    let labels: Vec<u32> = labelled().map(|(_, &label)| label as u32).collect();
    let batch = MaskedLmBatch::new(input, Some(padding), &positions, &labels).unwrap();
    (model, batch, file)
}

fn slots(model: &mut BertForMaskedLm) -> Vec<(String, Slot<'_>)> {
    let BertForMaskedLm { bert, head } = model;
    let mut slots = whole_model::bert(bert, "bert");
    slots.extend(linear("cls.predictions.transform.dense".into(), &mut head.transform));
    slots.extend(norm("cls.predictions.transform.LayerNorm".into(), &mut head.layer_norm));
    slots.push(("cls.predictions.bias".into(), Slot::Vector(&mut head.bias)));
    slots
}

pub fn masked_language_modelling_equals_transformers(case: &Case) {
    let (mut model, batch, file) = masked_lm(&case.autodiff());
    let loss = model.forward(&batch).loss;
    assert_close("loss", &host(loss.clone()), &file.values("loss"), case.tolerance);
    let gradients = loss.backward();
    assert_gradients(case, "masked LM", slots(&mut model), &gradients, &file);
}

pub fn a_training_step_in_16_bits_has_the_gradients_of_f64_up_to_rounding_or_is_refused(case: &Case) {
    let (mut model, batch, file) = masked_lm(&case.autodiff());
    // Some roundings of 2⁻⁹ and 2⁻¹².
    for (precision, limit) in [(Precision::Bf16, 3.2e-2), (Precision::F16, 4e-3)] {
        let loss = || match precision {
            Precision::F16 => LossScale::new().autocast(|| model.forward(&batch).loss),
            _ => autocast(precision, || model.forward(&batch).loss),
        };
        if let Err(error) = precision.check(&case.device) {
            let panic = catch_unwind(AssertUnwindSafe(loss)).unwrap_err();
            let message = panic.downcast::<String>().unwrap();
            assert!(message.starts_with(&format!("the precision is {precision}, which")), "{message}");
            assert!(error.to_string().contains("choose f32"), "{error}");
            continue;
        }
        let gradients = loss().backward();
        let [mut miss, mut size] = [0.0; 2];
        for (name, slot) in slots(&mut model) {
            let found = slot.gradient(&gradients);
            for (found, expected) in found.iter().zip(file.values(&format!("grad.{name}"))) {
                miss += (found - expected).powi(2);
                size += expected.powi(2);
            }
        }
        let distance = (miss / size).sqrt();
        println!("{precision}: gradients are {distance:.1e} from those of f64");
        assert!(distance > 1e-4 && distance < limit, "{precision}: {distance:.1e}");
    }
}

pub fn classifiers_of_sequences_equal_transformers(case: &Case) {
    let device = case.autodiff();
    for family in ["bert", "roberta"] {
        let dir = fixture(&format!("classifiers/{family}_sequence"));
        let mut config = BertForSequenceClassificationConfig::from_pretrained(&dir).unwrap();
        undropped(&mut config.bert);
        let config = config.with_problem_type(None);
        for problem in ["single_label_classification", "multi_label_classification", "regression"] {
            let (mut model, _) =
                BertForSequenceClassification::from_pretrained_with(&config, &dir, &device).unwrap();
            let file = File::at(&fixture(&format!("classifiers/{family}_{problem}_f64.safetensors")));
            let (input, padding) = file.batch(&device);
            let labels = file.values("labels");
            let rows: Vec<&[f64]> = labels.chunks(3).collect();
            let batch = match problem {
                "regression" => SequenceClassificationBatch::regression(input, Some(padding), &rows),
                "multi_label_classification" => {
                    SequenceClassificationBatch::multi_label(input, Some(padding), &rows)
                }
                _ => {
                    let labels: Vec<i64> = labels.iter().map(|&label| label as i64).collect();
                    SequenceClassificationBatch::single_label(input, Some(padding), &labels)
                }
            };
            let output = model.forward(&batch.unwrap());
            let what = format!("{family}, {problem}");
            assert_close(&what, &host(output.logits), &file.values("logits"), case.tolerance);
            assert_close(&what, &host(output.loss.clone()), &file.values("loss"), case.tolerance);
            let gradients = output.loss.backward();
            let slots = whole_model::sequence_classifier(&mut model, family);
            assert_gradients(case, &what, slots, &gradients, &file);
        }
    }
}

pub fn classifiers_of_tokens_equal_transformers(case: &Case) {
    let device = case.autodiff();
    for family in ["bert", "roberta"] {
        let dir = fixture(&format!("classifiers/{family}_token"));
        let mut config = BertForTokenClassificationConfig::from_pretrained(&dir).unwrap();
        undropped(&mut config.bert);
        let config = config.with_classifier_dropout(None);
        let (mut model, _) =
            BertForTokenClassification::from_pretrained_with(&config, &dir, &device).unwrap();
        let file = File::at(&fixture(&format!("classifiers/{family}_token_f64.safetensors")));
        let (input, padding) = file.batch(&device);
        let labels: Vec<i64> = file.data("labels").iter().collect();
        let rows: Vec<&[i64]> = labels.chunks(6).collect();
        let loss = model.forward(&TokenClassificationBatch::new(input, Some(padding), &rows).unwrap()).loss;
        assert_close(family, &host(loss.clone()), &file.values("loss"), case.tolerance);
        let gradients = loss.backward();
        let slots = whole_model::token_classifier(&mut model, family);
        assert_gradients(case, family, slots, &gradients, &file);
    }
}

pub fn sentence_embeddings_equal_sentence_transformers(case: &Case) {
    let device = case.autodiff();
    let dir = fixture("masked_lm/tiny_bert_encoder_only");
    let mut config = BertForSentenceEmbeddingConfig::from_pretrained(&dir).unwrap();
    undropped(&mut config.bert);
    let file = File::at(&fixture("sentences/cases_f64.safetensors"));
    let sentences = |name: &str| {
        let tensor = |part: &str| Tensor::<2, Int>::from_data(file.data(&format!("{name}.{part}")), &device);
        let padding: PaddingMask = tensor("attention_mask").equal_elem(0).into();
        (BertEmbeddingsInput::from_ids(tensor("input_ids")).unwrap(), Some(padding))
    };
    for (pooling, name) in [
        (Pooling::Cls, "cls"),
        (Pooling::Max, "max"),
        (Pooling::Mean, "mean"),
        (Pooling::MeanSqrtLen, "mean_sqrt_len_tokens"),
        (Pooling::WeightedMean, "weightedmean"),
        (Pooling::LastToken, "lasttoken"),
    ] {
        let config = config.clone().with_pooling(pooling).with_normalize(true);
        let (model, _) = BertForSentenceEmbedding::from_pretrained_with(&config, &dir, &device).unwrap();
        let (input, padding) = sentences("anchors");
        let found = host(model.embed(&input, padding.as_ref()).unwrap());
        assert_close(name, &found, &file.values(&format!("normalized.{name}")), case.tolerance);
    }
    let config = config.with_normalize(true);
    let (mut model, _) = BertForSentenceEmbedding::from_pretrained_with(&config, &dir, &device).unwrap();
    let batch = SentencePairBatch::new(sentences("anchors"), sentences("candidates")).unwrap();
    let loss = model.forward(&batch).loss;
    assert_close("loss", &host(loss.clone()), &file.values("model.plain"), case.tolerance);
    let gradients = loss.backward();
    assert_gradients(case, "sentences", whole_model::bert(&mut model.bert, "bert"), &gradients, &file);
}
