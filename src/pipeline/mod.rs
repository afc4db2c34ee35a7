//! A model with its tokenizer: texts in, labels, entities, answers, words and embeddings out.
//!
//! A [`Pipeline`] is loaded from a directory, used and saved as one thing; it has a method for each task of its model. Those that
//! compute from texts take the same [`TextOptions`]; `similarity` and `search` take embeddings.

mod answers;
mod classify;
mod entities;
mod fill_mask;
mod quantization;
mod sentences;
mod zero_shot;

pub use answers::Answer;
pub use classify::{Ranked, ScoredLabel};
pub use entities::{Aggregation, Entity};
#[cfg(feature = "train")]
pub(crate) use entities::{entity_spans, has_scheme, split, tag, word_starts};
pub use fill_mask::{FilledMask, FilledMasks};
pub use quantization::{EmbeddingPrecision, EmbeddingRanges, quantize_embeddings, to_vectors};

use crate::error::{Error, Result};
use crate::files::folder_of;
use crate::files::hub::{HubFiles, directory};
use crate::layers::{check_sizes, ensure, prepare_linear_layers};
use crate::model::{PretrainedModel, Prompts, Stored};
use crate::text::{BertTokenizer, Encoding, TextBatch};
use burn::prelude::*;
use std::borrow::Cow;
use std::path::Path;
use tokenizers::utils::parallelism::MaybeParallelRefIterator;

/// A model and its tokenizer, for inference: without dropout and gradients, whatever the device.
///
/// ```no_run
/// use burn::prelude::*;
/// use burn_bert::model::*;
/// use burn_bert::pipeline::{Pipeline, TextOptions};
///
/// let (device, options) = (Device::default(), TextOptions::new());
/// let classifier = Pipeline::<BertForSequenceClassification>::from_pretrained("path/to/classifier", &device)?;
/// let best = options.clone().with_top_k(1);
/// let labels = classifier.classify(&["A film to remember.", "Dull."], &best)?;
/// println!("{} ({:.2})", labels[0][0].label, labels[0][0].score);
///
/// let reranker = Pipeline::<BertForSequenceClassification>::from_pretrained("path/to/cross-encoder", &device)?;
/// let texts = ["Rain is expected in the evening.", "Bread needs flour, water and salt."];
/// let ranked = reranker.rank("What will the weather be like?", &texts, &options)?;
/// println!("{}", texts[ranked[0].index]);
///
/// let tagger = Pipeline::<BertForTokenClassification>::from_pretrained("path/to/tagger", &device)?;
/// println!("{:?}", tagger.entities(&["Ada Lovelace lived in London."], &options)?[0]);
///
/// let reader = Pipeline::<BertForQuestionAnswering>::from_pretrained("path/to/reader", &device)?;
/// let question = ("Who wrote the notes?", "Ada Lovelace translated the paper and wrote the notes.");
/// println!("{}", reader.answers(&[question], &options)?[0][0].text);
///
/// let masked = Pipeline::<BertForMaskedLm>::from_pretrained("path/to/bert", &device)?;
/// println!("{}", masked.fill_mask(&["The capital of [MASK] is Paris."], &options)?[0][0][0].word);
///
/// let embedder = Pipeline::<BertForSentenceEmbedding>::from_pretrained("path/to/embedder", &device)?;
/// let corpus = embedder.encode_document(&texts, &options)?;
/// let query = embedder.encode_query(&["What will the weather be like?"], &options)?;
/// println!("{}", texts[embedder.search(&query, &corpus, 1)?[0][0].index]);
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// Texts are cut to what the model reads, as by [`limit_tokenizer`](PretrainedModel::limit_tokenizer), and a warning of the crate
/// `log` says how many of a call were; [`Encoding::is_truncated`] says it of one. A text's results do not depend on the other texts
/// of a call. A pipeline is `Send` and `Sync`: threads can share one.
///
/// # Errors
///
/// Those of every method: [`Error::Config`] for an option that it does not read, or that is 0; those of
/// [`BertTokenizer::encode`] and of the model's forward pass; [`Error::Data`], naming the text, if a score is NaN or infinite.
#[derive(Clone, Debug)]
pub struct Pipeline<M> {
    model: M,
    tokenizer: BertTokenizer,
}

impl<M: Stored> Pipeline<M> {
    /// Reads a model and its tokenizer from a Hugging Face directory, or from a weights file with config and tokenizer beside it.
    /// Errors are those of the model's [`from_pretrained`](PretrainedModel::from_pretrained), of
    /// [`BertTokenizer::from_pretrained`] and of [`new`](Self::new), and [`Error::File`] if the checkpoint lacks the model's head.
    pub fn from_pretrained(path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        // Once: model and tokenizer are those of one commit.
        let path = path.as_ref();
        let dir = directory(path, HubFiles::Weights)?;
        let (model, report) = M::from_pretrained(&dir, device)?;
        if !report.is_complete() {
            let problem = format!(
                "has no {}, and a new head predicts nothing; fine-tune it first, or read model and tokenizer on their own \
                 and give them to Pipeline::new",
                report.missing.join(", ")
            );
            return Err(Error::file(path, problem));
        }
        Self::new(model, BertTokenizer::from_pretrained(folder_of(&dir))?)
    }

    /// A model and its tokenizer, also with a head that is newly initialised. The model is stored as inference:
    /// [`valid`](burn::module::Module::valid), and its linear layers [prepared](prepare_linear_layers). Errors are those of [`limit_tokenizer`](PretrainedModel::limit_tokenizer).
    pub fn new(model: M, tokenizer: BertTokenizer) -> Result<Self> {
        let tokenizer = model.limit_tokenizer(tokenizer)?;
        let inference = model.valid();
        // Its weights are packed one by one: those of `model` would keep them all in memory.
        drop(model);
        Ok(Self { model: prepare_linear_layers(inference), tokenizer })
    }

    /// The model, as inference.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The tokenizer, with the model's limits.
    pub fn tokenizer(&self) -> &BertTokenizer {
        &self.tokenizer
    }

    /// The model, which [`train`](burn::module::Module::train) makes trainable again, and the tokenizer.
    pub fn into_parts(self) -> (M, BertTokenizer) {
        (self.model, self.tokenizer)
    }

    /// Writes the model and the files of its tokenizer into `dir`, so that Python and
    /// [`from_pretrained`](Self::from_pretrained) read them. Packed weights are laid out for it, and stay so: for the fastest inference
    /// load what was saved, or give [`new`](Self::new) the [parts](Self::into_parts) again. Errors are those of
    /// [`BertTokenizer::save_pretrained`] and of the model's [`save_pretrained`](PretrainedModel::save_pretrained).
    pub fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        let dir = dir.as_ref();
        // First what fails more often: its source may be gone.
        self.tokenizer.save_pretrained(dir)?;
        self.model.save_pretrained(dir)
    }

    /// Gives `read` the windows of all texts, in batches: the index of the text of each, its tokens, and the batch.
    fn in_batches<T: Sync>(
        &self,
        texts: &[T],
        options: &TextOptions,
        encode: impl Fn(&T) -> Result<Vec<Encoding>> + Sync + Send,
        mut read: impl FnMut(&[usize], &[Encoding], &TextBatch) -> Result<()>,
    ) -> Result<()> {
        // Without reading the weight, which would initialise a lazy one.
        let device = self.model.bert().embeddings.word_embeddings.weight.lazy_device();
        let size = options.batch_size.unwrap_or(32);
        let mut cut = 0;
        // Part by part: the tokens of a million texts would fill the memory.
        for (part, texts) in texts.chunks(size).enumerate() {
            let windows: Vec<Result<Vec<Encoding>>> = texts.maybe_par_iter().map(&encode).collect();
            let (mut of_text, mut encodings) = (Vec::new(), Vec::new());
            for (index, windows) in (part * size..).zip(windows) {
                let windows = windows?;
                cut += usize::from(windows.iter().any(Encoding::is_truncated));
                encodings.extend(windows);
                of_text.resize(encodings.len(), index);
            }
            for (of_text, encodings) in of_text.chunks(size).zip(encodings.chunks(size)) {
                read(of_text, encodings, &self.tokenizer.batch(encodings, &device)?)?;
            }
        }
        self.warn_of_cut(cut, texts.len());
        Ok(())
    }

    /// Warns once per call.
    fn warn_of_cut(&self, cut: usize, texts: usize) {
        if let (1.., Some(length)) = (cut, self.tokenizer.model_max_length()) {
            log::warn!("{cut} of {texts} texts were cut at {length} tokens");
        }
    }

    /// What `found` makes of the windows of each text, given the index of the text, a window's tokens and its N·C logits, of
    /// which `logits` computes [B, N, C]; [`Error::Data`] if one is NaN or infinite.
    fn map_windows<T: Sync, R>(
        &self,
        texts: &[T],
        options: &TextOptions,
        encode: impl Fn(&T) -> Result<Vec<Encoding>> + Sync + Send,
        logits: impl Fn(&TextBatch) -> Result<Tensor<3>>,
        found: impl Fn(usize, &Encoding, &[f64]) -> R,
    ) -> Result<Vec<Vec<R>>> {
        let mut all: Vec<Vec<R>> = texts.iter().map(|_| Vec::new()).collect();
        self.in_batches(texts, options, encode, |of_text, encodings, batch| {
            let logits = logits(batch)?;
            let [_, rows, classes] = logits.dims();
            let logits: Vec<f64> = logits.into_data().iter().collect();
            let windows = of_text.iter().zip(encodings).zip(logits.chunks(rows * classes));
            for ((&text, encoding), logits) in windows {
                check_finite("scores", text, logits)?;
                all[text].push(found(text, encoding, logits));
            }
            Ok(())
        })?;
        Ok(all)
    }
}

/// NaN has no order: what is sorted by it is arbitrary.
fn check_finite(what: &str, text: usize, values: &[f64]) -> Result<()> {
    if values.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(not_finite(what, text)) }
}

fn not_finite(what: &str, text: usize) -> Error {
    let problem = "are not finite; is the model trained, and are its values finite?";
    Error::data(format!("the {what} of text {text}"), problem)
}

/// The indices of the `k` largest values, the largest first; of equal ones, the first.
fn largest(values: &[f64], k: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..values.len()).collect();
    let order = |&a: &usize, &b: &usize| values[b].total_cmp(&values[a]).then(a.cmp(&b));
    // Only those are sorted: a vocabulary or a corpus is long.
    if k < indices.len() {
        indices.select_nth_unstable_by(k, order);
        indices.truncate(k);
    }
    indices.sort_unstable_by(order);
    indices
}

/// Probabilities of scores: exp(xᵢ) / Σ exp(xⱼ).
fn softmax(logits: &[f64]) -> Vec<f64> {
    // The largest is taken out: exp overflows above 709.
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = logits.iter().map(|logit| (logit - largest).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.into_iter().map(|exponential| exponential / sum).collect()
}

/// Gives [`TextOptions`] each field with its setter, and a list of them by name.
macro_rules! options {
    ($($(#[$doc:meta])* $setter:ident($field:ident: $value:ty);)*) => {
        /// Options of the methods of a [`Pipeline`]. What is not set has the default of the task; what is set and not read by
        /// a task is an [`Error::Config`] there, which names both.
        #[derive(Clone, Debug, Default)]
        pub struct TextOptions {
            $($field: Option<$value>,)*
            prompt: Option<Prompt>,
        }

        impl TextOptions {
            $($(#[$doc])* pub fn $setter(self, $field: $value) -> Self {
                Self { $field: Some($field), ..self }
            })*

            /// Which of the options that not every task reads are set.
            fn set(&self) -> impl Iterator<Item = &'static str> {
                [$((stringify!($field), self.$field.is_some()),)* ("prompt", self.prompt.is_some())]
                    .into_iter()
                    .filter_map(|(field, is_set)| (is_set && field != "batch_size").then_some(field))
            }
        }
    };
}

options! {
    /// How many texts, or windows of long texts, are read at once; by default 32. Read by every task.
    with_batch_size(batch_size: usize);
    /// How many results a text has at most, the best first. By default: all labels and ranks, 20 answers, 5 words.
    with_top_k(top_k: usize);
    /// `classify`, `classify_zero_shot`: the probability in [0, 1] from which on a label [is predicted](ScoredLabel::is_predicted), in
    /// place of the model's.
    with_threshold(threshold: f64);
    /// `entities`, `answers`: how many tokens neighbouring windows of a long text share.
    with_stride(stride: usize);
    /// `entities`: how the predictions for tokens become entities; by default [`Aggregation::Words`].
    with_aggregation(aggregation: Aggregation);
    /// `entities`: labels that are not returned, without their prefix if predictions are aggregated; by default `O`.
    with_ignored_labels(ignored_labels: Vec<String>);
    /// `answers`: the maximum length of an answer, in tokens; by default 30.
    with_max_answer_len(max_answer_len: usize);
    /// `answers`: the answer may be that there is none, if the logit of no answer exceeds that of the best answer by more than
    /// this (`null_score_diff_threshold`; SQuAD 2's default is 0).
    with_no_answer_threshold(no_answer_threshold: f64);
    /// Sentence embeddings: how many values of each are kept; by default the model's
    /// [`truncate_dim`](crate::model::BertForSentenceEmbeddingConfig::truncate_dim).
    with_truncate_dim(truncate_dim: usize);
    /// Sentence embeddings: whether each is scaled to length 1 after it was cut (`normalize_embeddings`); by default it is left as
    /// the model and `truncate_dim` make it.
    with_normalize(normalize: bool);
    /// Sentence embeddings: whether LayerNorm without parameters is applied before the cut, as nomic-embed-text-v1.5 wants it.
    with_layer_norm(layer_norm: bool);
    /// `fill_mask`: the words that are scored, in place of the whole vocabulary; of a word of several tokens the first.
    with_targets(targets: Vec<String>);
    /// `classify_zero_shot`: the hypothesis, with the label in place of `{}`; by default `This example is {}.`.
    with_hypothesis_template(hypothesis_template: String);
    /// `classify_zero_shot`: whether several labels may be right, each with a probability of its own; by default one is.
    with_multi_label(multi_label: bool);
}

#[derive(Clone, Debug)]
enum Prompt {
    Name(String),
    Text(String),
}

impl TextOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sentence embeddings and `rank`: a text that is put before each text, or before the query, in place of the model's.
    pub fn with_prompt(self, prompt: impl Into<String>) -> Self {
        Self { prompt: Some(Prompt::Text(prompt.into())), ..self }
    }

    /// A prompt in the place of [`with_prompt`](Self::with_prompt)'s: the one of the model's [`Prompts`] that has this name.
    pub fn with_prompt_name(self, name: impl Into<String>) -> Self {
        Self { prompt: Some(Prompt::Name(name.into())), ..self }
    }

    fn check(&self, task: &str, reads: &[&str]) -> Result<()> {
        if let Some(field) = self.set().find(|field| !reads.contains(field)) {
            let problem = format!("is set, but {task} does not read it; leave it out");
            return Err(Error::config(field, problem));
        }
        let threshold = self.threshold.unwrap_or(0.5);
        ensure((0.0..=1.0).contains(&threshold), "threshold", || {
            format!("is {threshold}, but must lie in [0, 1]")
        })?;
        let sizes = [
            ("batch_size", self.batch_size),
            ("top_k", self.top_k),
            ("max_answer_len", self.max_answer_len),
            ("truncate_dim", self.truncate_dim),
        ];
        check_sizes(sizes.map(|(field, size)| (field, size.unwrap_or(1), usize::MAX)))
    }

    /// What is put before texts; [`Error::Config`] if there is no prompt of the name that was asked for.
    fn prompt<'a>(&'a self, own: &'a Prompts, default: &'a str) -> Result<&'a str> {
        match &self.prompt {
            None => Ok(default),
            Some(Prompt::Name(name)) => own.text(Some(name)),
            Some(Prompt::Text(text)) => Ok(text),
        }
    }
}

/// What comes before texts, in training as in use: a prompt, and how many tokens of it are not pooled.
#[derive(Clone, Default)]
pub(crate) struct Prefix {
    prompt: String,
    pub(crate) length: usize,
}

impl Prefix {
    pub(crate) fn new(prompt: &str, is_pooled: bool, tokenizer: &BertTokenizer) -> Result<Self> {
        let prompt = prompt.to_string();
        if is_pooled || prompt.is_empty() {
            return Ok(Self { prompt, length: 0 });
        }
        let ids = tokenizer.encode(&prompt)?;
        let ids = ids.input_ids();
        // The separator at the end stands after the text, not after the prompt.
        let ends_special = ids.last().is_some_and(|last| tokenizer.special_token_ids().contains(last));
        Ok(Self { prompt, length: ids.len() - usize::from(ends_special) })
    }

    /// Puts the prompt before a text, as [`text`](Self::text) does, in place.
    #[cfg(feature = "train")]
    pub(crate) fn put_before(&self, text: &mut String) {
        if !text.starts_with(&self.prompt) {
            text.insert_str(0, &self.prompt);
        }
    }

    /// Prompt and text; a text that begins with the prompt stays as it is.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match text.starts_with(&self.prompt) {
            true => Cow::Borrowed(text),
            false => Cow::Owned(format!("{}{text}", self.prompt)),
        }
    }
}
