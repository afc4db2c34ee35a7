//! BERT and its heads, from Hugging Face checkpoints and back.

mod bert;
mod config;
#[cfg(feature = "checkpoint")]
mod keys;
mod masked_lm;
mod masked_lm_batch;
mod masked_lm_head;
#[cfg(feature = "checkpoint")]
mod masked_lm_stored;
mod pooling;
#[cfg(feature = "checkpoint")]
mod pretrained;
#[cfg(feature = "checkpoint")]
mod report;
#[cfg(feature = "checkpoint")]
mod stored;

pub use bert::{BertModel, BertModelOutput, BertPooler};
pub use config::BertModelConfig;
pub use masked_lm::{BertForMaskedLm, BertForMaskedLmConfig, MaskedLmOutput};
pub use masked_lm_batch::MaskedLmBatch;
pub(crate) use masked_lm_batch::MaskedTokens;
pub use masked_lm_head::MaskedLmHead;
pub use pooling::mean_pooled;
#[cfg(feature = "checkpoint")]
pub use pretrained::PretrainedModel;
#[cfg(feature = "checkpoint")]
pub use report::LoadReport;
