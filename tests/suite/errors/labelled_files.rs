//! Labelled files and plain text.

use super::{Row, file, row};
use crate::prelude::*;

fn refused(dir: &Path, name: &str, content: &str, columns: &Columns) -> Error {
    LabelledTexts::open(file(dir, name, content), columns).unwrap_err()
}

pub fn rows() -> Vec<Row> {
    vec![
        row::Row("DIR/a.csv, line 1: the row has 2 fields, but none at index 5", |dir| {
            refused(dir, "a.csv", "a,b\n", &Columns::default().with_texts([5]).with_label(1).without_header())
        }),
        row::Row("DIR/a.txt, line 3: the row has the word \"b\", but no tag", |dir| {
            LabelledSentences::open(file(dir, "a.txt", "a O\n\nb\n")).unwrap_err()
        }),
        row::File("DIR/a.csv has no text: it is empty, or has only blank lines or a header", |dir| {
            refused(dir, "a.csv", "text,label\n", &Columns::default())
        }),
        row::Data("the columns of texts are 3, but must be one, or two of a pair", |dir| {
            let three = Columns::default().with_texts(["a", "b", "c"]);
            refused(dir, "a.csv", "a,b,c,label\nd,e,f,g\n", &three)
        }),
        row::Data(
            "column \"text\" of DIR/a.csv is in the header twice; rename one, or select it by index",
            |dir| refused(dir, "a.csv", "text,label,text\na,b,c\n", &Columns::default()),
        ),
        row::NotUtf8(
            "DIR/a.txt is not UTF-8: line 2 has an invalid byte at offset 13 of the file; convert the file, with \
             iconv for example",
            |dir| PlainText::open(file(dir, "a.txt", b"first\nthe caf\xe9\n")).unwrap_err(),
        ),
        row::File("DIR/a.txt has no text: it is empty, or has only blank lines or a header", |dir| {
            PlainText::open(file(dir, "a.txt", "\n \n")).unwrap_err()
        }),
    ]
}
