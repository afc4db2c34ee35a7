//! The table of models whose values, losses and gradients transformers computed: `tests/fixtures/{masked_lm,
//! relative_positions, classifiers, families}`.

use super::files::{copy_of, edit};
pub use super::tolerance::collected;
use super::tolerance::{F64, MODEL_F32, Tolerance, values};
use super::whole_model::{File, places};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::cast_module;
use burn_bert::model::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The dtypes of the fixtures.
pub const DTYPES: [(FloatDType, Tolerance); 2] = [(FloatDType::F32, MODEL_F32), (FloatDType::F64, F64)];

/// Where a parameter is in a file: a tensor, and of its values which, as a tensor can hold several parameters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    pub key: String,
    start: usize,
    end: usize,
}

/// Where a directory has the parameters of a model that was read from it, by their paths: the tensors of a fixture differ from
/// each other, so values tell them apart.
pub fn keys(model: &impl Module, dir: &Path) -> BTreeMap<String, Stored> {
    let file = File::at(&dir.join("model.safetensors"));
    let tensors: Vec<_> = file.names().into_iter().map(|name| (file.values(&name), name)).collect();
    let key = |(path, values): (String, Vec<f64>)| {
        let parts = tensors.iter().flat_map(|(tensor, key)| {
            let places = tensor.chunks(values.len()).enumerate().filter(|(_, part)| *part == values);
            places.map(|(i, part)| Stored {
                key: key.clone(),
                start: i * part.len(),
                end: (i + 1) * part.len(),
            })
        });
        let mut equal: Vec<_> = parts.collect();
        assert_eq!(equal.len(), 1, "{path} in {}: {equal:?}", dir.display());
        (path, equal.remove(0))
    };
    let keys: BTreeMap<_, _> = collected(model, None).into_iter().map(key).collect();
    assert_eq!(BTreeSet::from_iter(keys.values()).len(), keys.len(), "no tensor is read twice");
    keys
}

const FAMILIES: [&str; 10] = [
    "distilbert",
    "electra",
    "mpnet",
    "albert",
    "modernbert",
    "nomic_bert",
    "gte",
    "jina_embeddings_v3",
    "deberta",
    "eurobert",
];

/// A model and a batch of the fixtures.
#[derive(Clone, Debug)]
pub struct Fixture {
    pub family: &'static str,
    pub model: PathBuf,
    /// What transformers computed in f32 and in f64, in one file or in two.
    cases: [PathBuf; 2],
    /// [`keys`] of the model, once it was loaded.
    keys: OnceLock<BTreeMap<String, Stored>>,
}

pub fn fixtures() -> PathBuf {
    let root = std::env::var_os("BURN_BERT_ROOT").map(PathBuf::from);
    root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).into()).join("tests/fixtures")
}

impl Fixture {
    fn new(family: &'static str, model: &str, cases: &str) -> Self {
        let case = |suffix| fixtures().join(format!("{cases}{suffix}.safetensors"));
        let cases = if case("_f32").exists() { [case("_f32"), case("_f64")] } else { [case(""), case("")] };
        Self { family, model: fixtures().join(model), cases, keys: OnceLock::new() }
    }

    /// Those of BERT and RoBERTa with a classifier, and those of the families.
    fn classifiers(head: &str, cases: &[&str], families: &str) -> Vec<Self> {
        let fixture = |family, case: &str| {
            let [model, case] = [head, case].map(|name| format!("classifiers/{family}_{name}"));
            Self::new(family, &model, &case)
        };
        let own = |family| cases.iter().map(move |case| fixture(family, case));
        ["bert", "roberta"].into_iter().flat_map(own).chain(Self::families(families)).collect()
    }

    /// Those of the families that are not BERT's or RoBERTa's, as far as they have the head.
    pub fn families(head: &str) -> Vec<Self> {
        let fixture = |family| {
            let name = format!("families/{family}_{head}");
            Self::new(family, &name, &name)
        };
        FAMILIES.into_iter().map(fixture).filter(|fixture| fixture.model.exists()).collect()
    }

    /// The classifier of tokens of a family, and long sequences.
    pub fn long(family: &'static str) -> Self {
        Self::new(family, &format!("families/{family}_token"), &format!("families/{family}_long"))
    }

    pub fn case(&self, dtype: FloatDType) -> File {
        File::at(&self.cases[usize::from(dtype == FloatDType::F64)])
    }

    /// The name that transformers has for the tensor of a parameter of the model that was loaded.
    pub fn key(&self, path: &str) -> &str {
        &self.stored(path).key
    }

    fn stored(&self, path: &str) -> &Stored {
        &self.keys.get().expect("the model was loaded")[path]
    }

    /// The values that a case has of a parameter under the key that transformers has for it, with a prefix such as `grad.`; `None`
    /// without.
    pub fn values(&self, case: &File, prefix: &str, path: &str) -> Option<Vec<f64>> {
        let &Stored { ref key, start, end } = self.stored(path);
        let name = format!("{prefix}{key}");
        case.has(&name).then(|| case.values(&name)[start..end].to_vec())
    }

    /// The gradient of a parameter.
    pub fn gradient(&self, path: &str) -> Vec<f64> {
        self.values(&self.case(FloatDType::F64), "grad.", path).expect("a gradient")
    }

    /// The name of the case, such as `bert_regression_f64`.
    pub fn name(&self) -> String {
        self.cases[1].file_stem().unwrap().to_string_lossy().into()
    }

    /// The model, with all tensors of its file and no others.
    pub fn load<H: Head>(&self, dtype: FloatDType, device: &Device) -> H {
        let (model, report) = H::from_pretrained(undropped(&self.model), device).unwrap();
        assert_eq!(report, LoadReport::default(), "{}", self.name());
        self.keys.get_or_init(|| keys(&model, &self.model));
        cast_module(model, dtype).unwrap()
    }
}

/// A head with fixtures.
pub trait Head: PretrainedModel {
    /// How far PyTorch's logits of a model held in bf16 and in f16 are from transformers' in f64: the largest over the
    /// families and over its two attentions (eager and SDPA); in f16 with products rounded before the bias is added, as
    /// Burn's are.
    const HELD_IN_16_BITS: [f64; 2];
    /// The same of those, ModernBERT and EuroBERT, whose rows nothing normalises between its layers.
    const MODERNBERT_HELD_IN_16_BITS: [f64; 2] = Self::HELD_IN_16_BITS;
    type Batch;
    fn fixtures() -> Vec<Fixture>;
    fn batch(case: &File, device: &Device) -> Self::Batch;
    /// The loss and the logits of a forward.
    fn run(&self, batch: &Self::Batch) -> (Tensor<1>, Vec<f64>);
    /// The logits that mean something, of all.
    fn meant(logits: Vec<f64>, case: &File) -> Vec<f64> {
        token_rows(&logits, case)
    }
    /// The logits that transformers computed, in the order of `run`.
    fn logits(case: &File) -> Vec<f64> {
        case.values("logits")
    }
}

/// A copy of a directory, without dropout and with the problem type that labels have.
pub fn undropped(dir: &Path) -> TempDir {
    let copy = copy_of(dir);
    edit(&copy, "config.json", |config| {
        for (field, value) in config.as_object_mut().unwrap() {
            match field.as_str() {
                "problem_type" => *value = Value::Null,
                field if field.contains("dropout") => *value = 0.0.into(),
                _ => {}
            }
        }
    });
    copy
}

/// Rows of `all` at some places.
pub fn rows_at(all: &[f64], places: &[i32], of: usize) -> Vec<f64> {
    let width = all.len() / of;
    places.iter().flat_map(|&place| all[place as usize * width..][..width].to_vec()).collect()
}

/// The rows of tokens, without those of padding, which mean nothing.
pub fn token_rows(all: &[f64], case: &File) -> Vec<f64> {
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
    const MODERNBERT_HELD_IN_16_BITS: [f64; 2] = [9.1e-2, 8.8e-3];
    type Batch = MaskedLmBatch;

    fn fixtures() -> Vec<Fixture> {
        let relative = |kind| format!("relative_positions/{kind}");
        let mut all = vec![
            Fixture::new("bert", "masked_lm/tiny_bert", "masked_lm/cases"),
            Fixture::new("roberta", "masked_lm/tiny_roberta", "masked_lm/roberta_cases"),
            Fixture::new("bert", &relative("relative_key"), &relative("relative_key")),
            Fixture::new("bert", &relative("relative_key_query"), &relative("relative_key_query")),
        ];
        all.extend(["masked_lm", "tied"].into_iter().flat_map(Fixture::families));
        all
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
    const MODERNBERT_HELD_IN_16_BITS: [f64; 2] = [1.6e-2, 2.3e-3];
    type Batch = SequenceClassificationBatch;

    fn fixtures() -> Vec<Fixture> {
        let problems = ["single_label_classification", "multi_label_classification", "regression"];
        let mut all = Fixture::classifiers("sequence", &problems, "sequence");
        all.extend(["first_token", "pooled"].into_iter().flat_map(Fixture::families));
        all
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
    const MODERNBERT_HELD_IN_16_BITS: [f64; 2] = [8.4e-2, 7.8e-3];
    type Batch = TokenClassificationBatch;

    fn fixtures() -> Vec<Fixture> {
        Fixture::classifiers("token", &["token"], "token")
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
    const MODERNBERT_HELD_IN_16_BITS: [f64; 2] = [4.4e-2, 7.0e-3];
    type Batch = QuestionAnsweringBatch;

    /// Two of the answers of `qa` lie outside their sequences in part; in `qa_padded` padding has the logit minus infinity.
    fn fixtures() -> Vec<Fixture> {
        Fixture::classifiers("qa", &["qa", "qa_padded"], "answers")
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
        Fixture::families("replaced")
    }

    fn batch(case: &File, device: &Device) -> TokenClassificationBatch {
        token_batch(case, device)
    }

    fn run(&self, batch: &TokenClassificationBatch) -> (Tensor<1>, Vec<f64>) {
        let output = self.forward(batch);
        (output.loss, values(output.logits))
    }
}
