//! `BertForMaskedLm` against transformers' `BertForMaskedLM` and `RobertaForMaskedLM`.

use crate::tolerance::{F64, LOGITS_F32, MODEL_F32, TRAINING, Tolerance, assert_close, values};
use crate::transformers::{Python, real_checkpoint};
use crate::whole_model::{self, File, Slot, linear, norm, places};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::model::{
    BertForMaskedLm, BertForMaskedLmConfig, BertModel, LoadReport, Pooling, PretrainedModel,
};
use burn_bert::optim::{AdamWConfig, adamw};
use burn_bert::training::{MaskedLmCollatorConfig, MaskedLmExample};
use burn_bert::{BertEmbeddings, cast_module};
use std::path::{Path, PathBuf};

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/masked_lm")
}

fn file(name: &str) -> File {
    File::at(&folder().join(name))
}

/// How a family names what is in the fixtures.
pub struct Family {
    model: &'static str,
    pub cases: &'static str,
    prefix: &'static str,
    transform: &'static str,
    transform_norm: &'static str,
    bias: &'static str,
    /// How many tensors a model of the fixtures has.
    tensors: usize,
}

pub const BERT: Family = Family {
    model: "tiny_bert",
    cases: "cases",
    prefix: "bert",
    transform: "cls.predictions.transform.dense",
    transform_norm: "cls.predictions.transform.LayerNorm",
    bias: "cls.predictions.bias",
    tensors: 42,
};

/// With a table of distances in each of two layers, and none of positions.
const fn relative(scheme: &'static str) -> Family {
    Family { model: scheme, cases: scheme, tensors: 43, ..BERT }
}

const RELATIVE_KEY: Family = relative("../relative_positions/relative_key");
const RELATIVE_KEY_QUERY: Family = relative("../relative_positions/relative_key_query");

pub const ROBERTA: Family = Family {
    model: "tiny_roberta",
    cases: "roberta_cases",
    prefix: "roberta",
    transform: "lm_head.dense",
    transform_norm: "lm_head.layer_norm",
    bias: "lm_head.bias",
    tensors: 42,
};

impl Family {
    /// Every parameter by its Hugging Face name.
    pub fn slots<'a>(&self, model: &'a mut BertForMaskedLm) -> Vec<(String, Slot<'a>)> {
        let BertForMaskedLm { bert, head } = model;
        let mut slots = whole_model::bert(bert, self.prefix);
        slots.extend(linear(self.transform.into(), &mut head.transform));
        slots.extend(norm(self.transform_norm.into(), &mut head.layer_norm));
        slots.push((self.bias.into(), Slot::Vector(&mut head.bias)));
        slots
    }

    /// The model as it is read from the fixture, found to hold all tensors of it.
    pub fn load(&self, dtype: FloatDType, device: &Device) -> BertForMaskedLm {
        let config = BertForMaskedLmConfig::from_pretrained(folder().join(self.model)).unwrap();
        let (model, report) =
            BertForMaskedLm::from_pretrained_with(&undropped(config), folder().join(self.model), device)
                .unwrap();
        assert_eq!(report, LoadReport::default());
        let mut model = cast_module(model, dtype);
        let weights = file(&format!("{}/model.safetensors", self.model));
        let slots = self.slots(&mut model);
        assert_eq!(slots.len(), self.tensors);
        for (name, slot) in slots {
            assert_eq!(slot.values(), weights.values(&name), "{name}");
        }
        model
    }

    fn assert_equal(&self, dtype: FloatDType, tolerance: Tolerance) {
        let device = Device::default().autodiff();
        let mut model = self.load(dtype, &device);
        let suffix = if dtype == FloatDType::F64 { "f64" } else { "f32" };
        let case = file(&format!("{}_{suffix}.safetensors", self.cases));

        let (input, padding) = case.batch(&device);
        let [batch, seq] = input.dims();
        let hidden = model.bert.forward(&input, Some(&padding)).last_hidden_state;
        // What padding itself means in the encoder is nobody's business: tokens alone are compared.
        let tokens: Vec<i32> = places(&case, "attention_mask", |mask| mask == 1);
        let (labelled, _) = case.labels(&device);
        let pick =
            |rows: Tensor<2>, places: &[i32]| rows.select(0, Tensor::<1, Int>::from_data(places, &device));
        let expect = |name: &str, places: &[i32]| {
            let values = case.values(name);
            let width = values.len() / (batch * seq);
            places
                .iter()
                .flat_map(|&place| values[place as usize * width..][..width].to_vec())
                .collect::<Vec<_>>()
        };
        let hidden = hidden.reshape([batch * seq, model.bert.embeddings.hidden_size()]);
        let found = values(pick(hidden.clone(), &tokens));
        assert_close(&found, &expect("last_hidden_state", &tokens), tolerance);
        if case.has("hidden_states.0") {
            let output = model.bert.forward_all(&input, Some(&padding));
            let states = output.hidden_states.unwrap();
            assert_eq!(states.len(), 3);
            for (i, state) in states.into_iter().enumerate() {
                let state = state.reshape([batch * seq, model.bert.embeddings.hidden_size()]);
                let expected = expect(&format!("hidden_states.{i}"), &tokens);
                assert_close(&values(pick(state, &tokens)), &expected, tolerance);
            }
            let pooled = Pooling::Mean.forward(hidden.clone().reshape([batch, seq, 12]), Some(&padding));
            assert_close(&values(pooled), &case.values("mean_pooled"), tolerance);
        }
        let logits = model.scores(pick(hidden, &labelled)).unwrap();
        assert_close(&values(logits.clone()), &expect("logits", &labelled), tolerance);

        let loss = CrossEntropyLossConfig::new().init(&device).forward(logits, case.labels(&device).1);
        assert_close(&values(loss.clone()), &case.values("loss"), tolerance);
        let gradients = loss.backward();
        for (name, slot) in self.slots(&mut model) {
            assert_close(&slot.gradient(&gradients), &case.values(&format!("grad.{name}")), tolerance);
        }
    }
}

pub fn undropped(mut config: BertForMaskedLmConfig) -> BertForMaskedLmConfig {
    config.bert.embeddings.hidden_dropout_prob = 0.0;
    config.bert.attention_probs_dropout_prob = 0.0;
    config
}

#[test]
fn bert_for_masked_lm_equals_transformers_in_every_value_and_gradient() {
    BERT.assert_equal(FloatDType::F32, MODEL_F32);
    BERT.assert_equal(FloatDType::F64, F64);
}

#[test]
fn roberta_for_masked_lm_equals_transformers_in_every_value_and_gradient() {
    ROBERTA.assert_equal(FloatDType::F32, MODEL_F32);
    ROBERTA.assert_equal(FloatDType::F64, F64);
}

#[test]
fn relative_positions_equal_transformers_in_every_value_and_gradient() {
    for family in [RELATIVE_KEY, RELATIVE_KEY_QUERY] {
        family.assert_equal(FloatDType::F32, MODEL_F32);
        family.assert_equal(FloatDType::F64, F64);
    }
}

#[test]
fn attention_weights_equal_transformers_wherever_there_is_a_token() {
    for family in [RELATIVE_KEY, RELATIVE_KEY_QUERY] {
        let device = Device::default();
        let model = family.load(FloatDType::F64, &device);
        let case = file(&format!("{}_f64.safetensors", family.cases));
        let (input, padding) = case.batch(&device);
        let attentions = model.bert.forward_all(&input, Some(&padding)).attentions.unwrap();
        assert_eq!(attentions.len(), 2);
        for (i, weights) in attentions.into_iter().enumerate() {
            let [_, heads, seq, _] = weights.dims();
            let (found, expected) = (values(weights), case.values(&format!("attentions.{i}")));
            for (query, _) in padding.rows().flatten().enumerate().filter(|(_, is_padding)| !**is_padding) {
                for head in 0..heads {
                    let row = ((query / seq * heads + head) * seq + query % seq) * seq;
                    assert_close(&found[row..row + seq], &expected[row..row + seq], F64);
                }
            }
        }
    }
}

#[test]
fn a_model_with_relative_positions_is_saved_and_read_as_it_was() {
    let device = Device::default();
    let mut model = RELATIVE_KEY_QUERY.load(FloatDType::F32, &device);
    let dir = tempfile::tempdir().unwrap();
    model.save_pretrained(dir.path()).unwrap();
    let (mut again, report) = BertForMaskedLm::from_pretrained(dir.path(), &device).unwrap();
    assert_eq!(report, LoadReport::default());
    let pairs = RELATIVE_KEY_QUERY.slots(&mut again).into_iter().zip(RELATIVE_KEY_QUERY.slots(&mut model));
    for ((name, again), (_, saved)) in pairs {
        assert_eq!(again.values(), saved.values(), "{name}");
    }
    assert_eq!(again.config().bert.embeddings, model.config().bert.embeddings);
}

#[test]
fn ten_steps_of_adamw_without_decay_on_biases_and_norms_equal_pytorchs() {
    for family in [BERT, ROBERTA] {
        for (dtype, suffix) in [(FloatDType::F32, "f32"), (FloatDType::F64, "f64")] {
            let device = Device::default().autodiff();
            let mut model = family.load(dtype, &device);
            let case = file(&format!("{}_{suffix}.safetensors", family.cases));
            let (input, padding) = case.batch(&device);
            let (places, labels) = case.labels(&device);
            let places = Tensor::<1, Int>::from_data(places.as_slice(), &device);
            let mut optimizer = adamw(&AdamWConfig::new());
            let mut losses = Vec::new();
            for _ in 0..10 {
                let hidden = model.bert.forward(&input, Some(&padding)).last_hidden_state.flatten::<2>(0, 1);
                let logits = model.scores(hidden.select(0, places.clone())).unwrap();
                let loss = CrossEntropyLossConfig::new().init(&device).forward(logits, labels.clone());
                losses.extend(values(loss.clone()));
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                model = optimizer.step(1e-3, model, gradients);
            }
            assert_close(&losses, &case.values("losses"), TRAINING);
            let mut compared = 0;
            for (name, slot) in family.slots(&mut model) {
                let name = format!("after.{name}");
                if case.has(&name) {
                    assert_close(&slot.values(), &case.values(&name), TRAINING);
                    compared += 1;
                }
            }
            assert_eq!(compared, 3);
        }
    }
}

#[test]
fn a_checkpoint_of_the_encoder_alone_gives_its_vectors_and_a_new_head() {
    let device = Device::default();
    let dir = folder().join("tiny_bert_encoder_only");
    let (_, report) = BertForMaskedLm::from_pretrained(&dir, &device).unwrap();
    let expected = [
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.predictions.bias",
    ];
    assert_eq!(report.missing, expected.map(String::from));
    assert!(report.to_string().contains("not in the checkpoint, not loaded: cls.predictions."));

    assert_eq!(report.unused, ["pooler.dense.bias", "pooler.dense.weight"]);

    let (model, report) = BertModel::from_pretrained(&dir, &device).unwrap();
    assert_eq!(report, LoadReport::default());
    for (dtype, suffix, tolerance) in [(FloatDType::F32, "f32", MODEL_F32), (FloatDType::F64, "f64", F64)] {
        let model = cast_module(model.clone(), dtype);
        let case = file(&format!("cases_{suffix}.safetensors"));
        let (input, padding) = case.batch(&device);
        let output = model.forward(&input, Some(&padding));
        // The third sequence is padded on the left: transformers pools what padding looked at.
        let expected = case.values("encoder_only.pooler_output");
        let found = values(output.pooler_output.unwrap());
        for row in [0, 1, 3].map(|sequence| 12 * sequence..12 * (sequence + 1)) {
            assert_close(&found[row.clone()], &expected[row], tolerance);
        }
        let expected = case.values("encoder_only.mean_pooled");
        let found = Pooling::Mean.forward(output.last_hidden_state, Some(&padding));
        assert_close(&values(found), &expected, tolerance);
    }
}

#[test]
fn a_pickled_model_is_the_same_and_its_tied_copies_are_accounted_for() {
    let device = Device::default();
    let dir = folder().join("tiny_bert_bin");
    let (mut model, report) = BertForMaskedLm::from_pretrained(dir, &device).unwrap();
    assert_eq!(report, LoadReport::default());
    let weights = file("tiny_bert/model.safetensors");
    for (name, slot) in BERT.slots(&mut model) {
        assert_eq!(slot.values(), weights.values(&name), "{name}");
    }
}

#[test]
fn the_input_layer_of_a_whole_model_is_found_in_either_format() {
    let device = Device::default();
    let load = |name: &str| BertEmbeddings::from_pretrained(folder().join(name), &device).unwrap();
    let words = |name: &str| values(load(name).word_embeddings.weight.val());
    let expected = file("tiny_bert/model.safetensors").values("bert.embeddings.word_embeddings.weight");
    assert_eq!(words("tiny_bert"), expected);
    assert_eq!(words("tiny_bert_bin"), expected);
    assert_eq!(words("tiny_bert_encoder_only").len(), expected.len());
    assert_ne!(words("tiny_bert_encoder_only"), expected);
}

/// Trains with dropout, saves, and has transformers score random tokens with what was saved.
fn assert_same_logits_after_training(checkpoint: &Path) {
    let device = Device::default().autodiff();
    let (mut model, _) = BertForMaskedLm::from_pretrained(checkpoint, &device).unwrap();
    let vocab_size = model.bert.embeddings.word_embeddings.num_embeddings() as u32;
    let collator = MaskedLmCollatorConfig::new(vocab_size as usize, 3, 0, vec![0]).init();
    let texts =
        [11, 7].map(|step| MaskedLmExample::new((1..9).map(|i| 1 + i * step % (vocab_size - 1)).collect()));
    let batch = collator.collate(&texts, 3, &device).unwrap();
    let mut optimizer = adamw(&AdamWConfig::new());
    let mut losses = Vec::new();
    for _ in 0..3 {
        let loss = model.forward(&batch).loss;
        losses.extend(values(loss.clone()));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        // A rate at which the weights of a real checkpoint keep their size, and logits their rounding.
        model = optimizer.step(1e-3, model, gradients);
    }
    let saved = tempfile::tempdir().unwrap();
    model.save_pretrained(saved.path()).unwrap();
    let out = tempfile::tempdir().unwrap();
    Python::named().check("logits", saved.path(), out.path());

    let case = File::at(&out.path().join("f32.safetensors"));
    let model = model.valid();
    let device = device.inner();
    let (input, padding) = case.batch(&device);
    let hidden = model.bert.forward(&input, Some(&padding)).last_hidden_state.flatten::<2>(0, 1);
    let tokens = places(&case, "attention_mask", |mask| mask == 1);
    let rows = Tensor::<1, Int>::from_data(tokens.as_slice(), &device);
    let found = values(model.scores(hidden.select(0, rows)).unwrap());
    let expected = case.values("logits");
    let width = vocab_size as usize;
    let expected: Vec<f64> =
        tokens.iter().flat_map(|&token| expected[token as usize * width..][..width].to_vec()).collect();
    assert_close(&found, &expected, LOGITS_F32);
    let largest = found.iter().zip(&expected).fold(0.0f64, |largest, (a, b)| largest.max((a - b).abs()));
    println!("losses {losses:.3?}; {} logits, largest difference {largest:.1e}", found.len());
}

#[test]
#[ignore = "needs Python with transformers: BURN_BERT_PYTHON"]
fn a_fine_tuned_model_gives_the_same_logits_in_transformers() {
    assert_same_logits_after_training(&folder().join("tiny_bert"));
    assert_same_logits_after_training(&folder().join("tiny_roberta"));
}

#[test]
#[ignore = "needs Python with transformers and a checkpoint: BURN_BERT_PYTHON, BURN_BERT_CHECKPOINT"]
fn a_fine_tuned_real_checkpoint_gives_the_same_logits_in_transformers() {
    assert_same_logits_after_training(&real_checkpoint());
}

#[test]
#[ignore = "needs Python with transformers and a checkpoint: BURN_BERT_PYTHON, BURN_BERT_CHECKPOINT"]
fn a_real_checkpoint_on_real_sentences_equals_transformers_after_every_layer() {
    let (python, model) = (Python::named(), real_checkpoint());
    let out = tempfile::tempdir().unwrap();
    python.check("hidden_states", &model, out.path());

    let device = Device::default();
    let (loaded, report) = BertModel::from_pretrained(&model, &device).unwrap();
    println!("{report}");
    for (dtype, suffix, tolerance) in [(FloatDType::F32, "f32", MODEL_F32), (FloatDType::F64, "f64", F64)] {
        let model = cast_module(loaded.clone(), dtype);
        let case = File::at(&out.path().join(format!("{suffix}.safetensors")));
        let (input, padding) = case.batch(&device);
        let output = model.forward_all(&input, Some(&padding));
        let states = output.hidden_states.unwrap();
        let mut largest = 0.0f64;
        for (i, state) in states.iter().enumerate() {
            let expected = case.values(&format!("hidden_states.{i}"));
            let found = values(state.clone());
            let is_token: Vec<bool> =
                case.data("attention_mask").iter::<i64>().map(|mask| mask == 1).collect();
            let width = found.len() / is_token.len();
            for (token, _) in is_token.iter().enumerate().filter(|(_, is_token)| **is_token) {
                let range = token * width..(token + 1) * width;
                assert_close(&found[range.clone()], &expected[range.clone()], tolerance);
                let pairs = found[range.clone()].iter().zip(&expected[range]);
                largest = pairs.fold(largest, |largest, (a, b)| largest.max((a - b).abs()));
            }
        }
        assert_close(&values(output.pooler_output.unwrap()), &case.values("pooler_output"), tolerance);
        println!("{suffix}: largest difference after any layer {largest:.1e}");
    }
}
