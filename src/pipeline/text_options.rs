//! What a user says of a task, beside the texts.

use crate::error::{Error, Result};
use crate::layers::check_sizes;
use crate::model::Prompts;

const BATCH_SIZE: usize = 32;

/// How the predictions for tokens become entities: transformers' aggregation strategies. See
/// [`Pipeline::entities`](super::Pipeline::entities).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// Each token is an entity, whose label has its prefix, such as `B-PER`.
    None,
    /// Adjacent tokens of one type are an entity, up to the next `B-`. The tokens of a word may be in different ones.
    Simple,
    /// A word has the label and the score of its first token; adjacent words of one type are an entity. For models whose
    /// training labelled the first token of each word, as a `TokenBatcher` does.
    #[default]
    First,
    /// A word has the label with the highest mean score over its tokens.
    Average,
    /// A word has the label and the score of its token with the highest score.
    Max,
}

/// Gives [`TextOptions`] each field with its setter, and a list of them by name.
macro_rules! options {
    ($($(#[$doc:meta])* $setter:ident($field:ident: $value:ty);)*) => {
        /// Options of the methods of a [`Pipeline`](super::Pipeline). What is not set has the default of the task.
        ///
        /// ```
        /// use burn_bert::pipeline::TextOptions;
        ///
        /// let options = TextOptions::new().with_batch_size(8).with_top_k(3);
        /// # let _ = options;
        /// ```
        ///
        /// An option that is set and that a task does not read is an error there: [`Error::Config`] names both.
        #[derive(Clone, Debug, Default)]
        pub struct TextOptions {
            $(pub(super) $field: Option<$value>,)*
            pub(super) prompt: Option<Prompt>,
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
    /// `entities`, `answers`: how many tokens neighbouring windows of a long text share.
    with_stride(stride: usize);
    /// `entities`: how the predictions for tokens become entities; by default [`Aggregation::First`].
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
}

#[derive(Clone, Debug)]
pub(super) enum Prompt {
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

    /// As [`with_prompt`](Self::with_prompt), which it replaces: the one of the model's [`Prompts`] that has this name.
    pub fn with_prompt_name(self, name: impl Into<String>) -> Self {
        Self { prompt: Some(Prompt::Name(name.into())), ..self }
    }

    /// [`Error::Config`] if an option is set that `task` does not read, or a size is 0.
    pub(super) fn check(&self, task: &str, reads: &[&str]) -> Result<()> {
        if let Some(field) = self.set().find(|field| !reads.contains(field)) {
            let problem = format!("is set, but {task} does not read it; leave it out");
            return Err(Error::config(field, problem));
        }
        check_sizes(
            [
                ("batch_size", self.batch_size),
                ("top_k", self.top_k),
                ("max_answer_len", self.max_answer_len),
                ("truncate_dim", self.truncate_dim),
            ]
            .map(|(field, size)| (field, size.unwrap_or(1), usize::MAX)),
        )
    }

    pub(super) fn batch_size(&self) -> usize {
        self.batch_size.unwrap_or(BATCH_SIZE)
    }

    /// What is put before texts; [`Error::Config`] if there is no prompt of the name that was asked for.
    pub(super) fn prompt<'a>(&'a self, own: &'a Prompts, default: Result<&'a str>) -> Result<&'a str> {
        match &self.prompt {
            None => default,
            Some(Prompt::Name(name)) => own.text(Some(name)),
            Some(Prompt::Text(text)) => Ok(text),
        }
    }
}
