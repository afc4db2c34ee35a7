//! Every error of the crate: a use that provokes it, its whole message and its cause.

/// A row of the table: a variant, what provokes it, and its message.
macro_rules! row {
    ($variant:ident, $provoke:expr, $message:expr $(,)?) => {
        $crate::errors::Row {
            variant: stringify!($variant),
            is_variant: |error| matches!(error, burn_bert::Error::$variant { .. }),
            provoke: $provoke,
            message: $message,
            cause: "",
        }
    };
}

mod checkpoints;
#[cfg(not(feature = "hub"))]
mod hub;
mod inputs;
#[cfg(feature = "train")]
mod labelled_files;
mod labels;
#[cfg(feature = "train")]
mod runs;
mod text;
#[cfg(feature = "tokenizers")]
mod tokenizers;

use crate::small_bert::small_layer as embeddings;
use burn::prelude::*;
use burn_bert::model::BertModelConfig;
use burn_bert::{BertEmbeddingsInput, Error};
use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};

/// One way to an error.
struct Row {
    /// The name of the variant.
    variant: &'static str,
    is_variant: fn(&Error) -> bool,
    /// What provokes it, in an empty directory of its own.
    provoke: fn(&Path) -> Error,
    /// The whole message, with `DIR` for that directory.
    message: &'static str,
    /// A part of the source's message; empty if there is no source.
    cause: &'static str,
}

impl Row {
    /// The error has a source, whose message has this in it.
    fn because(self, cause: &'static str) -> Self {
        Self { cause, ..self }
    }
}

/// The table; each module has the rows of one part of the crate.
fn table() -> impl Iterator<Item = Row> {
    let parts = [
        inputs::rows(),
        labels::rows(),
        checkpoints::rows(),
        text::rows(),
        #[cfg(feature = "tokenizers")]
        tokenizers::rows(),
        #[cfg(feature = "train")]
        labelled_files::rows(),
        #[cfg(feature = "train")]
        runs::rows(),
    ];
    parts.into_iter().flatten()
}

#[test]
fn every_error_is_what_the_table_says() {
    let mut wrong = Vec::new();
    for Row { variant, is_variant, provoke, message, cause } in table() {
        let dir = tempfile::tempdir().unwrap();
        let error = provoke(dir.path());
        let found = error.to_string().replace(&dir.path().display().to_string(), "DIR");
        let source = error.source().map(ToString::to_string);
        let is_caused =
            source.as_ref().map_or(cause.is_empty(), |source| !cause.is_empty() && source.contains(cause));
        if !is_variant(&error) || found != message || !is_caused {
            wrong.push(format!(
                "expected {variant}: {message}\n  because of {cause:?}\n   found {found}\n  because of {source:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_main_prints_of_an_error_is_its_message_and_each_cause_once() {
    for Row { variant, provoke, .. } in table() {
        let dir = tempfile::tempdir().unwrap();
        let error = provoke(dir.path());
        let printed = format!("{error:?}");
        assert!(printed.starts_with(&error.to_string()), "{variant}: {printed}");
        let mut cause = error.source();
        while let Some(error) = cause {
            assert_eq!(printed.matches(&error.to_string()).count(), 1, "{variant}, {error}: {printed}");
            cause = error.source();
        }
    }
}

/// The variants without a row, and why.
#[cfg(all(feature = "ndarray", feature = "tokenizers", feature = "train"))]
const EXCEPTIONS: [(&str, &str); 4] = [
    ("Hub", "is another one with the feature `hub`; `hub` and tests/hub have both"),
    ("UnreadableIds", "needs a browser or a device that is lost; a unit test of `layers::ids` has it"),
    ("Fused", "needs a device with wrong f64, or 4,096 parameters; the tests of burn-fused have both"),
    ("Rank", "needs mpirun; tests/distributed has it"),
];

/// With the features that some rows need.
#[cfg(all(feature = "ndarray", feature = "tokenizers", feature = "train"))]
#[test]
fn every_variant_has_a_row_or_a_reason_why_not() {
    use std::collections::BTreeSet;
    let source = include_str!("../../../src/error/mod.rs");
    let (_, variants) = source.split_once("pub enum Error {\n").unwrap();
    let (variants, _) = variants.split_once("\n}\n").unwrap();
    let declared: BTreeSet<&str> = variants
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(|line| line.split(|c: char| !c.is_alphanumeric()).next().unwrap())
        .collect();
    let in_table: BTreeSet<&str> = table().map(|row| row.variant).collect();
    let excepted: BTreeSet<&str> = EXCEPTIONS.into_iter().map(|(variant, _)| variant).collect();
    assert!(in_table.is_disjoint(&excepted), "a variant with a row is no exception");
    let known = &in_table | &excepted;
    assert!(known == declared, "declared alone or known alone: {:?}", &known ^ &declared);
}

fn device() -> Device {
    Device::default()
}

fn bert() -> BertModelConfig {
    BertModelConfig::new(embeddings())
        .with_num_hidden_layers(1)
        .with_num_attention_heads(2)
        .with_intermediate_size(8)
}

/// Two sequences of three tokens.
fn input() -> BertEmbeddingsInput {
    input_of(&[[2, 7, 3], [2, 8, 3]])
}

fn input_of<const S: usize>(rows: &[[i64; S]]) -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(rows, &device()).unwrap()
}

/// A new file.
fn file(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    path
}
