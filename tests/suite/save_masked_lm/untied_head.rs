//! Masked-language-model heads that are not tied to the word embeddings, and files that contradict themselves.

use super::with_tensors;
use crate::checkpoint_files::{Stored, tensors_of};
use crate::prelude::*;

const WORDS: &str = "bert.embeddings.word_embeddings.weight";
const DECODER: &str = "cls.predictions.decoder.weight";
const BIASES: [&str; 2] = ["cls.predictions.bias", "cls.predictions.decoder.bias"];

/// A copy of the fixture with tensors added, and `tie_word_embeddings` as said.
fn copy(tied: bool, added: Vec<Stored>) -> tempfile::TempDir {
    let dir = with_tensors("tiny_bert", |tensors| tensors.extend(added));
    set_fields(&dir, &[("tie_word_embeddings", json!(tied))]);
    dir
}

fn floats(key: &str, shape: &[usize], value: impl Fn(usize) -> f32) -> Stored {
    let count = shape.iter().product();
    let bytes = (0..count).flat_map(|index| value(index).to_le_bytes()).collect();
    Stored { bytes, ..Stored::f32(key, shape) }
}

fn load(dir: &Path) -> Result<(BertForMaskedLm, LoadReport), Error> {
    BertForMaskedLm::from_pretrained(dir, &device())
}

fn stored(dir: &Path, key: &str) -> Option<Vec<u8>> {
    Some(tensors_of(dir).into_iter().find(|tensor| tensor.key == key)?.bytes)
}

#[test]
fn a_decoder_of_its_own_scores_words_and_is_saved_again() {
    let decoder = floats(DECODER, &[40, 12], |index| (index as f32 * 0.37).sin());
    let bias = floats(BIASES[1], &[40], |index| index as f32);
    let dir = copy(false, vec![decoder, bias]);
    let model: BertForMaskedLm = loaded(&dir);
    assert!(!model.config().tie_word_embeddings);

    let hidden = Tensor::<2>::from_data([[0.3f32; 12]], &device());
    let found = values(model.scores(hidden.clone()).unwrap());
    // The same transform with the decoder in the place of the word embeddings, by hand.
    let (mut by_hand, _) = load(copy(true, vec![]).path()).unwrap();
    let indices = |count: usize| Tensor::<1, Int>::arange(0..count as i64, &device()).float();
    let words = &mut by_hand.bert.embeddings.word_embeddings.weight;
    *words = words.clone().map(|_| indices(480).mul_scalar(0.37).sin().reshape([40, 12]));
    by_hand.head.bias = by_hand.head.bias.map(|_| indices(40));
    assert_close(&found, &values(by_hand.scores(hidden).unwrap()), F32);

    let saved = saved(&model);
    assert_eq!(stored(saved.path(), DECODER), stored(dir.path(), DECODER));
    for bias in BIASES {
        assert_eq!(stored(saved.path(), bias), stored(dir.path(), BIASES[1]), "{bias}");
    }
    assert_eq!(config_json(saved.path())["tie_word_embeddings"], false);
    model.save_pretrained(dir.path()).unwrap();
    let _: BertForMaskedLm = loaded(&dir);
}

/// Whether a message says of these two tensors that they differ.
fn names(problem: &str, [first, second]: [&str; 2]) -> bool {
    problem.starts_with(&format!("has {first} and {second} that differ"))
}

#[test]
fn a_tied_head_whose_decoder_or_biases_differ_is_refused_by_both_names() {
    let decoder = floats(DECODER, &[40, 12], |_| 0.5);
    let other_shape = floats(DECODER, &[41, 12], |_| 0.5);
    for added in [decoder, other_shape] {
        let error = load(copy(true, vec![added]).path()).unwrap_err();
        assert!(matches!(&error, Error::File { problem, .. } if names(problem, [WORDS, DECODER])), "{error}");
        assert!(error.to_string().contains("tie_word_embeddings"), "{error}");
    }
    let bias = floats(BIASES[1], &[40], |_| 0.5);
    let error = load(copy(true, vec![bias]).path()).unwrap_err();
    assert!(matches!(&error, Error::File { problem, .. } if names(problem, BIASES)), "{error}");
}

#[test]
fn copies_of_a_tied_head_are_accepted_and_saved_once() {
    let dir = copy(true, vec![]);
    let (words, bias) = (stored(dir.path(), WORDS).unwrap(), stored(dir.path(), BIASES[0]).unwrap());
    let copy_of = |key, shape, bytes| Stored { bytes, ..Stored::f32(key, shape) };
    let dir = copy(true, vec![copy_of(DECODER, &[40, 12], words), copy_of(BIASES[1], &[40], bias)]);
    let model: BertForMaskedLm = loaded(&dir);
    model.save_pretrained(dir.path()).unwrap();
    assert_eq!((stored(dir.path(), DECODER), stored(dir.path(), BIASES[1])), (None, None));
}

#[test]
fn an_untied_head_without_a_decoder_is_refused_by_its_name() {
    let error = load(copy(false, vec![]).path()).unwrap_err();
    assert!(matches!(&error, Error::MissingKey { key, .. } if key == DECODER), "{error}");
}
