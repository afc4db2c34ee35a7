//! Training: data, batches and Burn's trainer.
//!
//! In masked language modelling a [`MaskedLmCollator`] masks some tokens of a batch,
//! [`BertForMaskedLm`](crate::model::BertForMaskedLm) predicts them, and the loss is the mean cross-entropy over the
//! masked tokens (Devlin et al. 2019, section 3.1).
//!
//! ```
//! use burn::optim::GradientsParams;
//! use burn::prelude::*;
//! use burn_bert::BertEmbeddingsConfig;
//! use burn_bert::model::{BertForMaskedLmConfig, BertModelConfig};
//! use burn_bert::optim::{AdamWConfig, adamw};
//! use burn_bert::training::{MaskedLmCollatorConfig, MaskedLmExample};
//!
//! let device = Device::default().autodiff();
//! device.seed(1);
//! let embeddings = BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(16);
//! let bert = BertModelConfig::new(embeddings)
//!     .with_num_hidden_layers(1)
//!     .with_num_attention_heads(2)
//!     .with_intermediate_size(32);
//! let mut model = BertForMaskedLmConfig::new(bert).init(&device);
//! let mut optimizer = adamw(&AdamWConfig::new()); // no decay on biases and LayerNorm
//!
//! // Ids: 0 [PAD], 1 [CLS], 2 [SEP], 3 [MASK], words from 4 on.
//! let collator = MaskedLmCollatorConfig::new(20, 3, 0, vec![0, 1, 2, 3]).init();
//! let sentences = [vec![1, 7, 4, 9, 2], vec![1, 5, 2]].map(MaskedLmExample::new);
//! for step in 0..2 {
//!     let batch = collator.collate(&sentences, step, &device)?;
//!     let output = model.forward(&batch);
//!     let gradients = GradientsParams::from_grads(output.loss.backward(), &model);
//!     model = optimizer.step(1e-3, model, gradients);
//! }
//! # Ok::<(), burn_bert::Error>(())
//! ```
//!
//! For Burn's `SupervisedTraining` (features `tokenizers` and `train`):
//!
//! | | masked language modelling | classification | question answering | sentence embeddings |
//! |---|---|---|---|---|
//! | data | `Corpus` | `LabelledTexts`, `LabelledSentences` | `SquadExample`, `QuestionWindows` | `SentencePairs` |
//! | batches | [`MaskedLmCollator`] | `SequenceBatcher`, `TokenBatcher` | `QuestionWindowBatcher` | `SentencePairBatcher` |
//! | loaders | `TrainingLoader`, `ValidationLoader` | `LabelledLoader` | `LabelledLoader` | `LabelledLoader` |
//! | metrics beside Burn's | | `ConfusionMetric`, `EntityMetric`, `SpearmanMetric` | `SquadScores` | `SpearmanMetric`, `RetrievalMetric`, `TripletMetric` |
//!
//! `Training` makes any model trainable by Burn's `Learner`; `Run`, `Patience` and `progress` are for stopping, resuming and
//! showing a run.

#[cfg(feature = "train")]
mod checkpoints;
#[cfg(feature = "train")]
mod classification;
mod collator;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod corpus;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod epochs;
#[cfg(feature = "train")]
mod label_names;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod labelled;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod loader;
#[cfg(feature = "train")]
mod losses;
#[cfg(feature = "train")]
mod metrics;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod prefetch;
#[cfg(feature = "train")]
mod progress;
#[cfg(feature = "train")]
mod run;
#[cfg(feature = "train")]
mod sentence_embedding;
#[cfg(feature = "train")]
mod step;

#[cfg(feature = "train")]
pub use classification::{SequenceClassificationItem, TokenClassificationItem};
pub use collator::{MaskedLmCollator, MaskedLmCollatorConfig, MaskedLmExample};
#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use corpus::Corpus;
#[cfg(feature = "train")]
pub use label_names::LabelNames;
#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use labelled::{
    Column, IGNORED_LABEL, Label, LabelKind, LabelledLoader, LabelledSentences, LabelledText, LabelledTexts,
    LabelledTokens, QuestionWindow, QuestionWindowBatcher, QuestionWindows, SentenceColumns, SentencePair,
    SentencePairBatcher, SentencePairs, SequenceBatcher, SquadExample, SquadScores, TextColumns,
    TokenBatcher, TryBatcher,
};
#[cfg(all(feature = "tokenizers", feature = "train"))]
pub use loader::{TrainingLoader, ValidationLoader};
#[cfg(feature = "train")]
pub use losses::Losses;
#[cfg(feature = "train")]
pub use metrics::{
    ConfusionMatrix, ConfusionMetric, EntityCounts, EntityInput, EntityMetric, EntityScores, RetrievalInput,
    RetrievalMetric, RetrievalScores, SpearmanInput, SpearmanMetric, TripletInput, TripletMetric, spearman,
};
#[cfg(feature = "train")]
pub use progress::{ProgressLines, progress};
#[cfg(feature = "train")]
pub use run::{Patience, Run};
#[cfg(feature = "train")]
pub use sentence_embedding::SentenceEmbeddingItem;
#[cfg(feature = "train")]
pub use step::Training;
