//! Whole models into Hugging Face directories and out of them: what is kept, what is refused, what is reported.

mod existing_directory;
mod loading;
mod round_trip;
mod untied_head;

use crate::checkpoint_files::{Stored, safetensors_bytes};
use crate::files::config_json;
use burn::prelude::*;
use burn_bert::model::{
    BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig, LoadReport, PretrainedModel,
};
use burn_bert::{BertEmbeddingsConfig, Error};
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn device() -> Device {
    Device::default()
}

fn fixture(name: &str) -> PathBuf {
    crate::files::fixture("masked_lm").join(name)
}

fn with_embeddings(embeddings: BertEmbeddingsConfig) -> BertForMaskedLmConfig {
    let bert = BertModelConfig::new(embeddings)
        .with_num_hidden_layers(2)
        .with_num_attention_heads(2)
        .with_intermediate_size(12)
        .with_attention_probs_dropout_prob(0.2);
    BertForMaskedLmConfig::new(bert)
}

fn tiny() -> BertForMaskedLmConfig {
    with_embeddings(BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(8))
}

fn load(dir: &Path) -> (BertForMaskedLm, LoadReport) {
    BertForMaskedLm::from_pretrained(dir, &device()).unwrap()
}

fn refused(dir: &Path) -> Error {
    BertForMaskedLm::from_pretrained(dir, &device()).map(|(_, report)| report).unwrap_err()
}

fn keys(dir: &Path) -> Vec<String> {
    let bytes = fs::read(dir.join("model.safetensors")).unwrap();
    let mut keys: Vec<String> =
        SafeTensors::deserialize(&bytes).unwrap().names().into_iter().map(String::from).collect();
    keys.sort();
    keys
}

/// A copy of a fixture with fields of its config replaced.
fn with_fields(name: &str, fields: &[(&str, Value)]) -> tempfile::TempDir {
    let dir = copy_of(name);
    let mut config = config_json(dir.path());
    for (field, value) in fields {
        config[*field] = value.clone();
    }
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    dir
}

fn copy_of(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in fs::read_dir(fixture(name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
    }
    dir
}

/// A copy of a fixture with tensors added, taken away or renamed.
fn with_tensors(name: &str, change: impl Fn(&mut Vec<Stored>)) -> tempfile::TempDir {
    let dir = copy_of(name);
    let path = dir.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let stored = |(key, view): (String, safetensors::tensor::TensorView)| Stored {
        key,
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        bytes: view.data().to_vec(),
    };
    let mut tensors: Vec<Stored> = file.tensors().into_iter().map(stored).collect();
    change(&mut tensors);
    fs::write(path, safetensors_bytes(&tensors)).unwrap();
    dir
}
