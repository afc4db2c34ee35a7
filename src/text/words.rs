//! The words of a text that get labels: the same in training and in use, whatever stands between them.

use super::{BertTokenizer, Encoding, TokenizedText};
use crate::error::Result;
use std::ops::Range;
use unicode_segmentation::UnicodeSegmentation;

/// A word of a text in a window: its first token, and its bytes in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) token: usize,
    pub(crate) bytes: Range<usize>,
}

impl BertTokenizer {
    /// As [`encode_windows`](Self::encode_windows), with the tokens of [`encode_words`](Self::encode_words) of the text's units: Unicode
    /// words (UAX #29), punctuation apart, and runs of a script without spaces, from which spaces are taken.
    pub(crate) fn encode_word_windows(&self, text: &str, stride: usize) -> Result<Vec<Encoding>> {
        let parts = parts(text);
        let units = self.units(text, &parts)?;
        let (spaced, lengths) = spaced(&units.iter().map(|unit| joined(text, unit)).collect::<Vec<_>>());
        self.windows(None, self.tokenize(&spaced[..])?, TokenizedText::Words(&spaced, &lengths), stride)
    }

    /// The words in a window that [`encode_word_windows`](Self::encode_word_windows) made of a text: a unit with spaces around it
    /// is one; in a run without spaces each of the tokenizer's pieces is.
    pub(crate) fn words(&self, text: &str, window: &Encoding) -> Result<Vec<Word>> {
        let parts = parts(text);
        let units = self.units(text, &parts)?;
        // The unit of each word beside it, and where its tokens begin and end in the unit.
        let mut words: Vec<(Word, u32, Range<usize>)> = Vec::new();
        for (token, unit) in window.word_ids().iter().enumerate() {
            let Some(unit) = *unit else { continue };
            let parts = units[unit as usize];
            let is_run = is_unspaced(text, &parts[0]);
            let (start, end) = window.offsets()[token];
            match words.last_mut().filter(|(_, last, _)| *last == unit) {
                // A token of some bytes of a character, or of nothing, is not a piece of its own.
                Some((word, _, inner)) if !is_run || start < inner.end || start == inner.start => {
                    inner.end = inner.end.max(end);
                    word.bytes = bytes(parts, inner, is_run);
                }
                _ => {
                    let word = Word { token, bytes: bytes(parts, &(start..end), is_run) };
                    words.push((word, unit, start..end));
                }
            }
        }
        let mut words: Vec<Word> = words.into_iter().map(|(word, ..)| word).collect();
        // Marks that the tokenizer drops belong to their letter.
        for i in 0..words.len() {
            let next = words.get(i + 1).map_or(usize::MAX, |next| next.bytes.start);
            let end = &mut words[i].bytes.end;
            let part = &parts[parts.partition_point(|part| part.start < *end) - 1];
            *end = if next < part.end { *end } else { part.end };
        }
        Ok(words)
    }

    /// Parts with spaces around them one by one, others together, but for those whose pieces are not of whole characters or unknown.
    fn units<'a>(&self, text: &str, parts: &'a [Range<usize>]) -> Result<Vec<&'a [Range<usize>]>> {
        let mut units = Vec::new();
        for unit in parts.chunk_by(|a, b| is_unspaced(text, a) && is_unspaced(text, b)) {
            if unit.len() == 1 || self.has_pieces(&format!(" {}", joined(text, unit)))? {
                units.push(unit);
            } else {
                units.extend(unit.chunks(1));
            }
        }
        Ok(units)
    }

    /// Whether the tokens of a run are parts of it: none is unknown and of several characters, and no byte-level token has the
    /// end of a character with the start of another.
    fn has_pieces(&self, run: &str) -> Result<bool> {
        let tokens = self.tokenize(&[run][..])?;
        let unknown = self.special.unk.as_ref().map(|unk| unk.1);
        let mut last = (0, 0);
        let mut pieces = tokens.get_ids().iter().zip(tokens.get_offsets());
        Ok(pieces.all(|(&id, &(start, end))| {
            let cuts_character = start < last.1 && (start, end) != last;
            last = (start, end);
            let is_known = Some(id) != unknown || run[start..end].trim().split_word_bounds().nth(1).is_none();
            is_known && !cuts_character
        }))
    }
}

/// Words with a space before each but the first, and their lengths without it. Tokenizers that give spaces no piece ignore it.
pub(super) fn spaced<T: AsRef<str>>(words: &[T]) -> (Vec<String>, Vec<usize>) {
    let spaced = |(index, word): (usize, &T)| match word.as_ref() {
        word if index == 0 || word.is_empty() || word.starts_with(' ') => word.to_string(),
        word => format!(" {word}"),
    };
    let lengths = words.iter().map(|word| word.as_ref().len());
    (words.iter().enumerate().map(spaced).collect(), lengths.collect())
}

fn joined(text: &str, parts: &[Range<usize>]) -> String {
    parts.iter().map(|part| &text[part.clone()]).collect()
}

/// Bytes of a text, given those of a unit.
fn bytes(parts: &[Range<usize>], inner: &Range<usize>, is_run: bool) -> Range<usize> {
    if !is_run {
        return parts[0].clone();
    }
    let (mut before, mut found) = (0, None);
    for part in parts {
        let in_text = |inner: usize| part.start + inner - before;
        let after = before + part.len();
        if found.is_none() && inner.start < after {
            found = Some(in_text(inner.start)..part.end);
        }
        if let Some(found) = found.as_mut().filter(|_| before < inner.end) {
            found.end = in_text(inner.end.min(after));
        }
        before = after;
    }
    found.unwrap_or(parts[0].clone())
}

/// What stands between the boundaries of words, without white space.
fn parts(text: &str) -> Vec<Range<usize>> {
    let parts = text.split_word_bound_indices().filter(|(_, part)| !part.trim().is_empty());
    parts.map(|(start, part)| start..start + part.len()).collect()
}

/// Whether a part is of a script that puts no spaces between words: Thai, Lao, Burmese, Khmer, Chinese or Japanese.
fn is_unspaced(text: &str, part: &Range<usize>) -> bool {
    text[part.clone()].starts_with(|c| {
        matches!(c,
            '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3005}'..='\u{3007}'
            | '\u{3041}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}')
    })
}
