//! What a file can make a load allocate is bounded by a small multiple of its size.

#[path = "support/counting_allocator/mod.rs"]
mod counting_allocator;

use burn::prelude::*;
use burn_bert::BertEmbeddingsConfig;
use counting_allocator::{Counting, count};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// A header is parsed into objects of up to so many bytes for each of its own.
const MULTIPLE: usize = 48;

const MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

/// A file of PyTorch 1.5 whose state dict is this pickle.
fn legacy(object: &[u8]) -> Vec<u8> {
    [MAGIC, b"\x80\x02M\xe9\x03.", b"\x80\x02}X\x0d\x00\x00\x00little_endian\x88s.", object, b"\x80\x02]."]
        .concat()
}

/// The first of the values memoized, and then a list of so many copies of what `each` makes of it.
fn repeated(first: &[u8], each: &[u8]) -> Vec<u8> {
    let copies = ((1 << 20) - first.len() - 16) / each.len();
    [b"\x80\x02", first, b"q\x000](", &each.repeat(copies), b"e."].concat()
}

fn text(length: usize) -> Vec<u8> {
    [b"X", &(length as u32).to_le_bytes()[..], &vec![b'a'; length]].concat()
}

#[test]
fn memory_follows_the_size_of_the_file() {
    let long = text(4 << 10);
    let ones = [&b"("[..], &b"K\x01".repeat(512), b"t"].concat();
    let storage = |key: &[u8]| {
        [&b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n"[..], key, b"X\x03\x00\x00\x00cpuK\x01tQ"]
            .concat()
    };
    let tensor = |key: &[u8], shape: &[u8]| {
        let storage = storage(key);
        [&b"ctorch._utils\n_rebuild_tensor\n("[..], &storage, b"K\x00", shape, shape, b"tR"].concat()
    };
    let name = "a".repeat(4 << 10);
    let class = format!("c{name}\n{name}\n").into_bytes();
    let copies = [
        ("text", long.clone()),
        ("a key of a dictionary", [b"}", &long[..], b"Ns"].concat()),
        ("names of a class", class.clone()),
        ("a key of a storage", storage(&long)),
        ("a key of a tensor's storage", tensor(&long, b")")),
        ("a shape", tensor(b"X\x01\x00\x00\x000", &ones)),
        ("an object", [&class[..], b")\x81"].concat()),
    ];
    let copies = copies.map(|(name, first)| (name, legacy(&repeated(&first, b"h\x00"))));
    let memoized =
        (0..1u32 << 18).flat_map(|id| [vec![b'r'], id.to_le_bytes().to_vec()].concat()).collect::<Vec<_>>();
    let files = [
        ("containers", legacy(&[&b"\x80\x02"[..], &b"]".repeat(1 << 20), b"."].concat())),
        ("marks", legacy(&[&b"\x80\x02"[..], &b"(".repeat(1 << 20), b"."].concat())),
        ("a memo", legacy(&[&b"\x80\x02]"[..], &memoized, b"."].concat())),
        ("paths", legacy(&paths())),
    ];
    let files = copies.into_iter().chain(files);
    let module = BertEmbeddingsConfig::new().with_vocab_size(9).with_hidden_size(4).init(&Device::default());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pytorch_model.bin");
    for (name, bytes) in files {
        std::fs::write(&path, &bytes).unwrap();
        let mut module = module.clone();
        let (result, used) = count(|| module.load(&path));
        eprintln!("{name}: {} bytes take {}, {}", bytes.len(), used.peak, result.as_ref().unwrap_err());
        let bound = MULTIPLE * bytes.len() + (64 << 10);
        assert!(used.peak < bound, "{name}: {} bytes for a file of {}", used.peak, bytes.len());
    }
    #[cfg(feature = "tokenizers")]
    a_vocabulary_takes_a_small_multiple_of_its_file();
}

#[cfg(feature = "tokenizers")]
fn a_vocabulary_takes_a_small_multiple_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vocab.txt");
    for lines in [899_000, 3_000_000] {
        let words: String = (0..lines).map(|i| format!("{i:x}\n")).collect();
        let text = format!("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n{words}");
        std::fs::write(&path, &text).unwrap();
        let (result, used) = count(|| burn_bert::text::BertTokenizer::from_pretrained(&path));
        eprintln!("{} bytes of a vocabulary take {}", text.len(), used.peak);
        assert_eq!(result.is_ok(), lines < 900_000);
        assert!(used.peak < (64 << 20) + MULTIPLE * text.len(), "{} bytes for {}", used.peak, text.len());
    }
}

/// Dictionaries of which each holds the one before it twice: paths double with every one.
fn paths() -> Vec<u8> {
    let mut pickle = b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s".to_vec();
    for depth in 1..150u8 {
        pickle.extend([b'}', b'q', depth, b'(', b'K', 0, b'h', depth - 1, b'K', 1, b'h', depth - 1, b'u']);
    }
    pickle.push(b'.');
    pickle
}
