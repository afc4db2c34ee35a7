//! Truncated, damaged and hostile checkpoints: an error each, no panic, and a module that is as it was.

use crate::checkpoint_files::{Stored, fixture, holds_pattern, safetensors_bytes, tiny, tiny_tensors};
use crate::prelude::*;

/// The module with a file of these bytes loaded; if that fails, the module was as before.
fn load(bytes: &[u8]) -> Result<BertEmbeddings, Error> {
    let folder = folder(&[("file", bytes)]);
    let mut module = tiny().init(&device());
    let before = all_values(&module);
    let result = module.load(folder.path().join("file"));
    if result.is_err() {
        assert_eq!(all_values(&module), before, "a failed load changed the module");
    }
    result.map(|()| module)
}

/// The message and, where there is one, its cause.
fn refused(bytes: &[u8]) -> String {
    let error = load(bytes).map(drop).expect_err("the file should be refused");
    format!("{:#}", anyhow::Error::new(error))
}

fn good_safetensors() -> Vec<u8> {
    safetensors_bytes(&tiny_tensors("bert.embeddings."))
}

/// One good file of each format.
fn good_files() -> [Vec<u8>; 3] {
    let read = |name| std::fs::read(fixture(name)).unwrap();
    [good_safetensors(), read("zip.bin"), read("legacy.bin")]
}

/// A safetensors file with a header of the test's own.
fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn a_file_cut_anywhere_is_refused_and_one_with_a_tail_in_safetensors_alone() {
    for bytes in good_files() {
        for length in 0..bytes.len() {
            refused(&bytes[..length]);
        }
    }
    let [safetensors, zip, legacy] = good_files();
    assert!(refused(&[safetensors, vec![0; 8]].concat()).contains("describes"));
    // A zip is found from its end and a legacy file from its start; both bear a tail, as they do in PyTorch.
    for bytes in [zip, legacy] {
        assert!(holds_pattern(&load(&[bytes, vec![0; 8]].concat()).unwrap()));
    }
}

#[test]
fn what_is_no_file_of_weights_is_refused() {
    let end_of_archive = [&b"PK\x05\x06"[..], &[0; 18]].concat();
    let archive_without_a_pickle = [&b"PK\x03\x04"[..], &[0; 64], &end_of_archive].concat();
    for (bytes, says) in [
        (&b""[..], "it is empty"),
        (&[0; 1], "bytes"),
        (&[0; 7], "bytes"),
        (b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0", "another format"),
        (b"\x89HDF\r\n\x1a\n\0\0\0\0\0\0\0\0", "another format"),
        (b"{\"model_type\": \"bert\"}", "another format"),
        (b"<!DOCTYPE html><html></html>", "another format"),
        (&end_of_archive, "file"),
        (&archive_without_a_pickle, "file"),
    ] {
        let message = refused(bytes);
        assert!(message.contains(says), "{says}: {message}");
    }
}

// Hostile safetensors

#[test]
fn a_header_longer_than_the_file_or_of_many_megabytes_is_refused_before_it_is_allocated_or_parsed() {
    for claim in [u64::MAX, u64::MAX - 7, 1 << 62, 1 << 40, 100_000_000, 25] {
        let bytes = [&claim.to_le_bytes()[..], &[b' '; 16]].concat();
        assert!(refused(&bytes).contains("header"), "{claim}");
    }
    let bytes = [&(17u64 << 20).to_le_bytes()[..], &vec![b' '; 17 << 20]].concat();
    assert!(refused(&bytes).contains("more than the"));
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let names = ["word", "position"].map(|table| format!("\"bert.embeddings.{table}_embeddings.weight\""));
    let texts = ["", "[]", "null", "{", "\u{1F600}"].map(String::from);
    let deep = ["[".repeat(100_000), format!("{{{}: 3}}", names[0])];
    let of_words = |fields: &str| format!("{{{}: {{{fields}}}}}", names[0]);
    let words = [
        (r#""dtype": "F32", "shape": [9, 4]"#, 144),
        (r#""dtype": "F31", "shape": [9, 4], "data_offsets": [0, 144]"#, 144),
        (r#""dtype": "F32", "shape": [9, 4], "data_offsets": [144, 0]"#, 144),
        (r#""dtype": "F32", "shape": [9, 4], "data_offsets": [0, 140]"#, 140),
        (r#""dtype": "F32", "shape": [9, 4], "data_offsets": [0, 144]"#, 140),
        (r#""dtype": "F32", "shape": [9, 4], "data_offsets": [8, 152]"#, 152),
        (r#""dtype": "F32", "shape": [-9, 4], "data_offsets": [0, 144]"#, 144),
        (r#""dtype": "F32", "shape": [4294967296, 4294967296, 4], "data_offsets": [0, 0]"#, 0),
        (r#""dtype": "F32", "shape": [9, 4], "data_offsets": [18446744073709551615, 143]"#, 144),
    ];
    // They overlap or leave gaps.
    let both = ["[0, 96]", "[48, 144]", "[140, 236]", "[148, 244]"].map(|offsets| {
        let words = r#"{"dtype": "F32", "shape": [9, 4], "data_offsets": [0, 144]}"#;
        let positions = format!(r#"{{"dtype": "F32", "shape": [6, 4], "data_offsets": {offsets}}}"#);
        format!("{{{}: {words}, {}: {positions}}}", names[0], names[1])
    });
    let headers = texts.into_iter().chain(deep).map(|header| (header, 0));
    let headers = headers.chain(words.map(|(fields, data)| (of_words(fields), data)));
    for (header, data) in headers.chain(both.map(|header| (header, 244))) {
        let message = refused(&with_header(&header, data));
        assert!(message.contains("file"), "{message}");
    }
}

// Hostile PyTorch files

#[test]
fn a_pickle_that_is_no_state_dict_an_archive_that_grows_and_a_negative_view_are_refused() {
    for (name, says) in [
        ("list.bin", "not a state dict: its pickle holds no dictionary of tensors"),
        ("number.bin", "not a state dict: its pickle holds no dictionary of tensors"),
        ("call.bin", "not a state dict"),
        ("call_legacy.bin", "not a state dict"),
        ("bare_pickle.bin", "another format"),
        ("bomb_pickle.bin", "data.pkl has 16777"),
        ("bomb_tensor.bin", "would unpack to 83"),
        // Not read with the wrong sign.
        ("negative.bin", "resolve_neg"),
        ("negative_legacy.bin", "resolve_neg"),
    ] {
        let message = refused(&std::fs::read(fixture(name)).unwrap());
        assert!(message.contains(says), "{name}: {message}");
    }
    // Beside the tensors a call does no harm: what is not a tensor is not looked at.
    assert!(holds_pattern(&load(&std::fs::read(fixture("call_inside.bin")).unwrap()).unwrap()));
    assert!(!Path::new("a-pickle-was-executed").exists());
}

#[test]
fn a_storage_of_other_bytes_or_another_length_and_a_view_beyond_it_are_refused() {
    let [_, zip, legacy] = good_files();
    // As every storage of the fixtures begins.
    let start = [(-4.0f32).to_le_bytes(), (-3.875f32).to_le_bytes()].concat();
    let changed = |mut bytes: Vec<u8>, before: usize| {
        let values = bytes.windows(8).position(|window| window == start).unwrap();
        bytes[values - before] ^= 1;
        refused(&bytes)
    };
    assert!(changed(zip, 0).contains("does not have the checksum that the file states"));
    // The number of values stands before them.
    assert!(changed(legacy, 8).contains("has another length than its tensors say"));
    // The module has the shape that the view claims: 4 GiB from a file of 3 kB.
    let mut module = tiny().with_vocab_size(1 << 28).init(&device());
    says(module.load(fixture("broadcast.bin")), "claim 42949674");
}

// Hostile indices

fn index(weight_map: &str) -> (TempDir, PathBuf) {
    let shard = good_safetensors();
    let folder =
        folder(&[("shard.safetensors", &shard), ("model.safetensors.index.json", weight_map.as_bytes())]);
    let path = folder.path().join("model.safetensors.index.json");
    (folder, path)
}

#[test]
fn an_index_that_is_wrong_or_names_a_shard_outside_the_directory_is_refused() {
    let word = "bert.embeddings.word_embeddings.weight";
    let to = |key: &str, name: &str| format!(r#"{{"weight_map": {{"{key}": {name}}}}}"#);
    for (map, expected) in [
        ("{}".to_string(), "weight_map"),
        ("[]".to_string(), "JSON"),
        (r#"{"weight_map": []}"#.to_string(), "weight_map"),
        (r#"{"weight_map": {}}"#.to_string(), "word_embeddings.weight"),
        (to(word, "3"), "not the name"),
        (to(word, "\"gone.safetensors\""), "gone.safetensors"),
        (to(word, "\"shard.safetensors\""), "position_embeddings.weight"),
        (to("roberta.embeddings.word_embeddings.weight", "\"shard.safetensors\""), "the index of shards"),
        (to(word, "\"model.safetensors.index.json\""), "model.safetensors.index.json"),
        (to(word, "\"config.json\""), "config.json"),
    ] {
        let (folder, path) = index(&map);
        std::fs::copy(fixture("bert").join("config.json"), folder.path().join("config.json")).unwrap();
        says(tiny().init(&device()).load(path), expected);
    }
    let names = "../shard.safetensors,/etc/passwd,sub/../../shard.safetensors,./shard.safetensors/,a/b,a\\\\b,\
                 C:shard.safetensors,\\u001b]0;title.safetensors,..,.,";
    for name in names.split(',') {
        let map = format!(r#"{{"weight_map": {{"bert.embeddings.word_embeddings.weight": "{name}"}}}}"#);
        let (_folder, path) = index(&map);
        says(tiny().init(&device()).load(path), "not the name of a file beside the index");
    }
}

#[test]
fn a_config_that_is_no_config_is_refused() {
    let deep = "[".repeat(1_000_000);
    for text in ["", "{", "[]", "7", "\u{0}", "{\"vocab_size\": NaN}", &deep, &format!("{{\"a\": {deep}")] {
        fails!(BertEmbeddingsConfig::from_pretrained(with_config(text).path()), Error::Json { .. });
    }
    let result = BertEmbeddingsConfig::from_pretrained(with_config(" ".repeat((16 << 20) + 1)).path());
    says(result, "it is larger than 16 MiB");
}

#[test]
fn messages_escape_the_names_of_files() {
    let dir = tempdir().unwrap();
    let evil = dir.path().join("\u{1b}]0;title\u{7}\u{202e}");
    fs::create_dir(&evil).unwrap();
    let message = || BertEmbeddingsConfig::from_pretrained(&evil).unwrap_err().to_string();
    let mut messages = vec![message()];
    // No JSON, a wrong field, another model and no file.
    for text in ["", r#"{"model_type": "bert", "vocab_size": "9"}"#, r#"{"model_type": "gpt2"}"#] {
        fs::write(evil.join("config.json"), text).unwrap();
        messages.push(message());
    }
    fs::remove_file(evil.join("config.json")).unwrap();
    fs::create_dir(evil.join("config.json")).unwrap();
    messages.push(message());
    for message in messages {
        assert!(message.contains(r"\u{1b}]0;title\u{7}\u{202e}"), "{message:?}");
        assert!(message.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{message:?}");
    }
}

/// What a message shows of a file: nothing that a terminal obeys, and not all of a long text.
#[test]
fn messages_escape_and_cut_what_a_file_says() {
    let (evil, long) = ("\u{1b}[31m\u{202e}red", "x".repeat(100_000));
    let config = |json: String| {
        let config = BertForSequenceClassificationConfig::from_pretrained(with_config(json).path());
        config.unwrap_err().to_string()
    };
    for text in [evil, &long] {
        let json = serde_json::to_string(text).unwrap();
        let (_folder, path) = index(&format!(r#"{{"weight_map": {{{json}: 3}}}}"#));
        let header = format!(r#"{{{json}: {{"dtype": {json}, "shape": [], "data_offsets": [0, 4]}}}}"#);
        let tables = ["", "module."]
            .map(|prefix| Stored::f32(format!("{prefix}{text}.word_embeddings.weight"), &[1, 1]));
        let mut messages = vec![
            tiny().init(&device()).load(path).unwrap_err().to_string(),
            refused(&with_header(&header, 4)),
            refused(&safetensors_bytes(&tables)),
        ];
        messages.push(config(format!(r#"{{"model_type": {json}}}"#)));
        messages.push(config(format!(r#"{{"architectures": [{json}]}}"#)));
        for field in
            ["hidden_act", "position_embedding_type", "problem_type", "sbert_ce_default_activation_function"]
        {
            messages.push(config(format!(r#"{{"model_type": "bert", "{field}": {json}}}"#)));
        }
        for message in messages {
            assert!(message.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{message:?}");
            assert!(message.len() < 2000, "{} bytes: {:.200}", message.len(), message);
        }
        let report = LoadReport { unused: vec![text.into()], ..Default::default() };
        assert!(!report.to_string().contains('\u{1b}') && report.to_string().len() < 300, "{report}");
    }
}
