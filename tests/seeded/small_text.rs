//! A small text, its vocabulary, and what is made of them.

use crate::prelude::*;

pub const WORDS: [&str; 6] = ["the", "cat", "sat", "on", "a", "mat"];

/// A folder with a vocabulary of eleven and a text of 1,500 words.
pub fn folder() -> TempDir {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("vocab.txt"), vocabulary(&WORDS)).unwrap();
    fs::write(dir.path().join("text"), format!("{}\n", WORDS.join(" ")).repeat(250)).unwrap();
    dir
}

pub fn tokenizer(dir: &Path) -> BertTokenizer {
    BertTokenizer::from_pretrained(dir).unwrap()
}

pub fn windows(dir: &Path, seq_len: usize) -> TextWindows {
    PlainText::open(dir.join("text")).unwrap().windows(tokenizer(dir), seq_len).unwrap()
}

/// The first windows of 14 tokens.
pub fn first_windows(dir: &Path, count: usize) -> Vec<MaskedLmExample> {
    windows(dir, 14).iter().take(count).map(|window| window.unwrap()).collect()
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
    let loader =
        EpochLoader::new(Batches::new(windows(dir, 14), collator), batch_size, &Device::default()).unwrap();
    loader.with_shuffling(seed).with_batches_per_epoch(batches).unwrap()
}

/// Batches of four of the first windows.
pub fn validation_loader(dir: &Path) -> EpochLoader<MaskedLmCollator> {
    let windows = InMemDataset::new(first_windows(dir, 8));
    EpochLoader::new(Batches::new(windows, collator(dir)), 4, &Device::default()).unwrap()
}
