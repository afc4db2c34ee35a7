//! The optimiser that BERT is trained with, gradient clipping and the learning-rate schedule.

mod adamw;
mod clip;

pub use adamw::{adamw, linear_warmup_decay};
pub use clip::clip_by_global_norm;
#[cfg(feature = "train")]
pub(crate) use clip::clip_on_all_devices;
pub(crate) use clip::{Clip, Scale, SumOfSquares};
