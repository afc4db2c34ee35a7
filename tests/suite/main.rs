//! What does not depend on the random numbers that a device draws: every test may run beside any other.

#[path = "../support/mod.rs"]
mod support;

use support::*;

/// What most of these tests use.
mod prelude {
    pub use crate::files::{config_json, edit, files_of, fixture, folder, json, set_fields, with_config};
    #[cfg(feature = "tokenizers")]
    pub use crate::files::{list, tokenizer_of, vocabulary};
    pub(crate) use crate::refusals::fails;
    pub use crate::refusals::{each, panic_of, says};
    pub use crate::small_bert::{larger, small_bert, small_layer};
    pub use crate::tolerance::*;
    pub use crate::whole_model::File;
    pub use burn::module::{Lora, Module, Param, ParamGroup};
    pub use burn::optim::GradientsParams;
    pub use burn::prelude::*;
    pub use burn::tensor::{DType, Distribution, FloatDType};
    pub use burn_bert::data::*;
    pub use burn_bert::model::*;
    #[cfg(feature = "tokenizers")]
    pub use burn_bert::pipeline::*;
    #[cfg(feature = "tokenizers")]
    pub use burn_bert::text::*;
    pub use burn_bert::{
        BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, EmbeddingInitializer, Error, Family,
        PaddingMask, PositionEmbeddingType, PositionFill, TokenEmbedding, TokenEmbeddingConfig,
        VocabularyResize, cast_module,
    };
    pub use serde_json::{Value, json};
    pub use std::fs;
    pub use std::path::{Path, PathBuf};
    pub use tempfile::{TempDir, tempdir};

    pub fn device() -> Device {
        Device::default()
    }

    pub fn autodiff() -> Device {
        device().autodiff()
    }

    /// A model in a new directory.
    pub fn saved(model: &impl PretrainedModel) -> TempDir {
        let dir = tempdir().unwrap();
        model.save_pretrained(dir.path()).unwrap();
        dir
    }

    /// The model of a directory that has all of it and nothing else.
    pub fn loaded<M: PretrainedModel>(dir: impl AsRef<Path>) -> M {
        let (model, report) = M::from_pretrained(dir, &device()).unwrap();
        assert_eq!(report, LoadReport::default());
        model
    }

    /// The tokenizer of the fixtures of a family.
    #[cfg(feature = "tokenizers")]
    pub fn tokenizer_of_family(name: &str) -> BertTokenizer {
        let folder = match name {
            "roberta" => "roberta_tokenizer",
            "mpnet" => "families/mpnet_tokenizer",
            "albert" => "families/albert_tokenizer",
            _ => "tokenizer",
        };
        BertTokenizer::from_pretrained(fixture(folder)).unwrap()
    }
}

mod adamw;
#[cfg(feature = "tokenizers")]
mod adapters;
#[cfg(feature = "train")]
mod answers;
mod autocast;
mod checkpoint;
mod checkpoint_config;
mod classifiers;
mod command_line;
mod config;
mod corrupt_checkpoint;
mod deberta;
mod encoder;
#[cfg(feature = "tokenizers")]
mod entities;
mod errors;
mod eurobert;
mod families;
mod family;
mod fields;
mod interrupted_save;
#[cfg(feature = "train")]
mod labelled;
#[cfg(feature = "train")]
mod labelled_files;
mod layer;
mod layout;
#[cfg(feature = "train")]
mod loader;
mod masked_lm;
#[cfg(feature = "train")]
mod metrics;
mod migrating;
mod modernbert;
mod odd_files;
mod parity_models;
mod parity_saved;
#[cfg(feature = "tokenizers")]
mod pipelines;
mod prepared;
#[cfg(feature = "tokenizers")]
mod published;
mod quantised;
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
#[cfg(feature = "tokenizers")]
mod sentence_transformers;
#[cfg(feature = "tokenizers")]
mod text;
#[cfg(feature = "train")]
mod text_files;
#[cfg(feature = "tokenizers")]
mod text_methods;
#[cfg(feature = "tokenizers")]
mod text_options;
#[cfg(feature = "train")]
mod token_windows;
