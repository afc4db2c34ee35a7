//! Names of models on the Hugging Face Hub without the feature `hub`.

use crate::prelude::*;
use std::error::Error as _;

fn says_both_ways_out(name: &str, options: &str, error: Error) {
    assert!(matches!(&error, Error::Hub { name: found, .. } if found == name));
    let expected = format!(
        "{name} is not a local path; to load the model of this name from the Hugging Face Hub, turn on the cargo feature `hub`, \
         or run `hf download {name} {options}--local-dir DIR` and load DIR"
    );
    assert_eq!(error.to_string(), expected);
    assert!(error.source().is_none());
}

#[test]
fn a_name_where_a_path_is_expected_says_both_ways_out() {
    let name = "sentence-transformers/all-MiniLM-L6-v2";
    let device = device();
    let says = |error| says_both_ways_out(name, "", error);
    says(BertForMaskedLm::from_pretrained(name, &device).unwrap_err());
    says(BertModelConfig::from_pretrained(name).unwrap_err());
    says(BertEmbeddingsConfig::from_pretrained(name).unwrap_err());
    says(BertEmbeddings::from_pretrained(name, &device).unwrap_err());
    let config = BertEmbeddingsConfig::new().with_vocab_size(9).with_hidden_size(4);
    says(BertEmbeddings::from_pretrained_with(&config, name, &device).unwrap_err());
    says(config.init(&device).load(name).unwrap_err());
    says(BertModel::from_pretrained_with(&BertModelConfig::new(config), name, &device).unwrap_err());
    #[cfg(feature = "tokenizers")]
    says(BertTokenizer::from_pretrained(name).unwrap_err());
    for (path, name, options) in [
        ("bert-base-uncased@v1.0", "bert-base-uncased", "--revision v1.0 "),
        ("intfloat/multilingual-e5_a.1", "intfloat/multilingual-e5_a.1", ""),
        ("a/b@refs/pr/1", "a/b", "--revision refs/pr/1 "),
    ] {
        says_both_ways_out(name, options, BertModelConfig::from_pretrained(path).unwrap_err());
    }
}

#[test]
fn what_can_only_be_a_path_is_a_file_that_cannot_be_read() {
    let parts =
        ["a/b/c", "a//b", r"a\b", "C:a", "a b", "-a", "a-", "a--b", "a..b", "a/.b", "é", "bert/", "a.git"];
    let folders = [".", "..", "./a", "../a", "/a", "~/bert"];
    let files =
        ["model.safetensors", "a/model.safetensors", "pytorch_model.bin", "bert/config.json", "vocab.txt"];
    let revisions = ["a@", "a@/b", "a@../b", "a@b/../c", "a@b@c"];
    for path in parts.iter().chain(&folders).chain(&files).chain(&revisions) {
        fails!(BertModelConfig::from_pretrained(path), Error::Io { .. });
    }
}
