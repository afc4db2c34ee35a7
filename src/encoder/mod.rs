//! BERT's transformer layers: [`BertEncoder`], its [`BertLayer`]s and their [`BertSelfAttention`].
//!
//! The layers compute the tokens of a batch as rows without padding ([`Packing`]). Their parameters are those of Burn's
//! `Linear` and `LayerNorm`, so LoRA, freezing, quantisation and records work; the arithmetic is that of the fused
//! operators in [`functional`](crate::functional).

mod bert_encoder;
pub(crate) mod config;
pub(crate) mod disentangled;
mod layer;
mod once_per_batch;
mod packing;
mod published;
mod relative_attention_bias;
mod relative_positions;
pub(crate) mod rotary;
mod self_attention;

pub use bert_encoder::{BertEncoder, BertEncoderOutput, PackedHidden};
pub use burn_fused::Activation;
pub use disentangled::{DisentangledAttention, DistanceEmbedding, SharedPositions};
pub use layer::BertLayer;
pub use packing::Packing;
pub use relative_attention_bias::RelativeAttentionBias;
pub use relative_positions::RelativePositions;
pub use self_attention::BertSelfAttention;
