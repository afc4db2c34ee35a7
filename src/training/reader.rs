//! What datasets read while they become batches, and say of themselves.

use super::arguments::{TrainingArguments, TrainingPrompts};
use super::callback::check_not_stopped;
use crate::data::{Example, Examples};
use crate::error::Result;
use crate::layers::ensure;
use crate::model::{Prompts, Stored};
use crate::pipeline::Prefix;
use crate::text::BertTokenizer;
use burn::data::dataset::Dataset;
use burn::train::Interrupter;
use std::cell::RefCell;

/// What a dataset needs to know to make batches for a [`Trainer`](super::Trainer): model, tokenizer and settings.
pub struct Reader<'a, M> {
    /// The model.
    pub model: &'a M,
    /// The model's tokenizer, limited to what the model reads and to [`max_length`](TrainingArguments::max_length).
    pub tokenizer: BertTokenizer,
    /// The settings.
    pub arguments: &'a TrainingArguments,
    interrupter: &'a Interrupter,
    /// What is said of the data.
    notes: RefCell<Vec<String>>,
}

impl<'a, M: Stored> Reader<'a, M> {
    /// Limits the tokenizer to the `max_length` of the arguments, if they have one that the model reads.
    pub(super) fn new(
        model: &'a M,
        tokenizer: &BertTokenizer,
        arguments: &'a TrainingArguments,
        interrupter: &'a Interrupter,
    ) -> Result<Self> {
        let mut tokenizer = tokenizer.clone();
        if let Some(length) = arguments.max_length {
            let limit = model.bert().embeddings.config().max_sequence_length();
            // The shortest text: a token between [CLS] and [SEP].
            let is_readable = length >= 3 && limit.is_none_or(|limit| length <= limit);
            let allowed = || match limit {
                Some(limit) => format!("3 to {limit}, what the model can read"),
                None => "at least 3".into(),
            };
            let problem = || format!("is {length}, but must be {}", allowed());
            ensure(is_readable, "max_length", problem)?;
            tokenizer = tokenizer.with_model_max_length(length);
        }
        Ok(Self { model, tokenizer, arguments, interrupter, notes: RefCell::default() })
    }
}

impl<M> Reader<'_, M> {
    /// What returns an error once the run is stopped, for work that takes long.
    pub(super) fn check(&self) -> impl Fn() -> Result<()> + Sync {
        let interrupter = self.interrupter;
        move || check_not_stopped(interrupter)
    }

    pub(super) fn note(&self, note: String) {
        self.notes.borrow_mut().push(note);
    }

    /// Says how many examples have a text that is cut, given which have; all are tokenised for it, unless nobody reads it.
    pub(super) fn note_cut<T: Example>(
        &self,
        examples: &Examples<T>,
        is_cut: impl Fn(&T) -> Result<bool> + Sync + Send,
    ) -> Result<()> {
        let length = self.tokenizer.model_max_length().filter(|_| self.arguments.is_heard());
        let Some(length) = length else { return Ok(()) };
        let cut = examples.count(&self.check(), is_cut)?;
        if cut > 0 {
            self.note(format!("{cut} of {} {} are cut at {length} tokens", examples.len(), T::NAME));
        }
        Ok(())
    }

    /// The prompts of the columns, given those of the model; says which they are, or that the model's are not used.
    pub(super) fn prompts(&self, own: &Prompts, include_prompt: bool, columns: usize) -> Result<Vec<Prefix>> {
        let texts: Vec<&str> = match &self.arguments.prompts {
            None => {
                if !own.names().is_empty() {
                    let names = own.names();
                    self.note(format!("the model's prompts {names:?} are not used; with_prompts puts them"));
                }
                return Ok(Vec::new());
            }
            Some(TrainingPrompts::Texts(texts)) => texts.iter().map(String::as_str).collect(),
            Some(TrainingPrompts::Names(names)) => {
                names.iter().map(|name| own.text(Some(name))).collect::<Result<_>>()?
            }
        };
        ensure((1..=columns).contains(&texts.len()), "prompts", || {
            format!("are {}, but must be 1 to {columns}, one for each column of texts", texts.len())
        })?;
        self.note(format!("prompts, by column: {texts:?}"));
        texts.into_iter().map(|prompt| Prefix::new(prompt, include_prompt, &self.tokenizer)).collect()
    }

    /// What was said.
    pub(super) fn into_notes(self) -> Vec<String> {
        self.notes.into_inner()
    }
}
