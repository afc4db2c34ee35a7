//! A tiny checkpoint with a tokenizer, and data that it learns in seconds; a small text, its vocabulary, and what is made of them.

use crate::files;
use crate::prelude::*;

/// After the five special tokens.
const VOCABULARY: &str = "good bad the film was boring a cat sat on mat Ada Paris lives in wrote who where it ? . \
                     q0 q1 q2 q3 q4 q5 q6 q7 a0 a1 a2 a3 a4 a5 a6 a7";

/// An encoder without a head, with dropout.
pub fn checkpoint() -> TempDir {
    let dir = tempdir().unwrap();
    let vocabulary = vocabulary(&VOCABULARY.split_whitespace().collect::<Vec<_>>());
    fs::write(dir.path().join("vocab.txt"), &vocabulary).unwrap();
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"do_lower_case": false}"#).unwrap();
    let mut bert = small_bert(vocabulary.lines().count());
    bert.embeddings.max_position_embeddings = 24;
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

pub const WORDS: [&str; 6] = ["the", "cat", "sat", "on", "a", "mat"];

/// A folder with a vocabulary of eleven and a text of 1,500 words.
pub fn folder() -> TempDir {
    let text = format!("{}\n", WORDS.join(" ")).repeat(250);
    files::folder(&[("vocab.txt", vocabulary(&WORDS).as_bytes()), ("text", text.as_bytes())])
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
) -> EpochLoader<MaskedLmBatch> {
    let all = collator.batches(windows(dir, 14));
    let loader = EpochLoader::new(all, batch_size, &Device::default()).unwrap();
    loader.with_shuffling(seed).with_batches_per_epoch(batches).unwrap()
}
