//! Training data: files, datasets, collators and loaders.
//!
//! `Batches` pairs a dataset with what makes its batches, which an `EpochLoader` reads (feature `train`):
//!
//! | | masked language modelling | classification | question answering | sentence embeddings |
//! |---|---|---|---|---|
//! | data | `PlainText`, `TextWindows` | `LabelledTexts`, `LabelledSentences` | `SquadExample`, `QuestionWindow` | `SentencePairs` |
//! | batches | [`MaskedLmCollator`] | `LabelledText::batch`, `TokenWindow::batch` | `QuestionWindow::batch` | `SentencePair::batch` |
//! | metrics besides Burn's | | `ConfusionMetric`, `EntityMetric`, `SpearmanMetric` | `SquadScores` | `SpearmanMetric`, `RetrievalMetric`, `TripletMetric` |

#[cfg(feature = "train")]
mod batches;
#[cfg(feature = "train")]
mod epoch_loader;
#[cfg(feature = "train")]
mod examples;
#[cfg(feature = "train")]
mod labelled_file;
#[cfg(feature = "train")]
mod labelled_sentences;
#[cfg(feature = "train")]
mod labelled_texts;
#[cfg(feature = "train")]
mod labels;
mod masked_lm_collator;
#[cfg(feature = "train")]
mod plain_text;
#[cfg(feature = "train")]
mod sentence_pairs;
#[cfg(feature = "train")]
mod squad;
#[cfg(feature = "train")]
mod token_window;

#[cfg(feature = "train")]
pub(crate) use epoch_loader::steps;
pub use masked_lm_collator::{MaskedLmCollator, MaskedLmCollatorConfig, MaskedLmExample};
#[cfg(feature = "train")]
pub use {
    batches::Batches,
    epoch_loader::{Epoch, EpochLoader},
    examples::{DataSummary, Example, Examples},
    labelled_file::{Column, Columns},
    labelled_sentences::{IGNORED_LABEL, LabelledSentences, LabelledTokens},
    labelled_texts::{LabelledText, LabelledTexts},
    labels::{Label, LabelKind},
    plain_text::{PlainText, TextWindows},
    sentence_pairs::{SentencePair, SentencePairs},
    squad::{QuestionWindow, SquadExample},
    token_window::TokenWindow,
};
