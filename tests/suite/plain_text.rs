//! Text files for masked language modelling.

use crate::prelude::*;
use burn::data::dataset::Dataset;

#[test]
fn lines_are_trimmed_whatever_ends_them_and_blank_ones_are_skipped() {
    for (content, expected) in [
        ("one\n\n  two words \n\t\n\u{3000}\nthree", &["one", "two words", "three"][..]),
        ("\n\n\nlast\n\n", &["last"]),
        ("\u{feff}我爱\r\n北京\r\n", &["我爱", "北京"]),
        // Only at the start of the file is it a byte order mark.
        ("a\n\u{feff}b", &["a", "\u{feff}b"]),
    ] {
        let dir = folder(&[("text", content.as_bytes())]);
        let found = PlainText::open(dir.path().join("text")).unwrap();
        let expected = PlainText::new(expected.iter().copied()).unwrap();
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    }
}

#[test]
fn what_is_not_utf8_is_named_by_line_and_byte() {
    for (content, expected) in [
        (&b"first\nsecond\r\n\nthe caf\xe9 is open\nlast\n"[..], (4, 22)),
        // The file breaks off in a character.
        (&"我爱北京".as_bytes()[..10], (1, 9)),
    ] {
        let dir = folder(&[("text", content)]);
        let error = PlainText::open(dir.path().join("text")).unwrap_err();
        let Error::NotUtf8 { line, offset, .. } = error else { panic!("{error:?}") };
        assert_eq!((line, offset), expected, "{content:?}");
    }
}

/// Byte 2²⁰ is inside a word, and inside a character where there is no white space.
#[test]
fn a_line_of_megabytes_has_the_tokens_of_its_words() {
    let words = "cat 中中 ".repeat(100_000);
    for (line, tokens) in [(words, 300_000), ("中".repeat(400_000), 400_000)] {
        let windows = PlainText::new([line]).unwrap().windows(tokenizer_of(&["cat", "中"]), 7).unwrap();
        assert_eq!(windows.len(), tokens / 5);
        let all = windows.iter().flat_map(|window| window.unwrap().input_ids);
        assert!(all.filter(|id| ![2, 3].contains(id)).all(|id| [5, 6].contains(&id)), "no [UNK]");
    }
}
