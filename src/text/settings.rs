//! Settings in the files beside a tokenizer.

use crate::error::{Error, Result};
use crate::regular_file;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use tokenizers::AddedToken;
use tokenizers::normalizers::BertNormalizer;

const CONFIG_NAME: &str = "tokenizer_config.json";
const SPECIAL_TOKENS_NAME: &str = "special_tokens_map.json";
const ADDED_TOKENS_NAME: &str = "added_tokens.json";

/// What is read of `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    do_lower_case: Option<bool>,
    /// `Some(None)` where the file says null: then accents go with the upper case.
    #[serde(deserialize_with = "stated")]
    strip_accents: Option<Option<bool>>,
    tokenize_chinese_chars: Option<bool>,
    pub(super) add_prefix_space: Option<bool>,
    pub(super) model_max_length: Option<f64>,
    pub(super) pad_token: Option<Token>,
    pub(super) unk_token: Option<Token>,
    pub(super) cls_token: Option<Token>,
    pub(super) sep_token: Option<Token>,
    pub(super) mask_token: Option<Token>,
    pub(super) bos_token: Option<Token>,
    pub(super) eos_token: Option<Token>,
    additional_special_tokens: Option<Tokens>,
    extra_special_tokens: Option<Tokens>,
    pub(super) added_tokens_decoder: BTreeMap<u32, Token>,
}

impl Settings {
    /// The files beside `path`, if they exist.
    pub(super) fn beside(path: &Path) -> Result<Self> {
        let mut settings: Self = parse_beside(path, CONFIG_NAME)?.unwrap_or_default();
        if let Some(map) = parse_beside::<Self>(path, SPECIAL_TOKENS_NAME)? {
            settings.pad_token = settings.pad_token.or(map.pad_token);
            settings.unk_token = settings.unk_token.or(map.unk_token);
            settings.cls_token = settings.cls_token.or(map.cls_token);
            settings.sep_token = settings.sep_token.or(map.sep_token);
            settings.mask_token = settings.mask_token.or(map.mask_token);
            settings.bos_token = settings.bos_token.or(map.bos_token);
            settings.eos_token = settings.eos_token.or(map.eos_token);
            settings.additional_special_tokens =
                settings.additional_special_tokens.or(map.additional_special_tokens);
        }
        if settings.added_tokens_decoder.is_empty() {
            let added: Option<HashMap<String, u32>> = parse_beside(path, ADDED_TOKENS_NAME)?;
            let added = added.unwrap_or_default().into_iter();
            settings.added_tokens_decoder = added.map(|(token, id)| (id, Token::Content(token))).collect();
        }
        Ok(settings)
    }

    pub(super) fn normalizer(&self, of_file: BertNormalizer) -> BertNormalizer {
        BertNormalizer::new(
            of_file.clean_text,
            self.tokenize_chinese_chars.unwrap_or(of_file.handle_chinese_chars),
            self.strip_accents.unwrap_or(of_file.strip_accents),
            self.do_lower_case.unwrap_or(of_file.lowercase),
        )
    }

    /// Special tokens that have no name of their own.
    pub(super) fn unnamed_special_tokens(&self) -> impl Iterator<Item = &Token> {
        [&self.additional_special_tokens, &self.extra_special_tokens].into_iter().flatten().flat_map(
            |tokens| match tokens {
                Tokens::List(tokens) => tokens.iter().collect::<Vec<_>>(),
                Tokens::Map(tokens) => tokens.values().collect(),
            },
        )
    }
}

/// A token as these files write it.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Token {
    Content(String),
    Full {
        content: String,
        #[serde(default)]
        single_word: bool,
        #[serde(default)]
        lstrip: bool,
        #[serde(default)]
        rstrip: bool,
        #[serde(default)]
        normalized: bool,
        #[serde(default)]
        special: bool,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Tokens {
    List(Vec<Token>),
    Map(BTreeMap<String, Token>),
}

impl Token {
    pub(super) fn content(&self) -> &str {
        match self {
            Self::Content(content) | Self::Full { content, .. } => content,
        }
    }

    pub(super) fn added(&self) -> AddedToken {
        match self {
            Self::Content(content) => AddedToken::from(content, false),
            Self::Full { content, single_word, lstrip, rstrip, normalized, special } => {
                AddedToken::from(content, *special)
                    .single_word(*single_word)
                    .lstrip(*lstrip)
                    .rstrip(*rstrip)
                    .normalized(*normalized)
            }
        }
    }
}

/// Tells a field that is null from one that is missing.
fn stated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<bool>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A JSON file in the directory of `path`; `None` if there is none.
fn parse_beside<T: for<'de> Deserialize<'de>>(path: &Path, name: &str) -> Result<Option<T>> {
    let path = path.with_file_name(name);
    if !regular_file::exists(&path) {
        return Ok(None);
    }
    // A list would be taken for the fields in their order.
    let fields: Result<Map<String, Value>, _> = serde_json::from_slice(&regular_file::read_whole(&path)?);
    let value = fields.and_then(|fields| T::deserialize(Value::Object(fields)));
    value.map(Some).map_err(|source| corrupt(&path, source.into()))
}

pub(super) fn corrupt(path: &Path, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::CorruptTokenizer { path: path.to_path_buf(), source }
}
