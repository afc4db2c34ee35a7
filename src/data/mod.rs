//! Training data: files, datasets, collators and loaders.
//!
//! An `EpochLoader` reads them for Burn's `SupervisedTraining` (feature `train`):
//!
//! | | masked language modelling | classification | question answering | sentence embeddings |
//! |---|---|---|---|---|
//! | data | `PlainText`, `TextWindows` | `LabelledTexts`, `LabelledSentences` | `SquadExample`, `QuestionWindow` | `SentencePairs` |
//! | batches | [`MaskedLmCollator`] | `SequenceBatcher`, `TokenBatcher` | `QuestionWindowBatcher` | `SentencePairBatcher` |
//! | metrics besides Burn's | | `ConfusionMetric`, `EntityMetric`, `SpearmanMetric` | `SquadScores` | `SpearmanMetric`, `RetrievalMetric`, `TripletMetric` |

/// A [`TryBatcher`] that needs a tokenizer alone.
#[cfg(feature = "train")]
macro_rules! tokenizing {
    ($(#[$docs:meta])* $batcher:ident: $item:ty => $batch:ty) => {
        $(#[$docs])*
        #[derive(Clone, Debug)]
        pub struct $batcher {
            tokenizer: crate::text::BertTokenizer,
        }

        impl $batcher {
            /// Batches for the model that the tokenizer belongs to.
            pub fn new(tokenizer: crate::text::BertTokenizer) -> Self {
                Self { tokenizer }
            }
        }

        batcher!($batcher: $item => $batch);
    };
}

/// Implements Burn's `Batcher` for a [`TryBatcher`].
#[cfg(feature = "train")]
macro_rules! batcher {
    ($batcher:ident: $item:ty => $batch:ty) => {
        /// For Burn's `DataLoaderBuilder`; panics where [`try_batch`](TryBatcher::try_batch) returns an error.
        impl burn::data::dataloader::batcher::Batcher<$item, $batch> for $batcher {
            fn batch(&self, items: Vec<$item>, device: &Device) -> $batch {
                self.try_batch(items, device).unwrap_or_else(|error| panic!("{error}"))
            }
        }
    };
}

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
pub(crate) use batches::steps;
pub use masked_lm_collator::{MaskedLmCollator, MaskedLmCollatorConfig, MaskedLmExample};
#[cfg(feature = "train")]
pub use {
    batches::{Batches, TryBatcher},
    epoch_loader::EpochLoader,
    examples::Examples,
    labelled_file::{Column, Columns},
    labelled_sentences::{IGNORED_LABEL, LabelledSentences, LabelledTokens, TokenBatcher},
    labelled_texts::{LabelledText, LabelledTexts, SequenceBatcher},
    labels::{Label, LabelKind},
    plain_text::{PlainText, TextWindows},
    sentence_pairs::{SentencePair, SentencePairBatcher, SentencePairs},
    squad::{QuestionWindow, QuestionWindowBatcher, SquadExample},
};
