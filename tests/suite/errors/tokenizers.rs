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
        row::File(
            "DIR has neither tokenizer.json nor vocab.txt; save the tokenizer there (in Python: \
             AutoTokenizer.from_pretrained(..).save_pretrained(..)) or name one of these files",
            |dir| BertTokenizer::from_pretrained(dir).unwrap_err(),
        ),
        row::CorruptTokenizer("cannot parse tokenizer file DIR/tokenizer.json", |dir| {
            refused(dir, "tokenizer.json", "{")
        })
        .because("EOF while parsing"),
        row::File(
            "DIR/vocab.txt has no mask_token: its vocabulary lacks [MASK] and <mask>; if the token has another \
             name, set mask_token in tokenizer_config.json",
            |dir| refused(dir, "vocab.txt", &SPECIAL.replace("[MASK]", "the")),
        ),
        row::File(
            "DIR/vocab.txt has no pad_token: its vocabulary lacks <none>; if the token has another name, set \
             pad_token in tokenizer_config.json",
            |dir| {
                file(dir, "tokenizer_config.json", r#"{"pad_token": "<none>"}"#);
                refused(dir, "vocab.txt", SPECIAL)
            },
        ),
        row::Data(
            "the tokenizer's vocabulary has 6 tokens, but the model has 5 word embeddings; is this the \
             tokenizer that the model was made with? If tokens were added to it, resize_vocabulary adds rows",
            |dir| Pipeline::new(small_bert(5, 4).init(&device()), tokenizer(dir)).unwrap_err(),
        ),
        row::File(
            "DIR/added_tokens.json is of another tokenizer than the one that is saved, and would be read with it; remove \
             it, or choose another directory",
            |dir| {
                let source = dir.join("source");
                fs::create_dir(&source).unwrap();
                file(dir, "added_tokens.json", "{}");
                tokenizer(&source).save_pretrained(dir).unwrap_err()
            },
        ),
        row::File("DIR/vocab.txt has 900001 lines, but a vocabulary may have 900000 at most", |dir| {
            refused(dir, "vocab.txt", &"a\n".repeat(900_001))
        }),
        row::Data(
            "sequences of at most 2 tokens have no room for the 3 special tokens; set a larger model_max_length",
            |dir| tokenizer(dir).with_model_max_length(2).encode_pair("the", "the").unwrap_err(),
        ),
        row::Data(
            "windows that overlap by 7 tokens must hold more than that, but have room for only 6 beside the \
             special tokens; set a smaller stride or a larger model_max_length",
            |dir| tokenizer(dir).with_model_max_length(8).encode_windows(&"the ".repeat(9), 7).unwrap_err(),
        ),
        row::Data(
            "windows that overlap by 2 tokens must hold more than that, but have room for only 0 beside the special \
             tokens and the 9 tokens of \"the the the the the the the the the \"; set a smaller stride or a larger \
             model_max_length",
            |dir| {
                let tokenizer = tokenizer(dir).with_model_max_length(8);
                tokenizer.encode_pair_windows(&"the ".repeat(9), "", 2).unwrap_err()
            },
        ),
        row::Data(
            "the text at \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"… has more than 262144 bytes without a break between \
             words; shorten it",
            |dir| {
                let text = "the ".repeat(9) + &"a".repeat(10_000_000);
                tokenizer(dir).with_model_max_length(80).encode(&text).unwrap_err()
            },
        ),
        row::Tokenize("the tokenizer failed", |dir| {
            let vocab = r#"[["[PAD]", 0], ["[CLS]", 0], ["[SEP]", 0], ["[MASK]", 0]]"#;
            let model = format!(r#"{{"type": "Unigram", "vocab": {vocab}, "unk_id": null}}"#);
            let path = file(dir, "tokenizer.json", format!(r#"{{"model": {model}}}"#));
            BertTokenizer::from_pretrained(path).unwrap().encode("the").unwrap_err()
        })
        .because("Encountered an unknown token but `unk_id` is missing"),
    ]
}
