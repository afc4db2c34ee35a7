//! BERT and its heads, from Hugging Face checkpoints and back.

mod bert;
mod config;
mod keys;
mod masked_lm;
mod masked_lm_batch;
mod masked_lm_head;
mod masked_lm_stored;
mod pooling;
mod pretrained;
mod report;
mod stored;

pub use bert::{BertModel, BertModelOutput, BertPooler};
pub use config::BertModelConfig;
pub use masked_lm::{BertForMaskedLm, BertForMaskedLmConfig, MaskedLmOutput};
pub use masked_lm_batch::MaskedLmBatch;
pub(crate) use masked_lm_batch::MaskedTokens;
pub use masked_lm_head::MaskedLmHead;
pub use pooling::mean_pooled;
pub use pretrained::PretrainedModel;
pub use report::LoadReport;
