//! A tiny checkpoint with a tokenizer, and data that it learns in seconds.

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
