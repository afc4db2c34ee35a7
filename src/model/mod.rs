//! BERT and its heads, from Hugging Face checkpoints and back.

mod bert;
mod classification_batch;
#[cfg(feature = "checkpoint")]
mod classification_stored;
mod config;
#[cfg(feature = "checkpoint")]
mod keys;
mod labels;
mod loss;
mod masked_lm;
mod masked_lm_batch;
mod masked_lm_head;
#[cfg(feature = "checkpoint")]
mod masked_lm_stored;
mod pooling;
mod precision;
#[cfg(feature = "checkpoint")]
mod pretrained;
mod ranking_loss;
#[cfg(feature = "checkpoint")]
mod report;
mod sentence_embedding;
mod sentence_pair_batch;
#[cfg(feature = "checkpoint")]
mod sentence_stored;
mod sequence_classification;
#[cfg(feature = "checkpoint")]
mod stored;
mod token_classification;

pub use bert::{BertModel, BertModelOutput, BertPooler};
pub use classification_batch::{SequenceClassificationBatch, TokenClassificationBatch};
pub use config::BertModelConfig;
pub use masked_lm::{BertForMaskedLm, BertForMaskedLmConfig, MaskedLmOutput};
pub use masked_lm_batch::MaskedLmBatch;
pub use masked_lm_head::MaskedLmHead;
pub use pooling::{Pooling, mean_pooled};
#[cfg(feature = "checkpoint")]
pub use pretrained::PretrainedModel;
pub use ranking_loss::MultipleNegativesRankingLoss;
#[cfg(feature = "checkpoint")]
pub use report::LoadReport;
pub use sentence_embedding::{
    BertForSentenceEmbedding, BertForSentenceEmbeddingConfig, SentenceEmbeddingOutput,
};
pub use sentence_pair_batch::SentencePairBatch;
pub use sequence_classification::{
    BertForSequenceClassification, BertForSequenceClassificationConfig, ProblemType,
    SequenceClassificationHead, SequenceClassifierOutput,
};
pub use token_classification::{
    BertForTokenClassification, BertForTokenClassificationConfig, TokenClassifierOutput,
};
