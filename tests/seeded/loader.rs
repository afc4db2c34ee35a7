//! Loaders of a text: the same windows in the same order wherever they begin, and no more of the file is read than
//! that takes.

use crate::small_text::{WORDS, collator, corpus, folder, tokenizer};
use crate::turn;
use burn::data::dataloader::DataLoader;
use burn::prelude::*;
use burn_bert::Error;
use burn_bert::model::MaskedLmBatch;
use burn_bert::training::{
    Corpus, MaskedLmCollatorConfig, MaskedLmExample, TrainingLoader, ValidationLoader, WindowIndex,
};
use std::fs;
use std::path::Path;
use std::time::Instant;

#[test]
fn windows_hold_the_whole_text_once_a_pass_but_for_those_held_out() {
    let dir = folder();
    let corpus = corpus(dir.path(), 14);
    // 1,500 words, twelve a window: 125 windows, of which 0, 20, … 120 are held out.
    let held_out = corpus.held_out(100).unwrap();
    assert_eq!(held_out.len(), 7);
    assert_eq!(held_out[0].input_ids(), [2, 5, 6, 7, 8, 9, 10, 5, 6, 7, 8, 9, 10, 3]);
    assert!(corpus.held_out(0).unwrap().is_empty());

    let numbered: String =
        (0..125).map(|i| format!("{} {}\n", "a ".repeat(i % 12), "mat ".repeat(12))).collect();
    fs::write(dir.path().join("text"), numbered).unwrap();
    let changed = corpus.held_out(1).unwrap_err().to_string();
    assert!(changed.contains("changed since it was indexed"), "{changed}");
    let corpus = self::corpus(dir.path(), 14);
    let pass = |seed: u64| corpus.training(seed).take(300).collect::<Result<Vec<_>, _>>().unwrap();
    let ids = |windows: &[MaskedLmExample]| {
        let mut ids: Vec<Vec<u32>> = windows.iter().map(|window| window.input_ids().to_vec()).collect();
        ids.sort();
        ids
    };
    assert!(pass(1) == pass(1));
    assert!(pass(1) != pass(2));
    // 2,170 words are 181 windows: 10 are held out, and each pass gives the other 171 in an order of its own.
    let (first, second) = (pass(1), pass(2));
    assert!(ids(&first[..171]) == ids(&second[..171]), "the same windows");
    assert!(first[..129] != first[171..], "in another order");

    // Fewer than there are come from all over the file, the same at every call.
    let all = corpus.held_out(10).unwrap();
    assert_eq!(all.len(), 10);
    assert!(all.iter().all(|window| !first[..171].contains(window)), "never trained on");
    let some = corpus.held_out(3).unwrap();
    let places: Vec<_> =
        some.iter().filter_map(|window| all.iter().position(|other| other == window)).collect();
    assert!(places.len() == 3 && places.iter().any(|&place| place > 4), "{places:?}");
    assert!(some == corpus.held_out(3).unwrap());
}

#[test]
fn texts_that_cannot_be_trained_on_are_errors_that_say_why() {
    let dir = folder();
    let path = dir.path().join("text");
    let open = |seq_len| Corpus::open(&path, tokenizer(dir.path()).with_model_max_length(16), seq_len);
    for seq_len in [2, 17] {
        assert!(matches!(open(seq_len), Err(Error::Config { field: "seq_len", .. })));
    }
    fs::write(&path, "the cat").unwrap();
    let message = open(14).unwrap().held_out(4).unwrap_err().to_string();
    assert!(message.contains("one window"), "{message}");
    fs::write(&path, "\n \n").unwrap();
    assert!(matches!(open(14), Err(Error::NoText { .. })));
    fs::write(&path, [b"the cat sat\n".repeat(100).as_slice(), b"\xff\n"].concat()).unwrap();
    let error = open(14).unwrap().training(1).find_map(Result::err).unwrap();
    assert!(matches!(error, Error::NotUtf8 { line: 101, .. }), "{error}");
    let error = open(14).unwrap().held_out(1).unwrap_err();
    assert!(matches!(error, Error::NotUtf8 { line: 101, .. }), "before anything is trained: {error}");

    let device = Device::default();
    fs::write(&path, "the cat sat on a mat\n".repeat(100)).unwrap();
    let loader = |batch_size, batches| {
        TrainingLoader::new(open(14).unwrap(), collator(dir.path()), batch_size, batches, 1, &device).err()
    };
    assert!(matches!(loader(0, 1), Some(Error::Config { field: "batch_size", .. })));
    assert!(matches!(loader(1, 0), Some(Error::Config { field: "batches_per_epoch", .. })));
    let empty = ValidationLoader::new(Vec::new(), collator(dir.path()), 1, 1, &device).err();
    assert!(matches!(empty, Some(Error::Empty { .. })));
}

#[test]
fn a_text_of_one_window_says_so() {
    let dir = folder();
    fs::write(dir.path().join("text"), "the cat").unwrap();
    let message = corpus(dir.path(), 14).training(1).next().unwrap().unwrap_err().to_string();
    assert!(message.contains("one window"), "{message}");
}

#[test]
fn devices_that_share_an_epoch_get_all_of_its_windows_between_them() {
    let _turn = turn();
    let dir = folder();
    let device = Device::default();
    let text: String = (0..3000).map(|i: usize| format!("{} ", WORDS[i * i % 7 % 6])).collect();
    fs::write(dir.path().join("text"), text).unwrap();
    let collator =
        MaskedLmCollatorConfig::for_tokenizer(&tokenizer(dir.path())).with_mlm_probability(0.0).init();
    let loader = TrainingLoader::new(corpus(dir.path(), 14), collator, 4, 6, 1, &device).unwrap();
    let ids = |loader: &dyn DataLoader<MaskedLmBatch>| {
        let batches = loader.iter().map(|batch| batch.unwrap().input.input_ids().unwrap().into_data());
        batches.flat_map(|ids| ids.iter::<i64>().collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let halves = [loader.slice(0, 12), loader.slice(12, 24)];
    for _ in 0..2 {
        let whole = ids(&loader);
        assert_eq!(whole.len(), 24 * 14);
        assert_eq!(halves.each_ref().map(|half| ids(half.as_ref())).concat(), whole);
    }
}

#[test]
fn a_clone_of_a_loader_counts_its_own_epochs() {
    let _turn = turn();
    let dir = folder();
    let loader =
        TrainingLoader::new(corpus(dir.path(), 14), collator(dir.path()), 4, 3, 1, &Device::default());
    let loader = loader.unwrap();
    let clone = loader.clone();
    let first_ids = |loader: &TrainingLoader| {
        let batch = loader.iter().next().unwrap().unwrap();
        batch.input.input_ids().unwrap().into_data().iter::<i64>().collect::<Vec<_>>()
    };
    assert_eq!(first_ids(&loader), first_ids(&clone), "both begin with the first epoch");
}

/// A text of 2,900 windows in lines of all lengths, blank and without words some of them.
fn long_text(dir: &Path) {
    let mut text = String::new();
    for i in 0..4000_usize {
        let words = (0..i * i % 17).map(|j| WORDS[(i * 7 + j * j) % 6]);
        text.push_str(&words.collect::<Vec<_>>().join(" "));
        text.push_str(if i % 50 == 0 { "\r\n\n  \n" } else { "\n" });
    }
    text.push_str(&"cat mat ".repeat(3000));
    fs::write(dir.join("text"), text).unwrap();
}

/// FNV-1a of numbers.
fn digest(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let step = |hash: u64, number: u64| (hash ^ number).wrapping_mul(0x0100_0000_01b3);
    numbers.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn digest_of_epoch(loader: &dyn DataLoader<MaskedLmBatch>) -> u64 {
    let numbers = |batch: MaskedLmBatch| {
        let ids = batch.input.input_ids().unwrap().into_data();
        let labels = batch.labels().unwrap().into_data();
        ids.iter::<i64>().chain(labels.iter::<i64>()).map(|id| id as u64).collect::<Vec<_>>()
    };
    digest(loader.iter().flat_map(|batch| numbers(batch.unwrap())))
}

#[test]
fn windows_and_batches_come_in_the_order_that_they_always_had() {
    let _turn = turn();
    let dir = folder();
    long_text(dir.path());
    let corpus = corpus(dir.path(), 14);
    // Recorded with the loader that read everything in one stream.
    let windows = corpus.training(7).take(7000).flat_map(|window| {
        let window = window.unwrap();
        let words = window.word_ids().unwrap().iter().map(|word| word.map_or(u64::MAX, u64::from));
        window.input_ids().iter().map(|&id| u64::from(id)).chain(words).collect::<Vec<_>>()
    });
    assert_eq!(digest(windows), 0x30b0_9bcc_7a6f_d38d);
    let held_out = corpus.held_out(50).unwrap();
    let ids = held_out.iter().flat_map(|window| window.input_ids().iter().map(|&id| u64::from(id)));
    assert_eq!(digest(ids), 0x680b_a1fa_3f81_585f);
    let loader = TrainingLoader::new(corpus, collator(dir.path()), 8, 150, 7, &Device::default()).unwrap();
    let epochs = [0x2aa1_2ffe_c53c_f9cb, 0x0ad9_4674_922c_560c, 0x8dd4_4c30_9f39_5245, 0x5a3e_5986_562e_08dc];
    assert_eq!([(); 4].map(|()| digest_of_epoch(&loader)), epochs);
}

/// A loader of four epochs of the long text, with its index.
fn long_loader(dir: &Path, index: Option<WindowIndex>) -> TrainingLoader {
    let corpus = corpus(dir, 14);
    let corpus = match index {
        Some(index) => corpus.with_index(index).unwrap(),
        None => corpus,
    };
    TrainingLoader::new(corpus, collator(dir), 8, 150, 7, &Device::default()).unwrap()
}

/// Overwrites bytes of the text by bytes that are not UTF-8, so that reading them fails.
fn break_text(dir: &Path, place: impl FnOnce(usize) -> usize) {
    let path = dir.join("text");
    let mut text = fs::read(&path).unwrap();
    let place = place(text.len());
    text[place] = 0xff;
    fs::write(path, text).unwrap();
}

#[test]
fn a_loader_that_begins_later_gives_what_the_whole_one_gives_there() {
    let _turn = turn();
    let dir = folder();
    long_text(dir.path());
    let index = corpus(dir.path(), 14).index().unwrap().clone();
    let whole = long_loader(dir.path(), None);
    let epochs = [(); 5].map(|()| digest_of_epoch(&whole)); // more than one pass over the text
    for begin in 0..5 {
        let resumed = long_loader(dir.path(), Some(index.clone())).starting_after(begin);
        assert_eq!(digest_of_epoch(&resumed), epochs[begin], "epoch {begin}");
        let clone = resumed.clone();
        if begin < 4 {
            assert_eq!(digest_of_epoch(&clone), epochs[begin + 1], "the clone goes on");
        }
    }
}

#[test]
fn a_resumed_loader_does_not_read_what_comes_before() {
    let _turn = turn();
    let dir = folder();
    long_text(dir.path());
    let index = corpus(dir.path(), 14).index().unwrap().clone();
    let serialised = serde_json::to_string(&index).unwrap();
    let expected = digest_of_epoch(&long_loader(dir.path(), None).starting_after(1));
    break_text(dir.path(), |_| 12); // of the first window, which is held out
    let index: WindowIndex = serde_json::from_str(&serialised).unwrap();
    let resumed = long_loader(dir.path(), Some(index.clone())).starting_after(1);
    assert_eq!(digest_of_epoch(&resumed), expected);

    fs::write(dir.path().join("text"), "another text").unwrap();
    let error = corpus(dir.path(), 14).with_index(index).unwrap_err();
    assert!(matches!(error, Error::Config { field: "index", .. }), "{error}");
}

#[test]
fn a_damaged_index_is_refused() {
    let dir = folder();
    let index = serde_json::to_value(corpus(dir.path(), 14).index().unwrap()).unwrap();
    let damage = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut index = index.clone();
        change(&mut index);
        corpus(dir.path(), 14).with_index(serde_json::from_value(index).unwrap())
    };
    damage(&|_| {}).unwrap();
    for error in [
        damage(&|index| index["stride"] = 0.into()).unwrap_err(),
        damage(&|index| index["windows"] = 126.into()).unwrap_err(),
        damage(&|index| index["places"] = serde_json::json!([])).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Config { field: "index", .. }), "{error}");
    }
}

#[test]
fn a_long_line_is_tokenised_once_for_all_of_its_windows() {
    let dir = folder();
    fs::write(dir.path().join("text"), "cat mat ".repeat(12_000)).unwrap(); // 2,000 windows, of which 100 are held out
    let corpus = corpus(dir.path(), 14);
    let start = Instant::now();
    corpus.index().unwrap();
    let once = start.elapsed();
    let start = Instant::now();
    assert_eq!(corpus.held_out(100).unwrap().len(), 100);
    let all = start.elapsed();
    assert!(all < 10 * once, "{all:?} against {once:?} for one pass over the text");
}

#[test]
fn a_device_does_not_read_the_part_of_another() {
    let _turn = turn();
    let dir = folder();
    long_text(dir.path());
    let index = corpus(dir.path(), 14).index().unwrap().clone();
    let halves = || {
        let whole = long_loader(dir.path(), Some(index.clone()));
        [whole.slice(0, 600), whole.slice(600, 1200)]
    };
    let expected = digest_of_epoch(halves()[0].as_ref());
    break_text(dir.path(), |length| length * 2 / 3);
    let [first, second] = halves();
    assert_eq!(digest_of_epoch(first.as_ref()), expected);
    let error = second.iter().find_map(Result::err).expect("the other half has the broken byte");
    assert!(error.to_string().contains("UTF-8") || format!("{error:?}").contains("NotUtf8"), "{error:?}");
    assert!(second.iter().find_map(Result::err).is_some(), "and has it again");
}

#[test]
fn an_error_in_the_text_ends_an_epoch_after_the_batches_before_it() {
    let _turn = turn();
    let dir = folder();
    long_text(dir.path());
    break_text(dir.path(), |length| length - 10);
    let loader = long_loader(dir.path(), None);
    let epochs = [(); 3].map(|()| loader.iter().map(|batch| batch.is_ok()).collect::<Vec<_>>());
    assert_eq!(epochs[0].len(), 150);
    assert!(epochs[0].iter().all(|&is_ok| is_ok));
    let last = epochs.iter().find(|epoch| epoch.len() < 150).expect("the text is at its end");
    assert_eq!(last.iter().filter(|&&is_ok| !is_ok).count(), 1);
    assert!(!last[last.len() - 1]);
}
