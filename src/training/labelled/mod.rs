//! Labelled data: files, batches and their loader.

mod batcher;
mod file;
mod label;
mod loader;
mod pairs;
mod sentences;
mod squad;
mod squad_windows;
mod table;
mod texts;
mod tokens;

pub use batcher::{IGNORED_LABEL, SequenceBatcher, TokenBatcher, TryBatcher};
pub use label::{Label, LabelKind};
pub use loader::LabelledLoader;
pub use pairs::{SentencePair, SentencePairBatcher};
pub use sentences::{SentenceColumns, SentencePairs};
pub use squad::{SquadExample, SquadScores};
pub use squad_windows::{QuestionWindow, QuestionWindowBatcher, QuestionWindows};
pub use texts::{Column, LabelledText, LabelledTexts, TextColumns};
pub use tokens::{LabelledSentences, LabelledTokens};
