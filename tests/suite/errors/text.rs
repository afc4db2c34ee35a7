//! Text files.

use super::{Row, file};
use crate::prelude::*;
use burn_bert::Result;

pub fn rows() -> Vec<Row> {
    vec![
        row!(
            NotUtf8,
            |dir| {
                let lines = Lines::open(file(dir, "a.txt", b"first\nthe caf\xe9\n"));
                lines.and_then(|lines| lines.collect::<Result<Vec<_>>>()).unwrap_err()
            },
            "DIR/a.txt is not UTF-8: line 2 has an invalid byte at offset 13 of the file; convert the file, with \
             iconv for example",
        ),
        row!(
            File,
            |dir| Lines::open(file(dir, "a.txt", "\n \n")).unwrap_err(),
            "DIR/a.txt has no text: it is empty, or has only blank lines or a header",
        ),
    ]
}
