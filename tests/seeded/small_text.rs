//! A small text, its vocabulary, and what is made of them.

use burn::data::dataset::InMemDataset;
use burn::prelude::*;
use burn_bert::data::{Corpus, EpochLoader, MaskedLmCollator, MaskedLmCollatorConfig};
use burn_bert::text::BertTokenizer;
use std::fs;
use std::path::Path;

pub const WORDS: [&str; 6] = ["the", "cat", "sat", "on", "a", "mat"];

/// A folder with a vocabulary of eleven and a text of 1,500 words.
pub fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let vocabulary = format!("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n{}\n", WORDS.join("\n"));
    fs::write(dir.path().join("vocab.txt"), vocabulary).unwrap();
    fs::write(dir.path().join("text"), format!("{}\n", WORDS.join(" ")).repeat(250)).unwrap();
    dir
}

pub fn tokenizer(dir: &Path) -> BertTokenizer {
    BertTokenizer::from_pretrained(dir).unwrap()
}

pub fn corpus(dir: &Path, seq_len: usize) -> Corpus {
    Corpus::open(dir.join("text"), tokenizer(dir), seq_len).unwrap()
}

pub fn collator(dir: &Path) -> MaskedLmCollator {
    MaskedLmCollatorConfig::for_tokenizer(&tokenizer(dir)).init()
}

/// Batches of windows of 14 tokens in a random order.
pub fn training_loader(
    dir: &Path,
    collator: MaskedLmCollator,
    batch_size: usize,
    batches: usize,
    seed: u64,
) -> EpochLoader<MaskedLmCollator> {
    let loader = EpochLoader::new(corpus(dir, 14), collator, batch_size, &Device::default()).unwrap();
    loader.with_shuffling(seed).with_batches_per_epoch(batches).unwrap()
}

/// Batches of four of the first windows that are held out.
pub fn validation_loader(dir: &Path) -> EpochLoader<MaskedLmCollator> {
    let held_out = InMemDataset::new(corpus(dir, 14).held_out(8));
    EpochLoader::new(held_out, collator(dir), 4, &Device::default()).unwrap()
}
