//! AdamW, gradient clipping by the global norm, and the learning-rate schedule of BERT.
//!
//! | PyTorch, transformers | here |
//! |---|---|
//! | `torch.optim.AdamW` | [`AdamWConfig`]; [`adamw()`] does not decay biases and LayerNorm |
//! | `torch.nn.utils.clip_grad_norm_` | [`clip_by_global_norm`] |
//! | `(loss / n).backward()` of n batches | [`MeanGradients`] |
//! | `get_linear_schedule_with_warmup` | [`linear_warmup_decay`]; [`layer_wise_decay`] and [`ScaledLr`] for groups |
//!
//! They work with Burn's `ModuleOptimizer`, parameter groups and records.

mod adamw;
mod clip;
mod layer_decay;
mod mean_gradients;
mod schedule;
mod trainable;

pub use adamw::{AdamW, AdamWConfig, AdamWState, adamw};
pub use clip::clip_by_global_norm;
#[cfg(feature = "train")]
pub(crate) use clip::{add_up, assert_max_norm, average_and_clip};
pub use layer_decay::{ScaledLr, layer_wise_decay};
pub use mean_gradients::MeanGradients;
pub use schedule::linear_warmup_decay;
pub use trainable::num_trainable_params;
