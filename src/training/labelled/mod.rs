//! Labelled data: files, batches and their loader.

/// Makes a type with a list of items a dataset of Burn's.
macro_rules! in_memory {
    ($dataset:ident.$items:ident: $item:ident) => {
        impl burn::data::dataset::Dataset<$item> for $dataset {
            fn get(&self, index: usize) -> Result<$item, burn::data::dataset::DatasetError> {
                Ok(self.$items[index].clone())
            }

            fn len(&self) -> usize {
                self.$items.len()
            }
        }
    };
}

mod batcher;
mod file;
mod label;
mod loader;
mod rows;
mod sentences;
mod squad;
mod squad_windows;
mod texts;
mod tokens;

pub use batcher::{IGNORED_LABEL, SequenceBatcher, TokenBatcher, TryBatcher};
pub use label::{Label, LabelKind};
pub use loader::LabelledLoader;
pub use rows::Column;
pub use sentences::{SentenceColumns, SentencePair, SentencePairBatcher, SentencePairs};
pub use squad::{SquadExample, SquadScores};
pub use squad_windows::{QuestionWindow, QuestionWindowBatcher, QuestionWindows};
pub use texts::{LabelledText, LabelledTexts, TextColumns};
pub use tokens::{LabelledSentences, LabelledTokens};
