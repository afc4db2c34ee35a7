//! The settings in the files beside a tokenizer's vocabulary.

use crate::error::{Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokenizers::AddedToken;
use tokenizers::normalizers::BertNormalizer;

/// A tokenizer's files by their usual names.
pub(super) type Files = BTreeMap<&'static str, Vec<u8>>;

/// What is read of `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`.
pub(super) struct Settings {
    pub(super) config: Fields,
    special_tokens: Fields,
    pub(super) added_tokens: BTreeMap<u32, Token>,
}

impl Settings {
    /// Of the files beside the tokenizer at `path`.
    pub(super) fn of(path: &Path, files: &Files) -> Result<Self> {
        let fields = |name| {
            let path = path.with_file_name(name);
            let fields = files.get(name).map_or(Ok(Map::new()), |file| parsed(&path, file))?;
            Ok::<_, Error>(Fields { path, fields })
        };
        let config = fields("tokenizer_config.json")?;
        let special_tokens = fields("special_tokens_map.json")?;
        let added = fields("added_tokens.json")?;
        let mut added_tokens: BTreeMap<u32, Token> = config.get("added_tokens_decoder")?.unwrap_or_default();
        // Older tokenizers have a file of their own.
        if added_tokens.is_empty() {
            for content in added.fields.keys() {
                let token = Token(AddedToken::from(content, false));
                added_tokens.extend(added.get(content)?.map(|id| (id, token)));
            }
        }
        Ok(Self { config, special_tokens, added_tokens })
    }

    /// The special token of a role.
    pub(super) fn token(&self, role: &str) -> Result<Option<String>> {
        // Of two files that name it, transformers takes the newer kind.
        let token = self.config.get::<Token>(role)?;
        Ok(token.or(self.special_tokens.get(role)?).map(|Token(token)| token.content))
    }

    /// Special tokens that have no role, or one that no model of this crate has.
    pub(super) fn other_tokens(&self) -> Result<Vec<String>> {
        let additional = self.config.get::<Tokens>("additional_special_tokens")?;
        let additional = additional.or(self.special_tokens.get("additional_special_tokens")?);
        let mut others: Vec<String> =
            [self.token("bos_token")?, self.token("eos_token")?].into_iter().flatten().collect();
        for tokens in [additional, self.config.get("extra_special_tokens")?].into_iter().flatten() {
            let tokens = match tokens {
                Tokens::List(tokens) => tokens,
                Tokens::Map(tokens) => tokens.into_values().collect(),
            };
            others.extend(tokens.into_iter().map(|Token(token)| token.content));
        }
        Ok(others)
    }

    pub(super) fn normalizer(&self, of_file: BertNormalizer) -> Result<BertNormalizer> {
        // Where the file says null, accents go with the upper case.
        let strip_accents = match self.config.fields.get("strip_accents") {
            Some(Value::Null) => None,
            _ => self.config.get("strip_accents")?.or(of_file.strip_accents),
        };
        Ok(BertNormalizer::new(
            of_file.clean_text,
            self.config.get("tokenize_chinese_chars")?.unwrap_or(of_file.handle_chinese_chars),
            strip_accents,
            self.config.get("do_lower_case")?.unwrap_or(of_file.lowercase),
        ))
    }
}

/// A JSON object of a file; empty if there is no file.
pub(super) struct Fields {
    path: PathBuf,
    fields: Map<String, Value>,
}

impl Fields {
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let value = self.fields.get(name).filter(|value| !value.is_null()).map(T::deserialize).transpose();
        value.map_err(|source| corrupt(&self.path, format!("{name}: {source}").into()))
    }
}

/// A token as these files write it: its content, or an object, which may lack flags.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Token(pub(super) AddedToken);

impl TryFrom<Value> for Token {
    type Error = serde_json::Error;

    fn try_from(mut value: Value) -> serde_json::Result<Self> {
        if let Value::String(content) = value {
            return Ok(Self(AddedToken::from(content, false)));
        }
        if let Value::Object(fields) = &mut value {
            for flag in ["single_word", "lstrip", "rstrip", "normalized", "special"] {
                fields.entry(flag).or_insert(false.into());
            }
        }
        serde_json::from_value(value).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Tokens {
    List(Vec<Token>),
    Map(BTreeMap<String, Token>),
}

pub(super) fn parsed<T: DeserializeOwned>(path: &Path, json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(|source| corrupt(path, source.into()))
}

pub(super) fn corrupt(path: &Path, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::CorruptTokenizer { path: path.to_path_buf(), source }
}
