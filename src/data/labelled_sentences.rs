use super::examples::{Example, Examples, counted};
use super::labelled_file::{LabelledFile, extension, is_json};
use super::labels::{Classes, LabelKind};
use crate::error::Result;
use crate::pipeline::{has_scheme, split, tag};
use serde_json::Value;
use std::path::Path;

/// The words of a sentence, each with its tag: an item of [`LabelledSentences`]; [`Examples`] has an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelledTokens {
    /// The words.
    pub tokens: Vec<String>,
    /// The ids of their tags.
    pub tags: Vec<usize>,
}

/// Sentences of tagged words in memory: the words, 32 bytes per word and 48 per sentence; while it is read, the file as well.
///
/// The extension of a file decides its format:
///
/// - `.jsonl`, `.ndjson`, `.json`: one object per line with the lists `tokens` (or `words`) and `tags` (or `ner_tags`, `labels`), of names
///   or ids; a word with the tag −100 has no label;
/// - `.conllu`: CoNLL-U, with words in column 2 and the tags, universal parts of speech, in column 4; comments, ranges of
///   words (`1-2`) and empty nodes (`1.1`) are skipped;
/// - any other: CoNLL, one word per line with its tag in the last column, a blank line after each sentence. Tabs separate
///   the columns of a line that has one, else spaces. Lines that start with `-DOCSTART-` are skipped, and so are those
///   that start with `#`, unless they have as many columns as the first line that does not.
///
/// [`Examples`] has an example.
pub type LabelledSentences = Examples<LabelledTokens>;

impl Example for LabelledTokens {
    const NAME: &'static str = "sentences";

    fn check(&self, _: &Self) -> Result<(), String> {
        match (self.tokens.len(), self.tags.len()) {
            (tokens, tags) if tokens == tags => Ok(()),
            (tokens, tags) => Err(format!("has {}, but {}", counted(tokens, "token"), counted(tags, "tag"))),
        }
    }

    fn is_blank(&self) -> bool {
        self.tokens.is_empty()
    }

    fn classes(&self) -> &[usize] {
        &self.tags
    }

    fn scheme(names: &[String]) -> Option<&'static str> {
        let has = |prefixes: &[&str]| names.iter().any(|name| prefixes.contains(&split(name).0));
        Some(match () {
            () if !has_scheme(names) => "none, each is a class; entities need tags such as B-PER and I-PER",
            () if has(&["L", "U"]) => "BILOU",
            () if has(&["E", "S", "M", "W"]) => "BIOES",
            () if has(&["B"]) => "BIO",
            () => "IO",
        })
    }

    fn rename(&mut self, ids: &[usize]) {
        self.tags.iter_mut().filter(|tag| **tag != UNLABELLED).for_each(|tag| *tag = ids[*tag]);
    }

    fn size(&self) -> usize {
        self.tokens.len()
    }
}

impl LabelledSentences {
    /// Reads a file and the names of its tags, which get their ids as in [`LabelledTexts::open`](super::LabelledTexts::open).
    /// Returns [`Error::Row`](crate::Error::Row), with the file and the line, if the numbers of words and tags differ or a
    /// line is malformed; [`Error::File`](crate::Error::File) if it is not a regular file, has no sentence or more than 4 GiB;
    /// [`Error::Io`](crate::Error::Io), [`Error::NotUtf8`](crate::Error::NotUtf8).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(path.as_ref(), None)
    }

    /// Reads a file with the tags of another file, or of a model, as
    /// [`LabelledTexts::open_with_names`](super::LabelledTexts::open_with_names) does; a tag that is none of them is an error too.
    pub fn open_with_names(path: impl AsRef<Path>, names: &[String]) -> Result<Self> {
        Self::read(path.as_ref(), Some(names))
    }

    fn read(path: &Path, names: Option<&[String]>) -> Result<Self> {
        let file = LabelledFile::read(path)?;
        let mut classes = Classes::new(LabelKind::Class, names);
        let sentences = match extension(path).as_str() {
            "conllu" => read_columns(&file, &mut classes, true),
            other if is_json(other) => read_json(&file, &mut classes),
            _ => read_columns(&file, &mut classes, false),
        };
        let path_again = path.to_path_buf();
        let reread = move |names: &[String]| Self::read(&path_again, Some(names)).map(drop);
        Self::from_file(path, file.not_empty(sentences?)?, classes, reread)
    }
}

fn read_json(file: &LabelledFile, classes: &mut Classes) -> Result<Vec<LabelledTokens>> {
    file.rows(true)?.read(|object| {
        let list = |keys: &[&str]| {
            let list = keys.iter().find_map(|&key| object.get(key)).and_then(Value::as_array);
            list.ok_or_else(|| format!("has no list {:?}", keys[0]))
        };
        let token = |value: &Value| {
            let token = value.as_str().map(String::from);
            token.ok_or_else(|| format!("has the token {value}, which is not a string"))
        };
        let tokens = list(&["tokens", "words"])?.iter().map(token).collect::<Result<_, _>>()?;
        let tags = list(&["tags", "ner_tags", "labels"])?;
        let tag = |tag: &Value| match tag.as_i64() {
            Some(IGNORED_LABEL) => Ok(UNLABELLED),
            _ => classes.class(tag),
        };
        let tags = tags.iter().map(tag).collect::<Result<_, _>>()?;
        let sentence = LabelledTokens { tokens, tags };
        sentence.check(&sentence).map(|()| sentence)
    })
}

fn read_columns(file: &LabelledFile, classes: &mut Classes, is_conll_u: bool) -> Result<Vec<LabelledTokens>> {
    // What ends a line after its last column; a line with fewer columns than others lacks its tag.
    let filled = |columns: &[&str]| {
        columns.iter().rposition(|column| !column.trim().is_empty()).map_or(0, |last| last + 1)
    };
    let words = || file.lines().filter(|(_, text)| !text.starts_with('#') && !is_break(text));
    let widest = words().map(|(_, text)| filled(&columns(text))).max().unwrap_or(0);
    // A `#` may also begin a word, as in "#1": a comment is told by its number of columns.
    let usual = words().next().map_or(0, |(_, text)| columns(text).len().min(widest));
    let mut sentences = Vec::new();
    let mut sentence = LabelledTokens::default();
    for (offset, text) in file.lines() {
        if is_break(text) {
            sentences.push(std::mem::take(&mut sentence));
            continue;
        }
        // `str::lines` takes a carriage return only together with a line feed.
        if text.contains('\r') {
            let problem = "has a carriage return inside; end lines with a line feed";
            return Err(file.bad_row(offset, problem.into()));
        }
        let mut columns = columns(text);
        if !is_conll_u && filled(&columns) == widest {
            columns.truncate(widest);
        }
        let (word, tag) = match columns[..] {
            _ if text.starts_with('#') && (is_conll_u || columns.len() != usual) => continue,
            // The words of a range are on lines of their own, and an empty node has no word in the text.
            [id, ..] if is_conll_u && id.contains(['-', '.']) => continue,
            [_, word, _, tag, ..] if is_conll_u => (word, Ok(tag)),
            [word, .., tag] if !is_conll_u => (word, Ok(tag)),
            _ => ("", Err(format!("has the word {text:?}, but no tag"))),
        };
        let tag = tag.and_then(|tag| classes.id(tag, false));
        let tag = tag.and_then(|tag| if word.is_empty() { Err("has no word".into()) } else { Ok(tag) });
        sentence.tags.push(tag.map_err(|problem| file.bad_row(offset, problem))?);
        sentence.tokens.push(word.to_string());
    }
    // The last sentence may end without a blank line.
    sentences.push(sentence);
    sentences.retain(|sentence| !sentence.tokens.is_empty());
    Ok(sentences)
}

fn is_break(line: &str) -> bool {
    line.trim_ascii().is_empty() || line.starts_with("-DOCSTART-")
}

/// The columns of a line. Other white space, such as U+00A0, is part of a word; a space is too where tabs separate.
fn columns(line: &str) -> Vec<&str> {
    let separator = if line.contains('\t') { '\t' } else { ' ' };
    line.split(separator).filter(|column| separator == '\t' || !column.is_empty()).collect()
}

/// The label of a token without a tag, which the loss ignores, as in PyTorch; [`Examples`] has an example of tags.
pub const IGNORED_LABEL: i64 = -100;

/// The tag of a word that has none, where a file is only partly tagged.
pub(super) const UNLABELLED: usize = IGNORED_LABEL as usize;

/// The tag of the first, the last or a middle part of a word, if there is such a one: of `S-X`, `B-X`, `E-X` or `I-X`.
pub(super) fn part_of_tag(id: usize, names: &[String], is_first: bool, is_last: bool) -> usize {
    let ((prefix, _), (position, kind)) = (split(&names[id]), tag(&names[id], true));
    let other = match (position, is_first, is_last) {
        (_, true, true) => return id,
        ('S', true, _) => "B",
        ('B', true, _) | ('E' | 'S', _, true) => match prefix {
            "U" => "L",
            "S" | "W" => "E",
            _ => return id,
        },
        _ => "I",
    };
    let named = |prefix: &str| names.iter().position(|name| split(name) == (prefix, kind));
    // BMES and BMEW have `M` for the inside.
    named(other).or_else(|| named("M").filter(|_| other == "I")).unwrap_or(id)
}
