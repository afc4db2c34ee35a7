//! A model with its tokenizer: texts in, labels, entities, answers, words and embeddings out.
//!
//! A [`Pipeline`] is loaded from a directory, used and saved as one thing; it has a method for each task of its model, all of
//! which take the same [`TextOptions`]:
//!
//! | model | methods |
//! |---|---|
//! | [`BertForSequenceClassification`](crate::model::BertForSequenceClassification) | `classify`, and `rank` with one label |
//! | [`BertForTokenClassification`](crate::model::BertForTokenClassification) | `entities` |
//! | [`BertForQuestionAnswering`](crate::model::BertForQuestionAnswering) | `answers` |
//! | [`BertForMaskedLm`](crate::model::BertForMaskedLm) | `fill_mask` |
//! | [`BertForSentenceEmbedding`](crate::model::BertForSentenceEmbedding) | `encode`, `encode_query`, `encode_document`, `similarity`, `search` |

mod answers;
mod batches;
mod classify;
mod entities;
mod fill_mask;
mod sentences;
mod text_options;

pub use answers::Answer;
pub use classify::{Ranked, ScoredLabel};
pub use entities::Entity;
pub use fill_mask::FilledMask;
pub use text_options::{Aggregation, TextOptions};

use crate::error::{Error, Result};
use crate::files::directory_of;
use crate::model::{PretrainedModel, Stored};
use crate::text::BertTokenizer;
use burn::prelude::*;
use std::path::Path;

/// A model and its tokenizer, for inference: without dropout and gradients, whatever the device.
///
/// ```no_run
/// use burn::prelude::*;
/// use burn_bert::model::BertForSequenceClassification;
/// use burn_bert::pipeline::{Pipeline, TextOptions};
///
/// let device = Device::default();
/// let pipeline = Pipeline::<BertForSequenceClassification>::from_pretrained("path/to/classifier", &device)?;
/// let found = pipeline.classify(&["A film to remember.", "Dull."], &TextOptions::new())?;
/// println!("{} ({:.2})", found[0][0].label, found[0][0].score);
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// Texts are cut to what the model reads, as by [`limit_tokenizer`](PretrainedModel::limit_tokenizer). A text's results do
/// not depend on the others beside it.
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
    /// Reads a model and its tokenizer from a Hugging Face directory.
    ///
    /// # Errors
    ///
    /// Those of the model's [`from_pretrained`](PretrainedModel::from_pretrained), of
    /// [`BertTokenizer::from_pretrained`] and of [`new`](Self::new); [`Error::File`] if the checkpoint lacks the model's head.
    pub fn from_pretrained(path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        let path = path.as_ref();
        let (model, report) = M::from_pretrained(path, device)?;
        if !report.is_complete() {
            let problem = format!(
                "has no {}, and a new head predicts nothing; fine-tune it first, or read model and tokenizer on their own \
                 and give them to Pipeline::new",
                report.missing.join(", ")
            );
            return Err(Error::file(path, problem));
        }
        // Beside a weights file, which a model can be read from.
        let dir = if path.is_file() { directory_of(path) } else { path };
        Self::new(model, BertTokenizer::from_pretrained(dir)?)
    }

    /// A model and its tokenizer, also with a head that is newly initialised. The model is stored as inference:
    /// [`valid`](burn::module::Module::valid).
    ///
    /// # Errors
    ///
    /// Those of [`limit_tokenizer`](PretrainedModel::limit_tokenizer).
    pub fn new(model: M, tokenizer: BertTokenizer) -> Result<Self> {
        let tokenizer = model.limit_tokenizer(tokenizer)?;
        Ok(Self { model: model.valid(), tokenizer })
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
    /// [`from_pretrained`](Self::from_pretrained) read them.
    ///
    /// # Errors
    ///
    /// Those of [`BertTokenizer::save_pretrained`] and of the model's
    /// [`save_pretrained`](PretrainedModel::save_pretrained).
    pub fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        let dir = dir.as_ref();
        // First what fails more often: its source may be gone.
        self.tokenizer.save_pretrained(dir)?;
        self.model.save_pretrained(dir)
    }
}
