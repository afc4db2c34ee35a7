//! Loaders of a text: the same windows in the same order wherever they begin.

use crate::checkpoint::{self, WORDS, collator, first_windows, folder, tokenizer, training_loader};
use crate::prelude::*;
use std::collections::BTreeSet;

/// Collates windows of which nothing is masked.
fn unmasked(dir: &Path) -> MaskedLmCollator {
    MaskedLmCollatorConfig::for_tokenizer(&tokenizer(dir)).with_mlm_probability(0.0).init()
}

/// The ids of the windows that a loader gives, batch by batch.
fn ids(epoch: Epoch<MaskedLmBatch>) -> Vec<Vec<i64>> {
    let of_batch = |batch: MaskedLmBatch| {
        let [_, seq] = batch.input.dims();
        let ids: Vec<i64> = batch.input.input_ids().unwrap().into_data().iter().collect();
        ids.chunks(seq).map(<[i64]>::to_vec).collect::<Vec<_>>()
    };
    epoch.flat_map(|batch| of_batch(batch.unwrap())).collect()
}

fn sorted(windows: &[Vec<i64>]) -> Vec<Vec<i64>> {
    let mut windows = windows.to_vec();
    windows.sort();
    windows
}

/// The ids of so many windows from the training of a text, of which nothing is masked.
fn windows(dir: &Path, seed: u64, count: usize) -> Vec<Vec<i64>> {
    ids(training_loader(dir, unmasked(dir), 1, count, seed).epoch(0))
}

/// A text of 171 windows, each of which has its number in words, three times.
fn write_numbered(dir: &Path) {
    let digits = |i: usize| (0..4).map(move |place| WORDS[i / 6_usize.pow(place) % 6]);
    let numbered: Vec<_> = (0..171).flat_map(|i| (0..3).flat_map(move |_| digits(i))).collect();
    fs::write(dir.join("text"), numbered.join(" ")).unwrap();
}

#[test]
fn windows_hold_the_whole_text_once_a_pass() {
    let _turn = turn();
    let dir = folder();
    // 1,500 words, twelve a window.
    let all = checkpoint::windows(dir.path(), 14);
    assert_eq!(all.len(), 125);
    assert_eq!(all.get(0).unwrap().input_ids, [2, 5, 6, 7, 8, 9, 10, 5, 6, 7, 8, 9, 10, 3]);

    write_numbered(dir.path());
    let (first, second) = (windows(dir.path(), 1, 342), windows(dir.path(), 2, 342));
    assert!(first == windows(dir.path(), 1, 342));
    assert!(first != second);
    // Each pass gives them in an order of its own.
    let mut in_order: Vec<Vec<i64>> = (checkpoint::windows(dir.path(), 14).iter())
        .map(|window| window.unwrap().input_ids.iter().map(|&id| i64::from(id)).collect())
        .collect();
    in_order.sort();
    assert!(in_order == sorted(&first[..171]), "every window");
    assert!(sorted(&first[..171]) == sorted(&second[..171]), "the same windows");
    assert!(sorted(&first[..171]) == sorted(&first[171..]), "the same windows again");
    assert!(first[..171] != first[171..], "in another order");

    // A line of the text may be longer than the tokenizer's limit.
    fs::write(dir.path().join("text"), format!("{} ", WORDS.join(" ")).repeat(250)).unwrap();
    let limited = tokenizer(dir.path()).with_model_max_length(14);
    let limited = PlainText::open(dir.path().join("text")).unwrap().windows(limited, 14).unwrap();
    assert_eq!(limited.len(), 125);
    assert_eq!(limited.get(124).unwrap(), checkpoint::windows(dir.path(), 14).get(124).unwrap());
}

#[test]
fn texts_that_cannot_be_trained_on_are_errors_that_say_why() {
    let dir = folder();
    let path = dir.path().join("text");
    let open =
        |seq_len| PlainText::open(&path)?.windows(tokenizer(dir.path()).with_model_max_length(16), seq_len);
    for seq_len in [2, 17] {
        assert!(matches!(open(seq_len), Err(Error::Config { field: "seq_len", .. })));
    }
    let device = Device::default();
    fs::write(&path, "the cat sat on a mat\n".repeat(100)).unwrap();
    open(16).unwrap(); // the limit itself
    let loader = |batch_size, batches| {
        let loader = EpochLoader::new(collator(dir.path()).batches(open(14).unwrap()), batch_size, &device);
        loader.and_then(|loader| loader.with_batches_per_epoch(batches)).err()
    };
    assert!(matches!(loader(0, 1), Some(Error::Config { field: "batch_size", .. })));
    assert!(matches!(loader(1, 0), Some(Error::Config { field: "batches_per_epoch", .. })));
    assert!(matches!(loader(2, usize::MAX), Some(Error::Config { field: "batches_per_epoch", .. })));
    fs::write(&path, "\u{200d}").unwrap(); // no token
    let empty = EpochLoader::new(collator(dir.path()).batches(open(14).unwrap()), 1, &device).err();
    assert!(matches!(empty, Some(Error::Empty { .. })));
}

#[test]
fn every_validation_masks_the_same_tokens_in_batches_of_their_own() {
    let _turn = turn();
    let dir = folder();
    let first = InMemDataset::new(first_windows(dir.path(), 7));
    let loader = EpochLoader::new(collator(dir.path()).batches(first), 3, &Device::default()).unwrap();
    let masked = |loader: &dyn DataLoader<MaskedLmBatch>| {
        loader.iter().map(|batch| batch.unwrap().positions().to_vec()).collect::<Vec<_>>()
    };
    let first = masked(&loader);
    assert_eq!((first.len(), loader.num_items()), (3, 7));
    assert_ne!(first[0], first[1]);
    assert_eq!(masked(&loader), first);
    let [again, to_device] = [loader.slice(0, 7), loader.to_device(&Device::default())];
    assert!(masked(again.as_ref()) == first && masked(to_device.as_ref()) == first);
    assert_eq!(loader.slice(3, 6).num_items(), 3);
}

#[test]
fn a_run_that_goes_on_with_other_numbers_of_ranks_goes_on_at_the_same_place() {
    let _turn = turn();
    let dir = folder();
    write_numbered(dir.path());
    let expected = windows(dir.path(), 1, 171); // a pass
    let mut found = Vec::new();
    // 19 shards of nine windows: two epochs on one rank, three on three and four on two.
    for (epochs, shards, ranks, count) in [(0, 0, 1, 2), (2, 2, 3, 3), (5, 11, 2, 4)] {
        for rank in 0..ranks {
            let loader =
                training_loader(dir.path(), unmasked(dir.path()), 3, 3, 1).shard(rank, ranks).unwrap();
            let loader = loader.starting_at(epochs, 9 * shards);
            (epochs..epochs + count).for_each(|epoch| found.extend(ids(loader.epoch(epoch))));
        }
    }
    assert_eq!(sorted(&found), sorted(&expected), "every window once");
}

#[test]
fn windows_know_which_tokens_are_of_one_word() {
    let dir = folder();
    let vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nmat\n##s\ncat\n";
    fs::write(dir.path().join("vocab.txt"), vocabulary).unwrap();
    fs::write(dir.path().join("text"), "mats cat cat\nmatss mats mats mats mats cat cat").unwrap();
    // The second window would begin within a word.
    let window = checkpoint::windows(dir.path(), 8).get(0).unwrap();
    assert_eq!(window.input_ids, [2, 5, 6, 7, 7, 5, 6, 3]);
    let words = [None, Some(1), Some(1), Some(2), Some(3), Some(4), Some(4), None];
    assert_eq!(window.word_ids.unwrap(), words);
}

/// Items that are batches of themselves.
fn numbers(count: usize) -> Batches<Vec<usize>> {
    Batches::new(InMemDataset::new((0..count).collect()), |items: &[usize], _| Ok(items.to_vec()))
}

fn items(batches: Batches<Vec<usize>>) -> Vec<usize> {
    let loader = EpochLoader::new(batches, 3, &Device::default()).unwrap();
    loader.epoch(0).flat_map(|batch| batch.unwrap()).collect()
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
    let sources: Vec<usize> = (0..20).map(|place| place / 4).collect();
    let (train, valid) = numbers(20).with_sources(sources).split(0.4, 3).unwrap();
    let [train, valid] = [train, valid].map(items);
    let of = |items: &[usize]| items.iter().map(|item| item / 4).collect::<BTreeSet<_>>();
    assert_eq!((train.len(), valid.len()), (12, 8));
    assert!(of(&train).is_disjoint(&of(&valid)));
    says(numbers(20).with_sources(vec![0; 19]).split(0.4, 3), "sources number 19");
}

#[test]
fn batches_have_no_two_equal_texts_until_there_is_no_other_choice() {
    let epoch = |texts: Vec<Vec<u64>>, batch_size| {
        let batches = numbers(texts.len()).with_texts(texts);
        let loader = EpochLoader::new(batches, batch_size, &Device::default()).unwrap().with_shuffling(3);
        let batches: Vec<Vec<usize>> = loader.epoch(0).map(|batch| batch.unwrap()).collect();
        let mut all = batches.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..loader.num_items()), "every item once");
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
