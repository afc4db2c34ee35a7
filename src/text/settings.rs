//! Settings in the files beside a tokenizer, and the special tokens that they name.

use super::check::{check_length, refuse_large};
use crate::error::{Error, Result};
use crate::files::regular_file;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tokenizers::normalizers::BertNormalizer;
use tokenizers::{AddedToken, Tokenizer};

/// What is read of `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`.
pub(super) struct Settings {
    config: Fields,
    special_tokens: Fields,
    pub(super) added_tokens: BTreeMap<u32, Token>,
}

impl Settings {
    pub(super) fn beside(path: &Path) -> Result<Self> {
        let config = Fields::beside(path, "tokenizer_config.json")?;
        let special_tokens = Fields::beside(path, "special_tokens_map.json")?;
        let added = Fields::beside(path, "added_tokens.json")?;
        let mut added_tokens: BTreeMap<u32, Token> = config.get("added_tokens_decoder")?.unwrap_or_default();
        // Older tokenizers have a file of their own.
        if added_tokens.is_empty() {
            for content in added.fields.keys() {
                added_tokens
                    .extend(added.get(content)?.map(|id| (id, Token(AddedToken::from(content, false)))));
            }
        }
        Ok(Self { config, special_tokens, added_tokens })
    }

    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        self.config.get(name)
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
            _ => self.get("strip_accents")?.or(of_file.strip_accents),
        };
        Ok(BertNormalizer::new(
            of_file.clean_text,
            self.get("tokenize_chinese_chars")?.unwrap_or(of_file.handle_chinese_chars),
            strip_accents,
            self.get("do_lower_case")?.unwrap_or(of_file.lowercase),
        ))
    }
}

/// A JSON object of a file; empty if there is no file.
struct Fields {
    path: PathBuf,
    fields: Map<String, Value>,
}

impl Fields {
    fn beside(path: &Path, name: &str) -> Result<Self> {
        let path = path.with_file_name(name);
        let mut fields = Map::new();
        if regular_file::exists(&path) {
            refuse_large(&path)?;
            let parsed = serde_json::from_slice(&regular_file::read_whole(&path)?);
            fields = parsed.map_err(|source| corrupt(&path, source.into()))?;
        }
        Ok(Self { path, fields })
    }

    fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
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

#[derive(Clone, Debug)]
pub(super) struct SpecialToken {
    pub(super) content: String,
    pub(super) id: u32,
}

#[derive(Clone, Debug)]
pub(super) struct SpecialTokens {
    pub(super) pad: SpecialToken,
    pub(super) cls: SpecialToken,
    pub(super) sep: SpecialToken,
    pub(super) mask: SpecialToken,
    pub(super) unk: Option<SpecialToken>,
    /// Other special tokens, which are never masked.
    others: Vec<SpecialToken>,
}

impl SpecialTokens {
    /// Looks each up under the name that the settings give it; without one, under BERT's and RoBERTa's names.
    pub(super) fn find(tokenizer: &Tokenizer, settings: &Settings, path: &Path) -> Result<Self> {
        let look_up = |content: &str| {
            let id = tokenizer.token_to_id(content)?;
            Some(SpecialToken { content: content.to_string(), id })
        };
        let find = |role: &str, usual: [&str; 2]| {
            let stated = settings.token(role)?;
            let looked_for = stated.as_deref().map_or(usual.to_vec(), |stated| vec![stated]);
            let found = looked_for.iter().find_map(|content| look_up(content));
            found.ok_or_else(|| missing_token(path, role, &looked_for))
        };
        let special = Self {
            pad: find("pad_token", ["[PAD]", "<pad>"])?,
            cls: find("cls_token", ["[CLS]", "<s>"])?,
            sep: find("sep_token", ["[SEP]", "</s>"])?,
            mask: find("mask_token", ["[MASK]", "<mask>"])?,
            // Optional, as Unigram vocabularies may have none; `require_unk` has checked the other models.
            unk: find("unk_token", ["[UNK]", "<unk>"]).ok(),
            others: settings.other_tokens()?.iter().filter_map(|token| look_up(token)).collect(),
        };
        special.all().try_for_each(|token| check_token(path, &token.content))?;
        Ok(special)
    }

    fn all(&self) -> impl Iterator<Item = &SpecialToken> {
        [&self.pad, &self.cls, &self.sep, &self.mask].into_iter().chain(&self.unk).chain(&self.others)
    }

    /// Has the tokenizer find them in a text as they are written, where its file does not say how.
    pub(super) fn register(&self, tokenizer: &mut Tokenizer) {
        let known: BTreeSet<u32> = tokenizer.get_added_tokens_decoder().into_keys().collect();
        let missing = self.all().filter(|token| !known.contains(&token.id));
        let missing: Vec<_> = missing.map(|token| AddedToken::from(&token.content, true)).collect();
        tokenizer.add_special_tokens(&missing);
    }

    /// The ids of these and of all that the tokenizer calls special, ascending.
    pub(super) fn ids(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let added = tokenizer.get_added_tokens_decoder().into_iter();
        let called_special = added.filter_map(|(id, token)| token.special.then_some(id));
        // A set, as one token may have several roles.
        let ids: BTreeSet<u32> = self.all().map(|token| token.id).chain(called_special).collect();
        ids.into_iter().collect()
    }
}

/// A vocabulary that lacks a special token that the model needs, under all names that it was `looked_for`.
pub(super) fn missing_token(path: &Path, token: &str, looked_for: &[&str]) -> Error {
    let problem = format!(
        "has no {token}: its vocabulary lacks {}; if the token has another name, set {token} in tokenizer_config.json",
        looked_for.join(" and ")
    );
    Error::file(path, problem)
}

/// Refuses a token for which the library would search too long.
pub(super) fn check_token(path: &Path, content: &str) -> Result<()> {
    check_length(content).map_err(|problem| {
        let start: String = content.chars().take(40).collect();
        corrupt(path, format!("{start:?}…, a token of the files beside it,{problem}").into())
    })
}

pub(super) fn corrupt(path: &Path, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::CorruptTokenizer { path: path.to_path_buf(), source }
}
