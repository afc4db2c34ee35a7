//! A corpus, line by line.

use crate::prelude::*;
use burn_bert::Result;

fn file(content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let path = dir.path().join("corpus.txt");
    std::fs::write(&path, content).unwrap();
    (dir, path)
}

/// The pieces that `text` comes in.
fn pieces(text: &str, max_bytes: usize) -> Vec<String> {
    let (_dir, path) = file(text);
    Lines::open_with_max_bytes(path, max_bytes).unwrap().collect::<Result<_>>().unwrap()
}

#[test]
fn lines_are_trimmed_whatever_ends_them_and_blank_ones_are_skipped() {
    for (content, expected) in [
        ("one\n\n  two words \n\t\n\u{3000}\nthree", &["one", "two words", "three"][..]),
        ("no line break", &["no line break"]),
        ("\n\n\nlast\n\n", &["last"]),
        ("\u{feff}我爱\r\n北京\r\n", &["我爱", "北京"]),
        // Only at the start of the file is it a byte order mark.
        ("a\n\u{feff}b", &["a", "\u{feff}b"]),
    ] {
        assert_eq!(pieces(content, usize::MAX), expected, "{content:?}");
    }
}

#[test]
fn a_long_line_comes_in_pieces_that_are_cut_at_white_space() {
    assert_eq!(pieces("aa bb cc dd ee\nff", 8), ["aa bb", "cc dd", "ee", "ff"]);
    // Eight bytes with the line break fit; without white space it is cut between characters.
    assert_eq!(pieces("abcdefg\nabcdefghij", 8), ["abcdefg", "abcdefgh", "ij"]);
    assert_eq!(pieces("我爱北京天安门", 8), ["我爱", "北京", "天安", "门"]);
}

#[test]
fn pieces_are_the_line_for_any_bound() {
    let text = "the cat 我爱北京天安门 sat😀😀😀on\u{3000}the mat ééééééééé ".repeat(20);
    let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    for max_bytes in 4..200 {
        let pieces = pieces(&text, max_bytes);
        assert_eq!(bare(&pieces.concat()), bare(&text));
        assert!(pieces.iter().all(|piece| piece.len() <= max_bytes && piece.trim() == piece));
    }
}

#[test]
fn what_is_not_utf8_is_named_by_line_and_byte_across_pieces() {
    for (content, max_bytes, expected) in [
        (&b"first\nsecond\r\n\nthe caf\xe9 is open\nlast\n"[..], 100, (4, 22)),
        (b"aa bb cc dd\naa bb cc dd ee ff\nx\xff", 5, (3, 31)),
    ] {
        let (_dir, path) = file(content);
        let mut lines = Lines::open_with_max_bytes(&path, max_bytes).unwrap();
        let error = lines.find_map(Result::err).unwrap();
        let Error::NotUtf8 { line, offset, .. } = error else { panic!("{error:?}") };
        assert_eq!((line, offset), expected, "{content:?}");
        assert!(lines.next().is_none(), "nothing comes after an error");
    }
}

#[test]
fn a_character_that_the_file_breaks_off_is_not_utf8() {
    let text = "我爱北京".as_bytes();
    for cut in [1, 2, 4, 5, 10, 11] {
        let (_dir, path) = file(&text[..cut]);
        for max_bytes in [4, 5, 6, 7, 100] {
            let lines = Lines::open_with_max_bytes(&path, max_bytes);
            let error = lines.and_then(|lines| lines.collect::<Result<Vec<_>>>()).unwrap_err();
            let start = cut as u64 / 3 * 3;
            assert!(matches!(error, Error::NotUtf8 { line: 1, offset, .. } if offset == start), "{error:?}");
        }
    }
}

#[test]
fn what_cannot_be_read_and_a_bound_below_one_character_are_refused() {
    let (_dir, path) = file("text");
    let error = Lines::open_with_max_bytes(path, 3).unwrap_err();
    assert!(matches!(error, Error::Config { field: "max_bytes", .. }), "{error:?}");
    let dir = tempdir().unwrap();
    for path in [dir.path().to_path_buf(), dir.path().join("missing.txt")] {
        let error = Lines::open(&path).unwrap_err();
        assert!(matches!(&error, Error::Io { .. } | Error::File { .. }), "{error:?}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}
