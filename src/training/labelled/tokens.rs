//! Labelled tokens in JSON lines and CoNLL's columns.

use super::super::label_names::LabelNames;
use super::label::{FoundNames, class_name};
use super::rows::{LineFile, LinesAt, RowIndex, RowStart, START, bad_row};
use crate::error::{Error, Result};
use burn::data::dataset::{Dataset, DatasetError};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The words of a sentence, each with its tag: an item of [`LabelledSentences`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledTokens {
    /// The words.
    pub tokens: Vec<String>,
    /// The ids of their tags.
    pub tags: Vec<usize>,
}

/// A file of sentences whose words are tagged, read lazily: 16 bytes per sentence are kept in memory.
///
/// The extension decides the format:
///
/// - `.jsonl`, `.ndjson`, `.json`: one object per line with the lists `tokens` and `tags` (or `ner_tags`), of names or
///   ids;
/// - any other: CoNLL's columns, one word per line with its tag in the last column, sentences separated by blank lines;
///   lines that start with `-DOCSTART-` are skipped.
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
    lines: LineFile,
    is_json: bool,
    index: RowIndex,
    names: LabelNames,
}

impl LabelledSentences {
    /// Opens a file and goes through it once: every sentence is checked, and the names of the tags are collected.
    ///
    /// # Errors
    ///
    /// [`Error::Row`], with the file and the line, if the numbers of words and tags differ or a line is malformed;
    /// [`Error::Io`], [`Error::NotUtf8`], and [`Error::File`] if there is no sentence.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(path.as_ref(), None)
    }

    /// Opens a file whose tags are those of another file, or of a model.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open), and [`Error::Row`] if a tag is none of `names`.
    pub fn open_with_names(path: impl AsRef<Path>, names: &LabelNames) -> Result<Self> {
        Self::read(path.as_ref(), Some(names.clone()))
    }

    fn read(path: &Path, names: Option<LabelNames>) -> Result<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let is_json = matches!(extension.to_ascii_lowercase().as_str(), "jsonl" | "ndjson" | "json");
        let file = LineFile::open(path)?;
        let mut found = FoundNames::default();
        let mut starts = Vec::new();
        let mut lines = file.lines_at(START)?;
        while let Some((start, sentence)) = next_sentence(&mut lines, is_json, path)? {
            match &names {
                Some(names) => {
                    sentence.look_up(names).map(drop).map_err(|problem| bad_row(path, start.line, problem))?
                }
                None => found.add(&sentence.tags),
            }
            starts.push(start);
        }
        if starts.is_empty() {
            return Err(Error::no_text(path));
        }
        let index = RowIndex { starts, end: lines.position().byte };
        drop(lines);
        Ok(Self { lines: file, is_json, index, names: names.unwrap_or_else(|| found.finish()) })
    }

    /// The names of the tags.
    pub fn names(&self) -> &LabelNames {
        &self.names
    }

    /// The size of each sentence in bytes, an estimate of its length for [length
    /// bucketing](super::LabelledLoader::with_length_bucketing).
    pub fn sizes(&self) -> Vec<usize> {
        self.index.sizes()
    }
}

impl Dataset<LabelledTokens> for LabelledSentences {
    fn get(&self, index: usize) -> Result<LabelledTokens, DatasetError> {
        let start = self.index.starts[index];
        let path: PathBuf = self.lines.path().to_path_buf();
        let sentence = || -> Result<LabelledTokens> {
            let changed = || bad_row(&path, start.line, "no longer exists; the file changed");
            let sentence = next_sentence(&mut self.lines.lines_at(start)?, self.is_json, &path)?;
            let (_, sentence) = sentence.ok_or_else(changed)?;
            let tags = sentence.look_up(&self.names);
            let tags = tags.map_err(|problem| bad_row(&path, start.line, problem))?;
            Ok(LabelledTokens { tokens: sentence.tokens, tags })
        };
        sentence().map_err(DatasetError::new)
    }

    fn len(&self) -> usize {
        self.index.starts.len()
    }
}

/// Words, and the names or ids of their tags.
#[derive(Default)]
struct Sentence {
    tokens: Vec<String>,
    tags: Vec<String>,
}

impl Sentence {
    fn from_json(line: &str) -> Result<Self, String> {
        let object: Map<String, Value> =
            serde_json::from_str(line).map_err(|error| format!("is not a JSON object: {error}"))?;
        let list = |keys: &[&str]| {
            let list = keys.iter().find_map(|&key| object.get(key)).and_then(Value::as_array);
            list.ok_or_else(|| format!("has no list {:?}", keys[0]))
        };
        let token = |value: &Value| {
            value
                .as_str()
                .map(String::from)
                .ok_or_else(|| format!("has the token {value}, which is not a string"))
        };
        let tag = |value: &Value| {
            class_name(value).ok_or_else(|| format!("has the tag {value}, which is not a name or an id"))
        };
        let tokens: Vec<String> = list(&["tokens"])?.iter().map(token).collect::<Result<_, _>>()?;
        let tags: Vec<String> = list(&["tags", "ner_tags"])?.iter().map(tag).collect::<Result<_, _>>()?;
        if tokens.len() != tags.len() {
            return Err(format!("has {} tokens, but {} tags", tokens.len(), tags.len()));
        }
        Ok(Self { tokens, tags })
    }

    fn look_up(&self, names: &LabelNames) -> Result<Vec<usize>, String> {
        self.tags.iter().map(|tag| names.id(tag)).collect()
    }
}

/// The next sentence and where it starts; blank lines before it are skipped.
fn next_sentence(
    lines: &mut LinesAt<'_>,
    is_json: bool,
    path: &Path,
) -> Result<Option<(RowStart, Sentence)>> {
    let mut sentence = Sentence::default();
    let mut first = None;
    while let Some((start, line)) = lines.next_line()? {
        let line = line.trim();
        let is_end = line.is_empty() || (!is_json && line.starts_with("-DOCSTART-"));
        if is_end && first.is_none() {
            continue;
        }
        if is_end {
            break;
        }
        if is_json {
            let sentence = Sentence::from_json(line).map_err(|problem| bad_row(path, start.line, problem))?;
            return Ok(Some((start, sentence)));
        }
        first.get_or_insert(start);
        let mut columns = line.split_whitespace();
        let (Some(token), Some(tag)) = (columns.next(), columns.next_back()) else {
            return Err(bad_row(path, start.line, format!("has the word {line:?}, but no tag")));
        };
        sentence.tokens.push(token.to_string());
        sentence.tags.push(tag.to_string());
    }
    Ok(first.map(|start| (start, sentence)))
}
