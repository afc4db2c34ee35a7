//! Training data: files, datasets, collators and loaders.
//!
//! A [`MaskedLmCollator`] masks some tokens of a batch, and [`BertForMaskedLm`](crate::model::BertForMaskedLm) predicts them
//! (Devlin et al. 2019, section 3.1).
//!
//! For Burn's `SupervisedTraining` (features `tokenizers` and `train`):
//!
//! | | masked language modelling | classification | question answering | sentence embeddings |
//! |---|---|---|---|---|
//! | data | `Corpus` | `LabelledTexts`, `LabelledSentences` | `SquadExample`, `QuestionWindows` | `SentencePairs` |
//! | batches | [`MaskedLmCollator`] | `SequenceBatcher`, `TokenBatcher` | `QuestionWindowBatcher` | `SentencePairBatcher` |
//! | loader | `EpochLoader` | `EpochLoader` | `EpochLoader` | `EpochLoader` |
//! | metrics beside Burn's | | `ConfusionMetric`, `EntityMetric`, `SpearmanMetric` | `SquadScores` | `SpearmanMetric`, `RetrievalMetric`, `TripletMetric` |

#[cfg(all(feature = "tokenizers", feature = "train"))]
mod classes;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod corpus;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod epoch_loader;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod epoch_order;
#[cfg(feature = "train")]
mod label;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod labelled_file;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod labelled_sentences;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod labelled_texts;
mod masked_lm_collator;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod sentence_pairs;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod squad;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod try_batcher;

#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use corpus::Corpus;
#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use epoch_loader::EpochLoader;
#[cfg(feature = "train")]
pub use label::{Label, LabelKind, LabelNames};
#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use labelled_file::Column;
#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use labelled_sentences::{IGNORED_LABEL, LabelledSentences, LabelledTokens, TokenBatcher};
#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use labelled_texts::{LabelledText, LabelledTexts, SequenceBatcher, TextColumns};
pub use masked_lm_collator::{MaskedLmCollator, MaskedLmCollatorConfig, MaskedLmExample};
#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use sentence_pairs::{SentenceColumns, SentencePair, SentencePairBatcher, SentencePairs};
#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use squad::{QuestionWindow, QuestionWindowBatcher, QuestionWindows, SquadExample};
#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use try_batcher::TryBatcher;
