//! What does not depend on the random numbers that a device draws: every test may run beside any other.

#[path = "../support/checkpoint_files/mod.rs"]
mod checkpoint_files;
#[path = "../support/devices/mod.rs"]
mod devices;
#[path = "../support/golden/mod.rs"]
mod golden;
#[path = "../support/tolerance/mod.rs"]
mod tolerance;
#[path = "../support/transformers/mod.rs"]
mod transformers;

mod checkpoint;
mod config;
mod corrupt_checkpoint;
mod encoder;
mod forward;
mod gradients;
mod hugging_face;
mod hugging_face_masked_lm;
mod input;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod labelled;
mod lines;
mod masked_lm;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod metrics;
mod resize;
mod save_masked_lm;
mod save_pretrained;
mod sparse_adam;
mod sparse_resume;
mod sparse_rows;
mod sparse_training;
#[cfg(feature = "tokenizers")]
mod text;
mod training;
mod whole_word_masking;
