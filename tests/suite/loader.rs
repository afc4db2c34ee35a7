//! Windows of a text, and loaders: the same items in the same order wherever they begin.

use crate::prelude::*;
use burn::data::dataset::{Dataset, InMemDataset};
use std::collections::BTreeSet;

const WORDS: [&str; 6] = ["the", "cat", "sat", "on", "a", "mat"];

/// 1,500 words, twelve a window of 14 tokens.
fn text() -> PlainText {
    PlainText::new(vec![WORDS.join(" "); 250]).unwrap()
}

fn collator() -> MaskedLmCollator {
    MaskedLmCollatorConfig::for_tokenizer(&tokenizer_of(&WORDS)).init()
}

#[test]
fn windows_hold_the_whole_text() {
    let all = text().windows(tokenizer_of(&WORDS), 14).unwrap();
    assert_eq!(all.len(), 125);
    assert_eq!(all.get(0).unwrap().input_ids, [2, 5, 6, 7, 8, 9, 10, 5, 6, 7, 8, 9, 10, 3]);
    // A line of the text may be longer than the tokenizer's limit.
    let line = PlainText::new([WORDS.join(" ") + " "].map(|words| words.repeat(250))).unwrap();
    let limited = line.windows(tokenizer_of(&WORDS).with_model_max_length(14), 14).unwrap();
    assert_eq!((limited.len(), limited.get(124).unwrap()), (125, all.get(124).unwrap()));
}

#[test]
fn texts_that_cannot_be_trained_on_are_errors_that_say_why() {
    let tokenizer = tokenizer_of(&WORDS).with_model_max_length(16);
    let open = |text: PlainText, seq_len| text.windows(tokenizer.clone(), seq_len);
    for seq_len in [2, 17] {
        assert!(matches!(open(text(), seq_len), Err(Error::Config { field: "seq_len", .. })));
    }
    open(text(), 16).unwrap(); // the limit itself
    let loader = |text, batch_size, batches| {
        let loader = EpochLoader::new(collator().batches(open(text, 14).unwrap()), batch_size, &device());
        loader.and_then(|loader| loader.with_batches_per_epoch(batches)).err()
    };
    let epoch = "batches_per_epoch";
    for (size, batches, name) in [(0, 1, "batch_size"), (1, 0, epoch), (2, usize::MAX, epoch)] {
        let error = loader(text(), size, batches);
        assert!(matches!(error, Some(Error::Config { field, .. }) if field == name), "{error:?}");
    }
    assert!(matches!(loader(PlainText::new(["\u{200d}"]).unwrap(), 1, 1), Some(Error::Empty { .. })));
}

#[test]
fn every_validation_masks_the_same_tokens_in_batches_of_their_own() {
    let windows = text().windows(tokenizer_of(&WORDS), 14).unwrap();
    let first = InMemDataset::new(windows.iter().take(7).map(|window| window.unwrap()).collect());
    let loader = EpochLoader::new(collator().batches(first), 3, &device()).unwrap();
    let masked =
        |epoch| -> Vec<_> { loader.epoch(epoch).map(|batch| batch.unwrap().positions().to_vec()).collect() };
    let first = masked(0);
    assert_eq!((first.len(), loader.num_batches()), (3, 3));
    assert_ne!(first[0], first[1]);
    assert_eq!(masked(1), first);
}

#[test]
fn windows_know_which_tokens_are_of_one_word() {
    // The second window would begin within a word.
    let text = PlainText::new(["mats cat cat", "matss mats mats mats mats cat cat"]).unwrap();
    let window = text.windows(tokenizer_of(&["mat", "##s", "cat"]), 8).unwrap().get(0).unwrap();
    assert_eq!(window.input_ids, [2, 5, 6, 7, 7, 5, 6, 3]);
    let words = [None, Some(1), Some(1), Some(2), Some(3), Some(4), Some(4), None];
    assert_eq!(window.word_ids.unwrap(), words);
}

/// Items that are batches of themselves.
fn numbers(count: usize) -> Batches<Vec<usize>> {
    Batches::new(InMemDataset::new((0..count).collect()), |items: &[usize], _| Ok(items.to_vec()))
}

fn items(batches: Batches<Vec<usize>>) -> Vec<usize> {
    let loader = EpochLoader::new(batches, 3, &device()).unwrap();
    loader.epoch(0).flat_map(|batch| batch.unwrap()).collect()
}

#[test]
fn a_run_that_goes_on_with_other_numbers_of_ranks_goes_on_at_the_same_place() {
    let mut found = Vec::new();
    // 19 shards of nine items: two epochs on one rank, three on three and four on two.
    for (epochs, shards, ranks, count) in [(0, 0, 1, 2), (2, 2, 3, 3), (5, 11, 2, 4)] {
        for rank in 0..ranks {
            let loader = EpochLoader::new(numbers(171), 3, &device()).unwrap().with_shuffling(1);
            let loader = loader.with_batches_per_epoch(3).unwrap().shard(rank, ranks).unwrap();
            let loader = loader.starting_at(epochs, 9 * shards);
            let items = (epochs..epochs + count).flat_map(|epoch| loader.epoch(epoch));
            found.extend(items.flat_map(|batch| batch.unwrap()));
        }
    }
    found.sort_unstable();
    assert!(found.into_iter().eq(0..171), "every item once");
}

#[test]
fn a_validation_share_is_disjoint_seeded_and_complete() {
    let split = |seed| {
        let (train, valid) = numbers(20).split(0.25, seed).unwrap();
        (items(train), items(valid))
    };
    let (train, valid) = split(1);
    assert_eq!((train.len(), valid.len()), (15, 5));
    let all: BTreeSet<usize> = train.into_iter().chain(valid.clone()).collect();
    assert_eq!(all.len(), 20);
    assert_eq!(split(1).1, valid);
    assert_ne!(split(2).1, valid);
    for (count, share) in [(20, 0.01), (20, 0.99), (4, 0.1)] {
        says(numbers(count).split(share, 1), "use more data, another share");
    }
    // Items of one source stay together.
    let of_four = numbers(20).with_sources((0..20).map(|place| place / 4).collect()).split(0.4, 3);
    let [train, valid] = <[_; 2]>::from(of_four.unwrap()).map(items);
    let sources = |items: &[usize]| items.iter().map(|item| item / 4).collect::<BTreeSet<_>>();
    assert_eq!((train.len(), valid.len()), (12, 8));
    assert!(sources(&train).is_disjoint(&sources(&valid)));
    says(numbers(20).with_sources(vec![0; 19]).split(0.4, 3), "sources number 19");
}

#[test]
fn batches_have_no_two_equal_texts_until_there_is_no_other_choice() {
    let epoch = |texts: Vec<Vec<u64>>, batch_size| {
        let count = texts.len();
        let batches = numbers(count).with_texts(texts);
        let loader = EpochLoader::new(batches, batch_size, &device()).unwrap().with_shuffling(3);
        let batches: Vec<Vec<usize>> = loader.epoch(0).map(|batch| batch.unwrap()).collect();
        let mut all = batches.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..count), "every item once");
        batches
    };
    // Thirty items, of which three each share their second text; both texts of the first may be equal.
    let texts: Vec<Vec<u64>> = (0..30).map(|i| vec![100 + i, if i == 0 { 100 } else { i / 3 }]).collect();
    let shared = |batch: &Vec<usize>| {
        let seen: BTreeSet<_> = batch.iter().map(|&item| texts[item][1]).collect();
        seen.len() < batch.len()
    };
    let batches = epoch(texts.clone(), 5);
    assert!(!batches[..5].iter().any(shared), "{batches:?}");
    assert!(epoch(vec![vec![1]; 6], 4).iter().map(Vec::len).eq([4, 2]), "all share their text");
    // Quadratic, this would take minutes.
    epoch((0..200_000).map(|i| vec![i % 3, i]).collect(), 16);
}
