//! A tiny checkpoint with a tokenizer, and data that it learns in seconds.

use burn::prelude::*;
use burn_bert::BertEmbeddingsConfig;
use burn_bert::data::{Label, LabelledText, LabelledTexts};
use burn_bert::model::{BertModelConfig, PretrainedModel};
use burn_bert::training::TrainingArguments;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// After the five special tokens.
const WORDS: &str = "good bad the film was boring a cat sat on mat Ada Paris lives in wrote who where it ? . \
                     q0 q1 q2 q3 q4 q5 q6 q7 a0 a1 a2 a3 a4 a5 a6 a7";

/// An encoder without a head, with dropout.
pub fn checkpoint() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let words: Vec<&str> =
        "[PAD] [UNK] [CLS] [SEP] [MASK]".split(' ').chain(WORDS.split_whitespace()).collect();
    fs::write(dir.path().join("vocab.txt"), words.join("\n") + "\n").unwrap();
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"do_lower_case": false}"#).unwrap();
    let embeddings = BertEmbeddingsConfig::new()
        .with_vocab_size(words.len())
        .with_hidden_size(16)
        .with_max_position_embeddings(24)
        .with_hidden_dropout_prob(0.1);
    let bert = BertModelConfig::new(embeddings)
        .with_num_hidden_layers(1)
        .with_num_attention_heads(2)
        .with_intermediate_size(32);
    let device = Device::default();
    device.seed(5);
    bert.init(&device).save_pretrained(dir.path()).unwrap();
    dir
}

/// What the tiny model learns by.
pub fn arguments(output: &Path) -> TrainingArguments {
    TrainingArguments::new(output).with_batch_size(8).with_learning_rate(1e-2).with_silent(true)
}

pub fn text(text: &str, label: Label) -> LabelledText {
    LabelledText { text: text.into(), pair: None, label }
}

pub fn reviews(count: usize) -> LabelledTexts {
    let review = |i: usize| {
        let words = ["the film was good", "bad film", "good", "the film was the film bad"][i % 4];
        text(words, Label::Class(usize::from(i.is_multiple_of(2))))
    };
    let names = ["negative", "positive"].map(String::from).to_vec();
    LabelledTexts::new((0..count).map(review).collect(), names).unwrap()
}
