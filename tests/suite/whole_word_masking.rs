//! Words masked as a whole, and batches of fewer shapes.

use crate::prelude::*;

const PAD: u32 = 0;
const MASK: u32 = 3;
const VOCAB: usize = 1000;

fn config() -> MaskedLmCollatorConfig {
    MaskedLmCollatorConfig::new(VOCAB, MASK, PAD, vec![PAD, 1, 2, MASK])
}

/// Words of one, two and three tokens in turn, each id other than its neighbours'.
fn words(count: u32) -> (Vec<u32>, Vec<Option<u32>>) {
    let tokens = (0..count).flat_map(|word| std::iter::repeat_n(Some(word), 1 + word as usize % 3));
    let words: Vec<_> = tokens.collect();
    let ids = (0..words.len() as u32).map(|i| 4 + i % 900).collect();
    (ids, words)
}

/// Checks a share of n against p, within four standard errors.
pub fn assert_share(found: usize, n: usize, p: f64) {
    let (share, error) = (found as f64 / n as f64, 4.0 * (p * (1.0 - p) / n as f64).sqrt());
    assert!((share - p).abs() < error, "{share} is not {p} ± {error}");
}

fn input_ids(batch: &MaskedLmBatch) -> Vec<u32> {
    batch.input.input_ids().unwrap().into_data().iter().collect()
}

#[test]
fn a_word_is_masked_as_a_whole_or_not_at_all_at_the_rate_of_bert() {
    let (ids, words) = words(60_000);
    let mut after = ids.clone();
    let masked = config().init().mask_words(&mut after, &words, 1);

    let mut is_masked = vec![false; ids.len()];
    for &(place, label) in &masked {
        is_masked[place] = true;
        assert_eq!(label, ids[place]);
    }
    let mut masked_words = [0; 3];
    for (word, same) in words.chunk_by(|a, b| a == b).scan(0, |start, word| {
        let same = &is_masked[*start..*start + word.len()];
        *start += word.len();
        Some((word, same))
    }) {
        assert!(same.iter().all(|&masked| masked == same[0]), "{word:?} is masked in part");
        masked_words[word.len() - 1] += usize::from(same[0]);
    }
    // Each word counts once, however long it is.
    masked_words.into_iter().for_each(|count| assert_share(count, 20_000, 0.15));

    // Within a word each token is drawn for by itself. A random id is any of 1000.
    let masks = masked.iter().filter(|&&(place, _)| after[place] == MASK).count();
    let kept = masked.iter().filter(|&&(place, label)| after[place] == label).count();
    assert_share(masks, masked.len(), 0.8 + 0.1 / VOCAB as f64);
    assert_share(kept, masked.len(), 0.1 + 0.1 / VOCAB as f64);
    let pairs = masked.chunk_by(|a, b| words[a.0] == words[b.0]).filter(|word| word.len() == 2);
    let pairs: Vec<_> = pairs.map(|word| (after[word[0].0] == MASK, after[word[1].0] == MASK)).collect();
    let both = pairs.iter().filter(|&&(a, b)| a && b).count();
    assert_share(both, pairs.len(), 0.64);
}

#[test]
fn special_tokens_are_never_masked_and_end_a_word() {
    let collator = config().with_mlm_probability(0.5).init();
    let mut together = 0;
    for seed in 0..200 {
        let mut ids = [1, 7, 2, 8, MASK, 9, PAD];
        // Both texts of a pair count words from 0; an odd tokenizer gives even special tokens a word.
        let words = [None, Some(0), None, Some(0), Some(0), Some(0), Some(0)];
        let masked = collator.mask_words(&mut ids, &words, seed);
        assert_eq!((ids[0], ids[2], ids[4], ids[6]), (1, 2, MASK, PAD));
        let places: Vec<_> = masked.iter().map(|&(place, _)| place).collect();
        assert!(places.iter().all(|place| [1, 3, 5].contains(place)));
        together += usize::from(places.len() == 3);
    }
    assert_share(together, 200, 0.125);
}

#[test]
fn tokens_of_no_word_stand_for_themselves() {
    let collator = config().init();
    let ids: Vec<u32> = (0..2000).map(|i| 4 + i % 900).collect();
    let (mut singly, mut without) = (ids.clone(), ids);
    let expected = collator.mask(&mut singly, 5);
    assert_eq!(collator.mask_words(&mut without, &[None; 2000], 5), expected);
    assert_eq!(without, singly);
}

#[test]
fn batches_hide_whole_words_if_asked_to() {
    let device = device();
    let (ids, words) = words(900);
    let example = MaskedLmExample::new(ids.clone()).with_word_ids(words.clone());
    let collate = |config: MaskedLmCollatorConfig| {
        config.init().collate(std::slice::from_ref(&example), 7, &device).unwrap()
    };
    let (mut whole, mut single) = (ids.clone(), ids);
    config().init().mask_words(&mut whole, &words, 7);
    config().init().mask(&mut single, 7);
    assert_ne!(whole, single);
    assert_eq!(input_ids(&collate(config().with_whole_word_masking(true))), whole);
    assert_eq!(input_ids(&collate(config())), single, "word ids alone change nothing");
}

/// An example without word ids has a row in the table of errors.
#[test]
fn too_few_word_ids_are_an_error() {
    let collator = config().with_whole_word_masking(true).init();
    let short = MaskedLmExample::new(vec![1, 7, 2]).with_word_ids(vec![None]);
    let error = collator.collate(&[short], 0, &device()).unwrap_err();
    assert!(matches!(error, Error::ShapeMismatch { input: "word_ids", .. }), "{error:?}");
}

#[test]
fn batches_are_padded_to_a_multiple() {
    let device = device();
    let collator = config().with_mlm_probability(0.0).with_pad_to_multiple_of(Some(4)).init();
    let examples = [MaskedLmExample::new(vec![1, 7, 8, 9, 2]), MaskedLmExample::new(vec![1, 2])];
    let batch = collator.collate(&examples, 0, &device).unwrap();
    assert_eq!(batch.input.dims(), [2, 8]);
    assert_eq!(input_ids(&batch), [1, 7, 8, 9, 2, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0]);
    let padding: Vec<bool> = batch.padding.unwrap().rows().flatten().copied().collect();
    let is_padding = |length| (0..8).map(move |column| column >= length);
    assert_eq!(padding, is_padding(5).chain(is_padding(2)).collect::<Vec<_>>());

    let full = collator.collate(&[MaskedLmExample::new(vec![1, 7, 8, 2])], 0, &device).unwrap();
    assert_eq!((full.input.dims(), full.padding.is_none()), ([1, 4], true));
}

#[test]
fn padding_has_its_own_id_wherever_it_is_among_the_special_ones() {
    let device = device();
    let examples = [MaskedLmExample::new(vec![1, 2]), MaskedLmExample::new(vec![1])];
    for special in [vec![1, 2, 9], vec![9, 1, 2], vec![]] {
        let config = MaskedLmCollatorConfig::new(VOCAB, MASK, 9, special);
        let collator = config.with_mlm_probability(0.0).init();
        assert_eq!(input_ids(&collator.collate(&examples, 0, &device).unwrap()), [1, 2, 1, 9]);
    }
}
