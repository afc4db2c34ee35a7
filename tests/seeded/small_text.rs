//! A small text, its vocabulary, and what is made of them.

use burn_bert::text::BertTokenizer;
use burn_bert::training::{Corpus, MaskedLmCollator, MaskedLmCollatorConfig};
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
