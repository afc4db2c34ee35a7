//! Tokenizers.

use super::{Row, file, row};
use crate::prelude::*;

const SPECIAL: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

fn tokenizer(dir: &Path) -> BertTokenizer {
    BertTokenizer::from_pretrained(file(dir, "vocab.txt", format!("{SPECIAL}the\n"))).unwrap()
}

fn refused(dir: &Path, name: &str, content: &str) -> Error {
    file(dir, name, content);
    BertTokenizer::from_pretrained(dir).unwrap_err()
}

pub fn rows() -> Vec<Row> {
    vec![
        row::CorruptTokenizer("cannot parse tokenizer file DIR/tokenizer.json", |dir| {
            refused(dir, "tokenizer.json", "{")
        })
        .because("EOF while parsing"),
        row::File(
            "DIR/vocab.txt has no mask_token: its vocabulary lacks [MASK] and <mask>; if the token has another \
             name, set mask_token in tokenizer_config.json",
            |dir| refused(dir, "vocab.txt", &SPECIAL.replace("[MASK]", "the")),
        ),
        row::Data(
            "the tokenizer's vocabulary has 6 tokens, but the model has 5 word embeddings; is this the \
             tokenizer that the model was made with? If tokens were added to it, resize_vocabulary adds rows",
            |dir| Pipeline::new(small_bert(5, 4).init(&device()), tokenizer(dir)).unwrap_err(),
        ),
        row::File("DIR/vocab.txt has 900001 lines, but a vocabulary may have 900000 at most", |dir| {
            refused(dir, "vocab.txt", &"a\n".repeat(900_001))
        }),
        row::Tokenize("the tokenizer failed", |dir| {
            let vocab = r#"[["[PAD]", 0], ["[CLS]", 0], ["[SEP]", 0], ["[MASK]", 0]]"#;
            let model = format!(r#"{{"type": "Unigram", "vocab": {vocab}, "unk_id": null}}"#);
            let path = file(dir, "tokenizer.json", format!(r#"{{"model": {model}}}"#));
            BertTokenizer::from_pretrained(path).unwrap().encode("the").unwrap_err()
        })
        .because("Encountered an unknown token but `unk_id` is missing"),
    ]
}
