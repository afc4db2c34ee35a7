//! A corpus, line by line.

use crate::prelude::*;
use burn_bert::Result;

fn file(content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let path = dir.path().join("corpus.txt");
    std::fs::write(&path, content).unwrap();
    (dir, path)
}

fn lines(content: impl AsRef<[u8]>) -> Vec<String> {
    let (_dir, path) = file(content);
    Lines::open(path).unwrap().collect::<Result<_>>().unwrap()
}

/// The pieces that `text` comes in.
fn pieces(text: &str, max_bytes: usize) -> Vec<String> {
    let (_dir, path) = file(text);
    Lines::open_with_max_bytes(path, max_bytes).unwrap().collect::<Result<_>>().unwrap()
}

#[test]
fn blank_lines_are_skipped_and_the_rest_is_trimmed() {
    assert_eq!(lines("one\n\n  two words \n\t\n\u{3000}\nthree"), ["one", "two words", "three"]);
    assert_eq!(lines("no line break"), ["no line break"]);
    assert_eq!(lines("\n\n\nlast\n\n"), ["last"]);
}

#[test]
fn lines_of_windows_and_a_byte_order_mark_are_read() {
    assert_eq!(lines("\u{feff}我爱\r\n北京\r\n"), ["我爱", "北京"]);
    // Only at the start of the file is it one.
    assert_eq!(lines("a\n\u{feff}b"), ["a", "\u{feff}b"]);
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
fn what_is_not_utf8_is_named_by_line_and_byte() {
    let (_dir, path) = file(b"first\nsecond\r\n\nthe caf\xe9 is open\nlast\n");
    let mut lines = Lines::open(&path).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    assert_eq!(lines.next().unwrap().unwrap(), "second");
    let error = lines.next().unwrap().unwrap_err();
    assert!(matches!(&error, Error::NotUtf8 { line: 4, offset: 22, .. }), "{error:?}");
    let message = error.to_string();
    assert!(
        message.contains("corpus.txt is not UTF-8: line 4 ") && message.contains("offset 22"),
        "{message}"
    );
    assert!(lines.next().is_none(), "nothing comes after an error");
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
fn lines_are_counted_across_pieces() {
    let (_dir, path) = file(b"aa bb cc dd\naa bb cc dd ee ff\nx\xff");
    let error = Lines::open_with_max_bytes(path, 5).unwrap().find_map(Result::err).unwrap();
    assert!(matches!(error, Error::NotUtf8 { line: 3, offset: 31, .. }), "{error:?}");
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_the_path() {
    let dir = tempdir().unwrap();
    for path in [dir.path().to_path_buf(), dir.path().join("missing.txt")] {
        let error = Lines::open(&path).unwrap_err();
        assert!(matches!(&error, Error::Io { .. } | Error::File { .. }), "{error:?}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn a_bound_below_one_character_is_refused() {
    let (_dir, path) = file("text");
    let error = Lines::open_with_max_bytes(path, 3).unwrap_err();
    assert!(matches!(error, Error::Config { field: "max_bytes", .. }), "{error:?}");
}
