//! Labelled tokens in JSON lines and CoNLL's columns.

use super::super::label_names::LabelNames;
use super::file::{LabelledFile, Object, counted, extension, is_json};
use super::label::Classes;
use crate::error::Result;
use serde_json::Value;
use std::path::Path;

/// The words of a sentence, each with its tag: an item of [`LabelledSentences`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelledTokens {
    /// The words.
    pub tokens: Vec<String>,
    /// The ids of their tags.
    pub tags: Vec<usize>,
}

/// A file of sentences whose words are tagged, read into memory: the words themselves, 32 bytes per word and 48 per
/// sentence; while it is read, the file as well.
///
/// The extension decides the format:
///
/// - `.jsonl`, `.ndjson`, `.json`: one object per line with the lists `tokens` and `tags` (or `ner_tags`), of names or
///   ids;
/// - `.conllu`: CoNLL-U, of which the words are the second column and the tags the fourth, the universal parts of speech;
///   comments, ranges of words (`1-2`) and empty nodes (`1.1`) are skipped;
/// - any other: CoNLL's columns, one word per line with its tag in the last column, sentences separated by blank lines;
///   lines that start with `-DOCSTART-` are skipped. Columns are separated by tabs in a line that has one, and else by
///   spaces. A line that starts with `#` is a comment unless it has as many columns as the first line that does not.
///
/// ```
/// use burn::data::dataset::Dataset;
/// use burn_bert::training::LabelledSentences;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("train.conll");
/// std::fs::write(&path, "Ada NNP B-PER\nlaughs VBZ O\n\nHi UH O\n")?;
/// let sentences = LabelledSentences::open(&path)?;
/// assert_eq!(sentences.names().names(), ["B-PER", "O"]);
/// assert_eq!(sentences.get(0)?.tokens, ["Ada", "laughs"]);
/// assert_eq!(sentences.get(0)?.tags, [0, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LabelledSentences {
    sentences: Vec<LabelledTokens>,
    names: LabelNames,
}

impl LabelledSentences {
    /// Reads a file and the names of its tags, which get their ids as in
    /// [`LabelledTexts::open`](super::LabelledTexts::open).
    ///
    /// # Errors
    ///
    /// [`Error::Row`](crate::Error::Row), with the file and the line, if the numbers of words and tags differ or a line
    /// is malformed; [`Error::File`](crate::Error::File) if it is a FIFO or a device, has no sentence or more than 4 GiB;
    /// [`Error::Io`](crate::Error::Io), [`Error::NotUtf8`](crate::Error::NotUtf8).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(path.as_ref(), None)
    }

    /// Reads a file whose tags are those of another file, or of a model, written as in
    /// [`LabelledTexts::open_with_names`](super::LabelledTexts::open_with_names).
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open), and [`Error::Row`](crate::Error::Row) if a tag is none of `names`.
    pub fn open_with_names(path: impl AsRef<Path>, names: &LabelNames) -> Result<Self> {
        Self::read(path.as_ref(), Some(names))
    }

    fn read(path: &Path, names: Option<&LabelNames>) -> Result<Self> {
        let file = LabelledFile::read(path)?;
        let mut classes = Classes::new(names);
        let sentences = match extension(path).as_str() {
            "conllu" => of_columns(&file, &mut classes, true),
            other if is_json(other) => of_json(&file, &mut classes),
            _ => of_columns(&file, &mut classes, false),
        };
        let mut sentences = file.not_empty(sentences?)?;
        let (names, ids) = classes.finish();
        sentences.iter_mut().flat_map(|sentence| &mut sentence.tags).for_each(|tag| *tag = ids[*tag]);
        Ok(Self { sentences, names })
    }

    /// The names of the tags.
    pub fn names(&self) -> &LabelNames {
        &self.names
    }

    /// The number of words of each sentence, an estimate of its length for [length
    /// bucketing](super::LabelledLoader::with_length_bucketing).
    pub fn sizes(&self) -> Vec<usize> {
        self.sentences.iter().map(|sentence| sentence.tokens.len()).collect()
    }
}

in_memory!(LabelledSentences.sentences: LabelledTokens);

fn of_json(file: &LabelledFile, classes: &mut Classes) -> Result<Vec<LabelledTokens>> {
    let mut row = |object: &Object| {
        let list = |keys: &[&str]| {
            let list = keys.iter().find_map(|&key| object.get(key)).and_then(Value::as_array);
            list.ok_or_else(|| format!("has no list {:?}", keys[0]))
        };
        let token = |value: &Value| {
            let token = value.as_str().map(String::from);
            token.ok_or_else(|| format!("has the token {value}, which is not a string"))
        };
        let tokens: Vec<String> = list(&["tokens"])?.iter().map(token).collect::<Result<_, _>>()?;
        let tags = list(&["tags", "ner_tags"])?;
        let tags: Vec<usize> = tags.iter().map(|tag| classes.class(tag)).collect::<Result<_, _>>()?;
        if tokens.len() != tags.len() {
            return Err(format!(
                "has {}, but {}",
                counted(tokens.len(), "token"),
                counted(tags.len(), "tag")
            ));
        }
        Ok(LabelledTokens { tokens, tags })
    };
    let rows = file.objects().map(|object| {
        let (line, object) = object?;
        row(&object).map_err(|problem| file.bad_row(line, problem))
    });
    rows.collect()
}

/// The sentences of CoNLL's columns, or of CoNLL-U's.
fn of_columns(file: &LabelledFile, classes: &mut Classes, is_conll_u: bool) -> Result<Vec<LabelledTokens>> {
    let usual = file.lines().find(|(_, text)| !text.starts_with('#') && !is_break(text));
    let usual = usual.map_or(0, |(_, text)| columns(text).len());
    let mut sentences = Vec::new();
    let mut sentence = LabelledTokens::default();
    for (line, text) in file.lines() {
        if is_break(text) {
            sentences.push(std::mem::take(&mut sentence));
            continue;
        }
        let columns = columns(text);
        let (word, tag) = match columns[..] {
            _ if text.starts_with('#') && (is_conll_u || columns.len() != usual) => continue,
            [id, ..] if is_conll_u && id.contains(['-', '.']) => continue,
            [_, word, _, tag, ..] if is_conll_u => (word, Ok(tag)),
            [word, .., tag] if !is_conll_u => (word, Ok(tag)),
            _ => ("", Err(format!("has the word {text:?}, but no tag"))),
        };
        let tag = tag.and_then(|tag| classes.id(tag, false));
        let tag = tag.and_then(|tag| if word.is_empty() { Err("has no word".into()) } else { Ok(tag) });
        sentence.tags.push(tag.map_err(|problem| file.bad_row(line, problem))?);
        sentence.tokens.push(word.to_string());
    }
    sentences.push(sentence);
    sentences.retain(|sentence| !sentence.tokens.is_empty());
    Ok(sentences)
}

/// Whether a line separates sentences.
fn is_break(line: &str) -> bool {
    line.trim_ascii().is_empty() || line.starts_with("-DOCSTART-")
}

/// The columns of a line. Other white space, such as U+00A0, is part of a word; a space is too where tabs separate.
fn columns(line: &str) -> Vec<&str> {
    let separator = if line.contains('\t') { '\t' } else { ' ' };
    line.split(separator).filter(|column| separator == '\t' || !column.is_empty()).collect()
}
