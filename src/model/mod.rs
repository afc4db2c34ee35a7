//! BERT and its heads, from Hugging Face checkpoints and back.

mod keys;
mod masked_lm;
mod masked_lm_batch;
mod masked_lm_head;
mod pretrained;

pub use masked_lm::{BertForMaskedLm, BertForMaskedLmConfig, MaskedLmOutput, mean_pooled};
pub use masked_lm_batch::MaskedLmBatch;
pub(crate) use masked_lm_batch::MaskedTokens;
pub use masked_lm_head::MaskedLmHead;
pub use pretrained::LoadReport;
