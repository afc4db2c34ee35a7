//! The optimiser that BERT is trained with, gradient clipping and the learning-rate schedule.

mod adamw;
mod clip;

pub use adamw::{adamw, linear_warmup_decay};
pub use clip::clip_by_global_norm;
pub(crate) use clip::{Clip, Scale, SumOfSquares};
#[cfg(feature = "train")]
pub(crate) use clip::{average_and_clip, average_and_clip_on_all_devices};
