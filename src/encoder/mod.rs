//! BERT's transformer layers: [`BertEncoder`], its [`BertLayer`]s and their [`BertSelfAttention`].
//!
//! The layers compute the tokens of a batch as rows without padding ([`Packing`]). Their parameters are those of Burn's `Linear` and
//! `LayerNorm`, so LoRA, freezing, quantisation and records work; the arithmetic is that of the fused operators in
//! [`functional`](crate::functional).

mod attention;
mod attention_bias;
mod config;
mod layer;
mod linear;
mod packing;
mod relative;
mod stack;

pub use crate::operator::Activation;
pub use attention::BertSelfAttention;
pub use attention_bias::RelativeAttentionBias;
pub use config::BertEncoderConfig;
pub use layer::BertLayer;
pub(crate) use linear::{linear, linear_activation};
pub use packing::Packing;
pub use relative::RelativePositions;
pub use stack::{BertEncoder, BertEncoderOutput, PackedHidden};
