//! What does not depend on the random numbers that a device draws: every test may run beside any other.

#![cfg(feature = "checkpoint")]

#[path = "../support/checkpoint_files/mod.rs"]
mod checkpoint_files;
#[path = "../support/devices/mod.rs"]
mod devices;
#[path = "../support/files/mod.rs"]
mod files;
#[path = "../support/golden/mod.rs"]
mod golden;
#[path = "../support/parity/mod.rs"]
mod parity;
#[path = "../support/small_bert/mod.rs"]
mod small_bert;
#[path = "../support/tolerance/mod.rs"]
mod tolerance;
#[path = "../support/transformers/mod.rs"]
mod transformers;
#[path = "../support/whole_model/mod.rs"]
mod whole_model;

mod adamw;
#[cfg(feature = "train")]
mod answers;
mod autocast;
mod checkpoint;
mod checkpoint_config;
mod classifiers;
mod command_line;
mod config;
mod corrupt_checkpoint;
mod encoder;
#[cfg(feature = "tokenizers")]
mod entities;
mod errors;
mod families;
mod family;
mod fields;
mod forward;
mod gradients_models;
mod hugging_face;
mod input;
mod interrupted_save;
#[cfg(feature = "train")]
mod labelled;
mod layer_decay;
mod layout;
mod lines;
#[cfg(feature = "train")]
mod loss_curves;
mod masked_lm;
mod mean_gradients;
#[cfg(feature = "train")]
mod metrics;
mod odd_files;
mod parity_models;
mod parity_saved;
#[cfg(feature = "tokenizers")]
mod pipelines;
#[cfg(feature = "train")]
mod ranking;
mod resize;
mod resize_model;
mod savable;
mod save_masked_lm;
mod save_pretrained;
mod schedule;
mod sentence_directories;
mod sentence_embeddings;
#[cfg(feature = "train")]
mod sentence_files;
mod sentence_losses;
#[cfg(feature = "tokenizers")]
mod text;
#[cfg(feature = "tokenizers")]
mod text_methods;
mod training;
mod whole_word_masking;
