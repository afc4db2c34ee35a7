//! What a `tokenizer.json` must satisfy before the crate `tokenizers` builds a tokenizer of it.
//!
//! That crate trusts its files: a wrong entry costs it a panic, the stack, or any amount of memory or time. So every entry
//! that can do so is looked at first, and `guarded` of the tokenizer catches the panics that remain.

use crate::error::{Error, shown};
use crate::files::regular_file;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::path::Path;
use tokenizers::utils::SysRegex;

/// The largest `tokenizer.json`, in bytes: as JSON it takes many times as much memory. XLM-RoBERTa's has 17 MB.
const MAX_FILE: u64 = 64 << 20;

/// The longest token, pattern or other string, in bytes. Its tries take some 300 bytes and a stack frame a byte of a
/// token, and a token of 40 kB takes a minute; the longest of GPT-2 has 256 bytes.
const MAX_STRING: usize = 1024;

/// How many times longer the normaliser or the decoder may make a text. NFKC has a character that becomes 11 times as
/// long, and a space that becomes `▁` 3 times.
const MAX_GROWTH: f64 = 64.0;

/// WordPiece takes the square of a word's length; BERT has 100.
const MAX_WORD_CHARS: u64 = 1000;

/// Texts that contain what a pattern can stand beside: letters of both cases, digits, marks, spaces, other scripts.
const PROBES: [&str; 3] = ["", "aB", " a1!\n\"Éé_-Ⅷ 中文 \u{301}x"];

pub(super) fn refuse_large(path: &Path) -> crate::error::Result<()> {
    let metadata = regular_file::open(path)?.metadata().map_err(|source| Error::reading(path, source))?;
    match metadata.len() {
        ..=MAX_FILE => Ok(()),
        size => {
            let problem = format!("has {size} bytes, but a file of a tokenizer may have {MAX_FILE} at most");
            Err(Error::file(path, problem))
        }
    }
}

/// Says which entry is wrong and how, such as `normalizer.normalizers[2].pattern matches an empty text`.
pub(super) fn check(file: &Value) -> Result<(), String> {
    for part in ["normalizer", "pre_tokenizer", "post_processor", "decoder"] {
        check_part(&file[part], &mut 1.0).map_err(|problem| format!("{part}{problem}"))?;
    }
    check_model(&file["model"]).map_err(|problem| format!("model{problem}"))?;
    check_strings(file).map_err(|problem| problem.trim_start_matches('.').to_string())
}

/// Prefixes what is wrong with the place in which it is.
fn within<'a>(
    value: &'a Value,
    mut check: impl FnMut(Option<&'a str>, &'a Value) -> Result<(), String>,
) -> Result<(), String> {
    match value {
        Value::Array(values) => {
            let mut values = values.iter().enumerate();
            values.try_for_each(|(i, value)| check(None, value).map_err(|problem| format!("[{i}]{problem}")))
        }
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            check(Some(name), value).map_err(|problem| format!(".{}{problem}", shown(name)))
        }),
        _ => Ok(()),
    }
}

fn check_strings(value: &Value) -> Result<(), String> {
    within(value, |name, value| {
        check_length(name.unwrap_or_default())?;
        match value {
            Value::String(_) if name == Some("precompiled_charsmap") => Ok(()),
            Value::String(text) => check_length(text),
            _ => check_strings(value),
        }
    })
}

pub(super) fn check_length(text: &str) -> Result<(), String> {
    match text.len() {
        ..=MAX_STRING => Ok(()),
        length => Err(format!(" has {length} bytes, but {MAX_STRING} are the most that are read")),
    }
}

/// Checks a normaliser, pre-tokenizer, post-processor or decoder, and what it is made of. Their types need not be named,
/// so fields tell them apart.
fn check_part(part: &Value, growth: &mut f64) -> Result<(), String> {
    if let Value::Object(fields) = part {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        // Parts run one after another, so their factors multiply.
        *growth *= match (text("precompiled_charsmap"), fields.get("pattern"), text("prepend")) {
            (Some(map), ..) => {
                check_map(map).map_err(|problem| format!(".precompiled_charsmap {problem}"))?
            }
            (_, Some(pattern), _) => {
                let shortest = check_pattern(pattern).map_err(|problem| format!(".pattern {problem}"))?;
                text("content").unwrap_or_default().len() as f64 / shortest as f64
            }
            // It comes once before each piece between added tokens, not at each character.
            (.., Some(prefix)) => 1.0 + prefix.len() as f64 / 16.0,
            _ => 1.0,
        }
        .max(1.0);
        if *growth > MAX_GROWTH {
            return Err(format!(", after those before it, makes texts more than {MAX_GROWTH} times longer"));
        }
        if fields.get("length").is_some_and(|length| length == 0) {
            return Err(".length is 0, but pieces have at least one character".to_string());
        }
        if let Some(tokens) = fields.get("special_tokens").filter(|tokens| tokens.is_object()) {
            check_template(tokens, fields)?;
        }
    }
    within(part, |_, value| check_part(value, growth))
}

/// A pattern to split at or to replace; returns the length of its shortest match.
fn check_pattern(pattern: &Value) -> Result<usize, String> {
    if let Some(text) = pattern["String"].as_str() {
        return if text.is_empty() { Err("is empty".to_string()) } else { Ok(text.len()) };
    }
    let Some(regex) = pattern["Regex"].as_str().filter(|regex| regex.len() <= MAX_STRING) else {
        return Ok(1); // Refused as a string that is too long, or by the library.
    };
    let regex = SysRegex::new(regex).map_err(|error| format!("cannot be compiled: {error}"))?;
    let matches_nothing = |text| regex.find_iter(text).any(|(start, end)| start == end);
    match PROBES.into_iter().any(matches_nothing) {
        true => Err("matches an empty text".to_string()),
        false => Ok(1),
    }
}

/// The character map of SentencePiece: the length of a trie, the trie as a double array of `u32`, and the replacements,
/// each up to a NUL. Returns how many times longer it makes a text.
///
/// Source: `Precompiled` of the crate spm_precompiled 0.1.4, which indexes the array without a check.
fn check_map(base64: &str) -> Result<f64, String> {
    let bytes = base64::decode(base64).map_err(|_| "is not base64")?;
    let (length, rest) = bytes.split_first_chunk().ok_or("is too short for a map")?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > rest.len() || length < 4 {
        return Err(format!("says that {length} of its {} bytes are a trie", bytes.len()));
    }
    let (trie, replacements) = rest.split_at(length / 4 * 4);
    let units: Vec<u32> = trie.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
    let replacements = str::from_utf8(replacements).map_err(|_| "has replacements that are not UTF-8")?;
    let outside = || "has a trie that points outside itself".to_string();

    // A unit of Darts-clone: its offset has 21 bits, and is shifted by 8 more where bit 9 is set.
    let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
    let mut is_seen = vec![false; units.len()];
    let mut growth: f64 = 1.0;
    // Breadth first, so that a node that several keys reach counts with the shortest of them.
    let mut nodes = VecDeque::from([(offset(units[0]), 1_u32)]);
    while let Some((node, depth)) = nodes.pop_front() {
        for label in 1..=255 {
            let child = node ^ label;
            let unit = *units.get(child).ok_or_else(outside)?;
            // Each once: a circle of nodes would not end.
            if unit & (1 << 31 | 0xFF) != label as u32 || std::mem::replace(&mut is_seen[child], true) {
                continue;
            }
            let next = child ^ offset(unit);
            if unit >> 8 & 1 == 1 {
                let start = *units.get(next).ok_or_else(outside)? & !(1 << 31);
                let replacement = replacements.get(start as usize..).ok_or_else(outside)?;
                let length = replacement.find('\0').unwrap_or(replacement.len());
                // A node is as deep as its key has bytes.
                growth = growth.max(length as f64 / f64::from(depth));
            }
            nodes.push_back((next, depth + 1));
        }
    }
    Ok(growth)
}

fn check_template(tokens: &Value, fields: &Map<String, Value>) -> Result<(), String> {
    within(tokens, |_, token| {
        let count = |name| token[name].as_array().map_or(0, Vec::len);
        match count("ids") == count("tokens") {
            true => Ok(()),
            false => Err(format!(" has {} ids and {} tokens", count("ids"), count("tokens"))),
        }
    })
    .map_err(|problem| format!(".special_tokens{problem}"))?;
    for (name, texts) in [("single", &["A"][..]), ("pair", &["A", "B"])] {
        let Some(template) = fields.get(name) else { continue };
        let mut seen = Vec::new();
        within(template, |_, piece| {
            let token = piece["SpecialToken"]["id"].as_str();
            if let Some(token) = token.filter(|&token| tokens.get(token).is_none()) {
                return Err(format!(" is {}, which is not one of special_tokens", shown(token)));
            }
            match piece["Sequence"]["id"].as_str() {
                Some(text) if !texts.contains(&text) || seen.contains(&text) => {
                    Err(format!(" is text {}, which is not there, or is there twice", shown(text)))
                }
                text => {
                    seen.extend(text);
                    Ok(())
                }
            }
        })
        .map_err(|problem| format!(".{name}{problem}"))?;
    }
    Ok(())
}

fn check_model(model: &Value) -> Result<(), String> {
    if model["max_input_chars_per_word"].as_u64().is_some_and(|chars| chars > MAX_WORD_CHARS) {
        return Err(format!(".max_input_chars_per_word is above {MAX_WORD_CHARS}"));
    }
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or_default();
    within(&model["merges"], |_, merge| {
        let second = match merge {
            Value::String(merge) => merge.split_once(' ').map(|(_, second)| second),
            merge => merge[1].as_str(),
        };
        match second.is_none_or(|second| second.is_char_boundary(prefix.len())) {
            true => Ok(()),
            false => Err(format!(" is shorter than the prefix {}", shown(prefix))),
        }
    })
    .map_err(|problem| format!(".merges{problem}"))
}
