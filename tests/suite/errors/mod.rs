//! Every error of the crate: a use that provokes it, its whole message and its cause.

mod checkpoints;
#[cfg(not(feature = "hub"))]
mod hub;
mod inputs;
#[cfg(feature = "train")]
mod labelled_files;
mod labels;
#[cfg(feature = "train")]
mod runs;
#[cfg(feature = "tokenizers")]
mod tokenizers;

use crate::prelude::*;
use crate::small_bert::small_layer as embeddings;
use std::error::Error as _;

/// A function for each variant, which makes a row of its message and what provokes it.
#[allow(non_snake_case, dead_code)] // some rows need a feature
mod row {
    macro_rules! variants {
        ($($variant:ident)*) => {
            $(
                pub fn $variant(message: &'static str, provoke: super::Provoke) -> super::Row {
                    let is_variant = |error: &_| matches!(error, burn_bert::Error::$variant { .. });
                    super::Row { variant: stringify!($variant), is_variant, provoke, message, cause: "" }
                }
            )*
        };
    }
    variants! {
        CheckpointDType CheckpointShape Config ConfigFile CorruptCheckpoint CorruptTokenizer DTypeMismatch
        Data DeviceMismatch Empty File IdOutOfRange IdOverflow Io Json LabelOutOfRange MissingKey
        NotACheckpoint NotUtf8 RaggedRows Resize Row SequenceTooLong ShapeMismatch Tokenize Training
        UnsupportedModel
    }
}

/// What provokes an error, in an empty directory of its own.
type Provoke = fn(&Path) -> Error;

/// One way to an error.
struct Row {
    /// The name of the variant.
    variant: &'static str,
    is_variant: fn(&Error) -> bool,
    provoke: Provoke,
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
        #[cfg(feature = "tokenizers")]
        tokenizers::rows(),
        #[cfg(feature = "train")]
        labelled_files::rows(),
        #[cfg(feature = "train")]
        runs::rows(),
    ];
    parts.into_iter().flatten()
}

/// `main` prints the message of an error and each cause once.
#[test]
fn every_error_is_and_prints_what_the_table_says() {
    let mut wrong = Vec::new();
    for Row { variant, is_variant, provoke, message, cause } in table() {
        let dir = tempdir().unwrap();
        let error = provoke(dir.path());
        let found = error.to_string().replace(&dir.path().display().to_string(), "DIR");
        let first: Option<&dyn std::error::Error> = error.source();
        let causes: Vec<String> =
            std::iter::successors(first, |error| (**error).source()).map(ToString::to_string).collect();
        let is_caused =
            causes.first().map_or(cause.is_empty(), |first| !cause.is_empty() && first.contains(cause));
        let printed = format!("{error:?}");
        let is_printed = printed.starts_with(&error.to_string())
            && causes.iter().all(|cause| printed.matches(cause).count() == 1);
        if !is_variant(&error) || found != message || !is_caused || !is_printed {
            wrong.push(format!(
                "expected {variant}: {message}\n  because of {cause:?}\n   found {found}\n  because of {causes:?}\n printed {printed}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
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
    let source = include_str!("../../../src/error.rs");
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

fn bert() -> BertModelConfig {
    let mut bert = small_bert(10, 4).with_intermediate_size(8);
    bert.embeddings = embeddings();
    bert
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
