//! Whole directories under seeded damage: config, index of shards and weights of every format.
//!
//! Nothing may panic, abort or hang, and a load that succeeds must give what PyTorch's reader gives: values may
//! differ only where the damage hit a value.

use crate::checkpoint_files::*;
use burn::prelude::*;
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, PretrainedModel};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The largest table that a few kilobytes can describe, with room for what the operating system does besides.
const LIMIT: Duration = Duration::from_secs(20);

const DIRECTORIES: [&str; 4] = ["bert", "bert_sharded", "sharded_bin", "roberta"];

fn copy_of(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(fixture(name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    folder
}

/// Loads what is there in every way; only a panic or a long run is a failure.
fn load_all(dir: &Path) {
    let started = Instant::now();
    let device = Device::default();
    let _ = BertEmbeddingsConfig::from_pretrained(dir);
    let _ = BertEmbeddings::from_pretrained(dir, &device);
    let _ = BertForMaskedLm::from_pretrained(dir, &device);
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_directory_with_damaged_bytes_never_panics(
        name in prop::sample::select(&DIRECTORIES[..]),
        file in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let dir = copy_of(name);
        let files = files(dir.path());
        let path = file.get(&files);
        let mut bytes = fs::read(path).unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(path, bytes).unwrap();
        load_all(dir.path());
    }

    /// A text with parts of itself repeated, removed or replaced by what a parser may stumble over.
    #[test]
    fn json_with_hostile_tokens_never_panics(
        name in prop::sample::select(&DIRECTORIES[..]),
        file in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        token in prop::sample::select(&[
            "18446744073709551615", "-1", "1e999", "1e-999", "0", "NaN", "null", "true", "\"\"", "[]", "{}",
            "9007199254740993", "4611686018427387904", "\"\\ud800\"", "\"\\u0000\"", "\"../../etc/passwd\"",
        ][..]),
    ) {
        let dir = copy_of(name);
        let is_json = |path: &std::path::PathBuf| path.extension().is_some_and(|extension| extension == "json");
        let files: Vec<_> = files(dir.path()).into_iter().filter(is_json).collect();
        let path = file.get(&files);
        let text = fs::read_to_string(path).unwrap();
        // The values of `"key": value` lines.
        let values: Vec<usize> = text.match_indices(": ").map(|(at, _)| at + 2).collect();
        let start = *at.get(&values);
        let end = start + text[start..].find([',', '\n']).unwrap_or(0);
        fs::write(path, [&text[..start], token, &text[end..]].concat()).unwrap();
        load_all(dir.path());
    }
}

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
        let config = BertForMaskedLmConfig::from_pretrained(dir.path());
        // Twice the number is more than a table can count.
        assert_eq!(config.is_err(), value >= 1 << 63, "{value}");
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
