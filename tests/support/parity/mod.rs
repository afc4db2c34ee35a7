//! The table of models whose values, losses and gradients transformers computed: `tests/fixtures/{masked_lm,
//! relative_positions, classifiers, families}`.

#![allow(dead_code)] // every test file takes what it needs

use crate::tolerance::values;
use crate::whole_model::{File, places};
use burn::module::{Module, ModuleVisitor, Param};
use burn::prelude::*;
use burn::tensor::{FloatDType, Gradients};
use burn_bert::cast_module;
use burn_bert::model::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a family calls the parameters, given those of this crate: replaced one after the other.
const KEYS: [(&str, &[(&str, &str)]); 6] = [
    ("bert", BERT),
    ("roberta", ROBERTA),
    (
        "distilbert",
        &[
            ("encoder.layers.", "transformer.layer."),
            ("attention.query", "attention.q_lin"),
            ("attention.key", "attention.k_lin"),
            ("attention.value", "attention.v_lin"),
            ("attention_output.", "attention.out_lin."),
            ("attention_layer_norm.", "sa_layer_norm."),
            (".intermediate.", ".ffn.lin1."),
            (".output.", ".ffn.lin2."),
            ("head.transform", "vocab_transform"),
            ("head.layer_norm", "vocab_layer_norm"),
            ("head.bias", "vocab_projector.bias"),
            ("classifier.dense", "pre_classifier"),
            ("classifier.out_proj", "classifier"),
        ],
    ),
    (
        "electra",
        &[
            ("encoder.embeddings_projection", "embeddings_project"),
            ("head.transform", "generator_predictions.dense"),
            ("head.layer_norm", "generator_predictions.LayerNorm"),
            ("head.bias", "generator_lm_head.bias"),
        ],
    ),
    (
        "mpnet",
        &[
            ("relative_attention_bias.table.", "relative_attention_bias."),
            ("attention.self.query", "attention.attn.q"),
            ("attention.self.key", "attention.attn.k"),
            ("attention.self.value", "attention.attn.v"),
            ("attention.output.dense.", "attention.attn.o."),
            ("attention.output.LayerNorm.", "attention.LayerNorm."),
            ("head.transform", "lm_head.dense"),
            ("head.layer_norm", "lm_head.layer_norm"),
            ("head.bias", "lm_head.bias"),
        ],
    ),
    (
        "albert",
        &[
            ("embeddings_projection", "embedding_hidden_mapping_in"),
            ("encoder.layers.", "encoder.albert_layer_groups.0.albert_layers."),
            ("attention_output.", "attention.dense."),
            ("attention_layer_norm.", "attention.LayerNorm."),
            (".output_layer_norm.", ".full_layer_layer_norm."),
            (".intermediate.", ".ffn."),
            (".output.", ".ffn_output."),
            ("pooler.dense", "pooler"),
            ("head.transform", "predictions.dense"),
            ("head.layer_norm", "predictions.LayerNorm"),
            ("head.bias", "predictions.bias"),
            ("classifier.out_proj", "classifier"),
        ],
    ),
];

const BERT: &[(&str, &str)] = &[
    ("attention.relative_positions.", "attention.self."),
    ("head.transform", "cls.predictions.transform.dense"),
    ("head.layer_norm", "cls.predictions.transform.LayerNorm"),
    ("head.bias", "cls.predictions.bias"),
    ("classifier.out_proj", "classifier"),
];

const ROBERTA: &[(&str, &str)] = &[
    ("head.transform", "lm_head.dense"),
    ("head.layer_norm", "lm_head.layer_norm"),
    ("head.bias", "lm_head.bias"),
];

/// What all families but DistilBERT and ALBERT call a layer's parameters.
const LAYER: [(&str, &str); 9] = [
    ("encoder.layers.", "encoder.layer."),
    (".output.", ".output.dense."),
    (".intermediate.", ".intermediate.dense."),
    (".output_layer_norm.", ".output.LayerNorm."),
    ("attention.query", "attention.self.query"),
    ("attention.key", "attention.self.key"),
    ("attention.value", "attention.self.value"),
    ("attention_output.", "attention.output.dense."),
    ("attention_layer_norm.", "attention.output.LayerNorm."),
];

/// The name that `family` has for a parameter of this crate.
pub fn key(family: &str, path: &str) -> String {
    let (_, own) = KEYS.iter().find(|(name, _)| *name == family).unwrap();
    let layer = if ["distilbert", "albert"].contains(&family) { &[] } else { &LAYER[..] };
    let shared = [("gamma", "weight"), ("beta", "bias"), ("embeddings.layer_norm.", "embeddings.LayerNorm.")];
    let key = path.replacen("bert.", &format!("{family}."), 1);
    shared.iter().chain(layer).chain(*own).fold(key, |key, (from, to)| key.replace(from, to))
}

/// A model and a batch of the fixtures.
#[derive(Clone, Debug)]
pub struct Fixture {
    pub family: &'static str,
    pub model: PathBuf,
    /// What transformers computed in f32 and in f64, in one file or in two.
    cases: [PathBuf; 2],
}

pub fn fixtures() -> PathBuf {
    let root = std::env::var_os("BURN_BERT_ROOT").map(PathBuf::from);
    root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).into()).join("tests/fixtures")
}

impl Fixture {
    fn new(family: &'static str, model: &str, cases: &str) -> Self {
        let case = |suffix| fixtures().join(format!("{cases}{suffix}.safetensors"));
        let cases = if case("_f32").exists() { [case("_f32"), case("_f64")] } else { [case(""), case("")] };
        Self { family, model: fixtures().join(model), cases }
    }

    /// Those of DistilBERT, ELECTRA, MPNet and ALBERT, as far as they have the head.
    pub fn of_families(head: &str) -> Vec<Self> {
        let fixture = |&(family, _): &(&'static str, _)| {
            let name = format!("families/{family}_{head}");
            Self::new(family, &name, &name)
        };
        KEYS[2..].iter().map(fixture).filter(|fixture| fixture.model.exists()).collect()
    }

    pub fn case(&self, dtype: FloatDType) -> File {
        File::at(&self.cases[usize::from(dtype == FloatDType::F64)])
    }

    pub fn key(&self, path: &str) -> String {
        key(self.family, path)
    }

    /// The gradient of a parameter.
    pub fn gradient(&self, path: &str) -> Vec<f64> {
        self.case(FloatDType::F64).values(&format!("grad.{}", self.key(path)))
    }

    /// The name of the case, such as `bert_regression_f64`.
    pub fn name(&self) -> String {
        self.cases[1].file_stem().unwrap().to_string_lossy().into()
    }

    /// The model, with all tensors of its file and no others.
    pub fn load<H: Head>(&self, dtype: FloatDType, device: &Device) -> H {
        let (model, report) =
            H::from_pretrained_with(&H::undropped(&self.model), &self.model, device).unwrap();
        assert_eq!(report, LoadReport::default(), "{}", self.name());
        let file = File::at(&self.model.join("model.safetensors"));
        for (path, value) in collected(&model, None) {
            assert_eq!(value, file.values(&self.key(&path)), "{}: {path}", self.name());
        }
        cast_module(model, dtype).unwrap()
    }
}

/// Parameters, or their gradients, by this crate's paths; linear layers as PyTorch keeps them.
struct Collect<'a> {
    path: Vec<String>,
    is_linear: Vec<bool>,
    gradients: Option<&'a Gradients>,
    found: BTreeMap<String, Vec<f64>>,
}

impl ModuleVisitor for Collect<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push(name.to_string());
        self.is_linear.push(container == "Struct:Linear");
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
        self.is_linear.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let found = match self.gradients {
            Some(gradients) => param.grad(gradients),
            None => Some(param.val()),
        };
        let Some(found) = found else { return };
        // The parameter itself is entered as well.
        let is_linear = D == 2 && self.is_linear.iter().rev().take(2).any(|is_linear| *is_linear);
        let found = if is_linear { found.swap_dims(0, 1) } else { found };
        self.found.insert(self.path.join("."), values(found));
    }
}

/// Parameters or their gradients, of those that have one, as transformers keeps them.
pub fn collected<M: Module>(model: &M, gradients: Option<&Gradients>) -> BTreeMap<String, Vec<f64>> {
    let mut collect = Collect { path: vec![], is_linear: vec![], gradients, found: BTreeMap::new() };
    model.visit(&mut collect);
    collect.found
}

/// A head with fixtures.
pub trait Head: PretrainedModel {
    /// How far PyTorch's logits of a model held in bf16 and in f16 are from transformers' in f64: the largest over the
    /// families and over its two attentions (eager and SDPA); in f16 with products rounded before the bias is added, as
    /// Burn's are.
    const HELD_IN_16_BITS: [f64; 2];
    type Batch;
    fn fixtures() -> Vec<Fixture>;
    /// The config without dropout.
    fn undropped(dir: &Path) -> Self::Config;
    fn batch(case: &File, device: &Device) -> Self::Batch;
    /// The loss and the logits of a forward.
    fn run(&self, batch: &Self::Batch) -> (Tensor<1>, Vec<f64>);
    /// The logits that mean something, of all.
    fn meant(logits: Vec<f64>, case: &File) -> Vec<f64> {
        of_tokens(&logits, case)
    }
    /// The logits that transformers computed, in the order of `run`.
    fn logits(case: &File) -> Vec<f64> {
        case.values("logits")
    }
}

fn undropped(bert: &mut BertModelConfig) {
    bert.embeddings.hidden_dropout_prob = 0.0;
    bert.attention_probs_dropout_prob = 0.0;
}

/// Rows of `all` at some places.
pub fn rows_at(all: &[f64], places: &[i32], of: usize) -> Vec<f64> {
    let width = all.len() / of;
    places.iter().flat_map(|&place| all[place as usize * width..][..width].to_vec()).collect()
}

/// The rows of tokens, without those of padding, which mean nothing.
pub fn of_tokens(all: &[f64], case: &File) -> Vec<f64> {
    rows_at(all, &places(case, "attention_mask", |mask| mask == 1), case.values("attention_mask").len())
}

fn token_batch(case: &File, device: &Device) -> TokenClassificationBatch {
    let (input, padding) = case.batch(device);
    let [_, seq] = input.dims();
    let labels: Vec<i64> = case.data("labels").iter().collect();
    let rows: Vec<&[i64]> = labels.chunks(seq).collect();
    TokenClassificationBatch::new(input, Some(padding), &rows).unwrap()
}

impl Head for BertForMaskedLm {
    const HELD_IN_16_BITS: [f64; 2] = [8.1e-2, 8.8e-3];
    type Batch = MaskedLmBatch;

    fn fixtures() -> Vec<Fixture> {
        let relative = |kind| format!("relative_positions/{kind}");
        let mut all = vec![
            Fixture::new("bert", "masked_lm/tiny_bert", "masked_lm/cases"),
            Fixture::new("roberta", "masked_lm/tiny_roberta", "masked_lm/roberta_cases"),
            Fixture::new("bert", &relative("relative_key"), &relative("relative_key")),
            Fixture::new("bert", &relative("relative_key_query"), &relative("relative_key_query")),
        ];
        all.extend(Fixture::of_families("masked_lm"));
        all
    }

    fn undropped(dir: &Path) -> BertForMaskedLmConfig {
        let mut config = BertForMaskedLmConfig::from_pretrained(dir).unwrap();
        undropped(&mut config.bert);
        config
    }

    fn batch(case: &File, device: &Device) -> MaskedLmBatch {
        let (input, padding) = case.batch(device);
        let [_, seq] = input.dims();
        let labels: Vec<i64> = case.data("labels").iter().collect();
        let masked = labels.iter().enumerate().filter(|(_, label)| **label >= 0);
        let (at, labels): (Vec<_>, Vec<_>) =
            masked.map(|(place, &label)| ([place / seq, place % seq], label as u32)).unzip();
        MaskedLmBatch::new(input, Some(padding), &at, &labels).unwrap()
    }

    fn run(&self, batch: &MaskedLmBatch) -> (Tensor<1>, Vec<f64>) {
        let output = self.forward(batch);
        (output.loss, values(output.logits.unwrap()))
    }

    fn meant(logits: Vec<f64>, _case: &File) -> Vec<f64> {
        logits
    }

    fn logits(case: &File) -> Vec<f64> {
        let labelled = places(case, "labels", |label| label >= 0);
        rows_at(&case.values("logits"), &labelled, case.values("labels").len())
    }
}

impl Head for BertForSequenceClassification {
    const HELD_IN_16_BITS: [f64; 2] = [1.6e-2, 1.8e-3];
    type Batch = SequenceClassificationBatch;

    fn fixtures() -> Vec<Fixture> {
        let problems = ["single_label_classification", "multi_label_classification", "regression"];
        let fixture = |family, problem| {
            Fixture::new(
                family,
                &format!("classifiers/{family}_sequence"),
                &format!("classifiers/{family}_{problem}"),
            )
        };
        let families = ["bert", "roberta"].into_iter();
        let mut all: Vec<_> =
            families.flat_map(|family| problems.map(|problem| fixture(family, problem))).collect();
        all.extend(Fixture::of_families("sequence"));
        all
    }

    fn undropped(dir: &Path) -> BertForSequenceClassificationConfig {
        let mut config =
            BertForSequenceClassificationConfig::from_pretrained(dir).unwrap().with_problem_type(None);
        assert_eq!(config.id2label, ["no", "perhaps", "yes"]);
        undropped(&mut config.bert);
        // A family without a dropout of its own for classifiers takes that of the layers.
        let has_own = !dir.ends_with("mpnet_sequence");
        config.with_classifier_dropout(has_own.then_some(0.0))
    }

    /// Single labels are integers; of the others, those within [0, 1] are of any number of classes.
    fn batch(case: &File, device: &Device) -> SequenceClassificationBatch {
        let (input, padding) = case.batch(device);
        let [batch, _] = input.dims();
        let labels = case.values("labels");
        let rows: Vec<&[f64]> = labels.chunks(3).collect();
        let are_classes = labels.iter().all(|label| (0.0..=1.0).contains(label));
        match labels.len() == batch {
            true => {
                let labels: Vec<i64> = labels.iter().map(|&label| label as i64).collect();
                SequenceClassificationBatch::single_label(input, Some(padding), &labels)
            }
            false if are_classes => SequenceClassificationBatch::multi_label(input, Some(padding), &rows),
            false => SequenceClassificationBatch::regression(input, Some(padding), &rows),
        }
        .unwrap()
    }

    fn run(&self, batch: &SequenceClassificationBatch) -> (Tensor<1>, Vec<f64>) {
        let output = self.forward(batch);
        (output.loss, values(output.logits))
    }

    fn meant(logits: Vec<f64>, _case: &File) -> Vec<f64> {
        logits
    }
}

impl Head for BertForTokenClassification {
    const HELD_IN_16_BITS: [f64; 2] = [3.4e-2, 6.7e-3];
    type Batch = TokenClassificationBatch;

    fn fixtures() -> Vec<Fixture> {
        let name = |family| format!("classifiers/{family}_token");
        let mut all: Vec<_> =
            ["bert", "roberta"].map(|family| Fixture::new(family, &name(family), &name(family))).into();
        all.extend(Fixture::of_families("token"));
        all
    }

    fn undropped(dir: &Path) -> BertForTokenClassificationConfig {
        let mut config = BertForTokenClassificationConfig::from_pretrained(dir).unwrap();
        undropped(&mut config.bert);
        let has_own = !dir.ends_with("distilbert_token") && !dir.ends_with("mpnet_token");
        config.with_classifier_dropout(has_own.then_some(0.0))
    }

    fn batch(case: &File, device: &Device) -> TokenClassificationBatch {
        token_batch(case, device)
    }

    fn run(&self, batch: &TokenClassificationBatch) -> (Tensor<1>, Vec<f64>) {
        let output = self.forward(batch);
        (output.loss, values(output.logits))
    }
}

impl Head for BertForQuestionAnswering {
    const HELD_IN_16_BITS: [f64; 2] = [2.7e-2, 2.7e-3];
    type Batch = QuestionAnsweringBatch;

    /// Two of the answers of `qa` lie outside their sequences in part; in `qa_padded` padding has the logit minus infinity.
    fn fixtures() -> Vec<Fixture> {
        let fixture = |family, case| {
            Fixture::new(family, &format!("classifiers/{family}_qa"), &format!("classifiers/{family}_{case}"))
        };
        let families = ["bert", "roberta"].into_iter();
        let mut all: Vec<_> =
            families.flat_map(|family| ["qa", "qa_padded"].map(|case| fixture(family, case))).collect();
        all.extend(Fixture::of_families("answers"));
        all
    }

    fn undropped(dir: &Path) -> BertForQuestionAnsweringConfig {
        let mut config = BertForQuestionAnsweringConfig::from_pretrained(dir).unwrap();
        undropped(&mut config.bert);
        let is_distilbert = dir.ends_with("distilbert_answers");
        config.with_qa_dropout(is_distilbert.then_some(0.0))
    }

    fn batch(case: &File, device: &Device) -> QuestionAnsweringBatch {
        let (input, padding) = case.batch(device);
        let places =
            |name: &str| case.data(name).iter::<i64>().map(|place| place as usize).collect::<Vec<_>>();
        let (answers, padding): (Vec<[usize; 2]>, _) = if case.has("start_positions") {
            let pairs = places("start_positions").into_iter().zip(places("end_positions"));
            (pairs.map(|(start, end)| [start, end]).collect(), None)
        } else {
            (places("labels").chunks(2).map(|answer| [answer[0], answer[1]]).collect(), Some(padding))
        };
        QuestionAnsweringBatch::new(input, padding, &answers).unwrap()
    }

    fn run(&self, batch: &QuestionAnsweringBatch) -> (Tensor<1>, Vec<f64>) {
        let output = self.forward(batch);
        (output.loss, values(Tensor::stack::<3>(vec![output.start_logits, output.end_logits], 2)))
    }

    /// [B, S, 2]; in the families' fixtures the starts lie before the ends.
    fn logits(case: &File) -> Vec<f64> {
        let logits = case.values("logits");
        let (starts, ends) = logits.split_at(logits.len() / 2);
        match case.has("start_positions") {
            true => starts.iter().zip(ends).flat_map(|(start, end)| [*start, *end]).collect(),
            false => logits,
        }
    }
}

impl Head for ElectraForPreTraining {
    const HELD_IN_16_BITS: [f64; 2] = [6.8e-3, 6.2e-4];
    type Batch = TokenClassificationBatch;

    fn fixtures() -> Vec<Fixture> {
        Fixture::of_families("replaced")
    }

    fn undropped(dir: &Path) -> ElectraForPreTrainingConfig {
        let mut config = ElectraForPreTrainingConfig::from_pretrained(dir).unwrap();
        undropped(&mut config.bert);
        config
    }

    fn batch(case: &File, device: &Device) -> TokenClassificationBatch {
        token_batch(case, device)
    }

    fn run(&self, batch: &TokenClassificationBatch) -> (Tensor<1>, Vec<f64>) {
        let output = self.forward(batch);
        (output.loss, values(output.logits))
    }
}
