//! What does not depend on the random numbers that a device draws: every test may run beside any other.

#[path = "../support/checkpoint_files/mod.rs"]
mod checkpoint_files;
#[path = "../support/devices/mod.rs"]
mod devices;
#[path = "../support/files/mod.rs"]
mod files;
#[path = "../support/golden/mod.rs"]
mod golden;
#[cfg(feature = "checkpoint")]
#[path = "../support/parity/mod.rs"]
mod parity;
#[path = "../support/small_bert/mod.rs"]
mod small_bert;
#[path = "../support/tolerance/mod.rs"]
mod tolerance;
#[path = "../support/transformers/mod.rs"]
mod transformers;
#[cfg(feature = "checkpoint")]
#[path = "../support/whole_model/mod.rs"]
mod whole_model;

mod adamw;
#[cfg(all(feature = "checkpoint", feature = "tokenizers", feature = "train"))]
mod answers;
#[cfg(feature = "checkpoint")]
mod autocast;
#[cfg(feature = "checkpoint")]
mod checkpoint;
#[cfg(feature = "checkpoint")]
mod checkpoint_config;
#[cfg(feature = "checkpoint")]
mod classifiers;
mod command_line;
mod config;
#[cfg(feature = "checkpoint")]
mod corrupt_checkpoint;
#[cfg(feature = "checkpoint")]
mod damaged_directory;
mod encoder;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
mod entities;
#[cfg(feature = "checkpoint")]
mod errors;
mod extremes;
#[cfg(feature = "checkpoint")]
mod families;
mod family;
mod fields;
mod forward;
mod gradients;
mod gradients_models;
#[cfg(feature = "checkpoint")]
mod hugging_face;
mod input;
#[cfg(feature = "checkpoint")]
mod interrupted_save;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod labelled;
mod layer_decay;
mod layout;
mod lines;
#[cfg(all(feature = "checkpoint", feature = "tokenizers", feature = "train"))]
mod loss_curves;
mod masked_lm;
mod mean_gradients;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod metrics;
#[cfg(feature = "checkpoint")]
mod odd_files;
#[cfg(feature = "checkpoint")]
mod parity_models;
#[cfg(feature = "checkpoint")]
mod parity_saved;
#[cfg(feature = "tokenizers")]
mod pipelines;
#[cfg(all(feature = "checkpoint", feature = "tokenizers", feature = "train"))]
mod ranking;
mod resize;
#[cfg(feature = "checkpoint")]
mod resize_model;
#[cfg(feature = "checkpoint")]
mod savable;
mod save_masked_lm;
#[cfg(feature = "checkpoint")]
mod save_pretrained;
mod schedule;
#[cfg(feature = "checkpoint")]
mod sentence_directories;
#[cfg(feature = "checkpoint")]
mod sentence_embeddings;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod sentence_files;
#[cfg(feature = "checkpoint")]
mod sentence_losses;
#[cfg(feature = "tokenizers")]
mod text;
#[cfg(feature = "tokenizers")]
mod text_methods;
mod training;
mod whole_word_masking;
