//! Directories whose files contradict each other or claim what no memory holds.

use crate::checkpoint_files::*;
use burn::prelude::*;
use burn_bert::BertEmbeddings;
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, PretrainedModel};
use std::fs;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The largest table that a few kilobytes can describe, with room for what the operating system does besides.
const LIMIT: Duration = Duration::from_secs(20);

/// A config with one field replaced, beside weights that fit the rest.
fn with_field(field: &str, value: &str) -> TempDir {
    let dir = copy_of("bert");
    let path = dir.path().join("config.json");
    let mut fields: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fields[field] = serde_json::from_str(value).unwrap();
    fs::write(path, fields.to_string()).unwrap();
    dir
}

#[test]
fn sizes_that_no_memory_holds_are_errors_and_allocate_nothing() {
    for field in [
        "vocab_size",
        "hidden_size",
        "max_position_embeddings",
        "type_vocab_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
    ] {
        for value in ["18446744073709551615", "9223372036854775807", "4611686018427387904", "1099511627776"] {
            let dir = with_field(field, value);
            let started = Instant::now();
            let whole = BertForMaskedLm::from_pretrained(dir.path(), &Device::default());
            assert!(whole.is_err(), "{field} {value}");
            let layer = BertEmbeddings::from_pretrained(dir.path(), &Device::default());
            let is_of_layer = ["vocab_size", "hidden_size", "max_position_embeddings", "type_vocab_size"];
            assert_eq!(layer.is_err(), is_of_layer.contains(&field), "{field} {value}");
            assert!(started.elapsed() < LIMIT, "{field} {value}");
        }
    }
}

#[test]
fn more_distances_than_memory_holds_are_an_error() {
    for value in [u64::MAX, 1 << 63, 1 << 62, 1 << 40] {
        let dir = with_field("max_position_embeddings", &value.to_string());
        let path = dir.path().join("config.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen('{', "{\"position_embedding_type\": \"relative_key\",", 1)).unwrap();
        assert!(BertForMaskedLm::from_pretrained(dir.path(), &Device::default()).is_err(), "{value}");
        assert!(BertForMaskedLmConfig::from_pretrained(dir.path()).is_err(), "{value}");
    }
}

#[test]
fn the_last_of_two_equal_keys_counts_as_in_python() {
    let dir = copy_of("bert");
    let path = dir.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen('{', "{\"layer_norm_eps\": 0.5,", 1)).unwrap();
    let module = BertEmbeddings::from_pretrained(dir.path(), &Device::default()).unwrap();
    assert_eq!(module.layer_norm.epsilon(), 1e-12);
}

#[test]
fn tensors_that_overlap_or_leave_gaps_are_refused() {
    let header = |second: &str| {
        let (word, position) = ("embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight");
        format!(
            r#"{{"{word}": {{"dtype": "F32", "shape": [9, 4], "data_offsets": [0, 144]}},
                "{position}": {{"dtype": "F32", "shape": [6, 4], "data_offsets": {second}}}}}"#
        )
    };
    for second in ["[0, 96]", "[48, 144]", "[140, 236]", "[148, 244]"] {
        let header = header(second);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + 244, 0);
        let folder = folder(&[("model.safetensors", &bytes)]);
        let mut module = tiny().init(&Device::default());
        assert!(module.load(folder.path().join("model.safetensors")).is_err(), "{second}");
    }
}

#[test]
fn an_index_that_names_itself_or_another_index_is_refused() {
    for name in ["model.safetensors.index.json", "config.json"] {
        let dir = copy_of("bert_sharded");
        let map = format!(r#"{{"weight_map": {{"bert.embeddings.word_embeddings.weight": "{name}"}}}}"#);
        fs::write(dir.path().join("model.safetensors.index.json"), map).unwrap();
        let mut module = tiny().init(&Device::default());
        assert!(module.load(dir.path()).is_err(), "{name}");
    }
}
