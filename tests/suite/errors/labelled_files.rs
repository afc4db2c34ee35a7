//! Labelled files and plain text.

use super::{Row, file, row};
use crate::prelude::*;

fn refused(dir: &Path, name: &str, content: &str, columns: &Columns) -> Error {
    LabelledTexts::open(file(dir, name, content), columns).unwrap_err()
}

pub fn rows() -> Vec<Row> {
    vec![
        row::Row("DIR/a.csv, line 3: the row has 3 fields, but the first row has 2", |dir| {
            refused(dir, "a.csv", "text,label\na,b\nc,d,e\n", &Columns::default())
        }),
        row::Row("DIR/a.csv, line 1: the row has 2 fields, but none at index 5", |dir| {
            refused(dir, "a.csv", "a,b\n", &Columns::default().with_texts([5]).with_label(1).without_header())
        }),
        row::Row("DIR/a.csv, line 2: the row has no label", |dir| {
            refused(dir, "a.csv", "text,label\na,\n", &Columns::default())
        }),
        row::Row(
            "DIR/a.csv, line 2: the row has the label \"no\", but the labels are [\"maybe\", \"yes\"]",
            |dir| {
                let path = file(dir, "a.csv", "text,label\na,no\n");
                let names = ["maybe", "yes"].map(String::from).to_vec();
                LabelledTexts::open_with_names(path, &Columns::default(), &names).unwrap_err()
            },
        ),
        row::Row("DIR/a.jsonl, line 1: the row has 5 in the field \"text\", which is not a string", |dir| {
            refused(dir, "a.jsonl", r#"{"text": 5, "label": 1}"#, &Columns::default())
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
        row::Data("column \"text\" of DIR/a.csv is not in the header, which is [\"a\", \"label\"]", |dir| {
            refused(dir, "a.csv", "a,label\nb,c\n", &Columns::default())
        }),
        row::Data(
            "column \"text\" of DIR/a.csv is in the header twice; rename one, or select it by index",
            |dir| refused(dir, "a.csv", "text,label,text\na,b,c\n", &Columns::default()),
        ),
        row::Data("the extension of DIR/a.txt is \"txt\", but must be csv, tsv or jsonl", |dir| {
            refused(dir, "a.txt", "a\n", &Columns::default())
        }),
        row::Row(
            "DIR/a.csv, line 2: the row has a quote that is not closed; close it, or double a quote that is part of a \
             quoted field",
            |dir| refused(dir, "a.csv", "text,label\n\"a,b\nc,d\n", &Columns::default()),
        ),
        row::NotUtf8(
            "DIR/a.txt is not UTF-8: line 2 has an invalid byte at offset 13 of the file; convert the file, with \
             iconv for example",
            |dir| PlainText::open(file(dir, "a.txt", b"first\nthe caf\xe9\n")).unwrap_err(),
        ),
        row::File("DIR/a.txt has no text: it is empty, or has only blank lines or a header", |dir| {
            PlainText::open(file(dir, "a.txt", "\n \n")).unwrap_err()
        }),
        row::Row("DIR/a.csv, line 2: the row has 1 field, but the first row has 2", |dir| {
            refused(dir, "a.csv", "text,label\na\n", &Columns::default())
        }),
    ]
}
