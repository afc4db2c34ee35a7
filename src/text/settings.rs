//! The settings in the files beside a tokenizer's vocabulary.

use crate::error::{Error, Result};
use crate::files::CONFIG_NAME;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokenizers::{AddedToken, Tokenizer};

/// A tokenizer's files by their usual names.
pub(super) type Files = BTreeMap<&'static str, Vec<u8>>;

/// The fields that name special tokens, in the order in which transformers adds the tokens.
pub(super) const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// What is read of `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json` and the model's `config.json`.
pub(super) struct Settings {
    pub(super) config: SettingsFile,
    special_tokens: SettingsFile,
    added_tokens: SettingsFile,
    pub(super) model: SettingsFile,
}

impl Settings {
    /// Reads the files next to the tokenizer at `path`.
    pub(super) fn read(path: &Path, files: &Files) -> Result<Self> {
        let fields = |name| {
            let path = path.with_file_name(name);
            let fields = files.get(name).map_or(Ok(Map::new()), |file| parsed(&path, file))?;
            Ok::<_, Error>(SettingsFile { path, fields })
        };
        let config = fields("tokenizer_config.json")?;
        // Where it lists the added tokens, transformers reads neither of the older files.
        let is_complete = config.fields.contains_key("added_tokens_decoder");
        let older = |name| if is_complete { Ok(SettingsFile::default()) } else { fields(name) };
        let (special_tokens, added_tokens) = (older("special_tokens_map.json")?, older("added_tokens.json")?);
        Ok(Self { config, special_tokens, added_tokens, model: fields(CONFIG_NAME)? })
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.config.get(name)?.unwrap_or(default))
    }

    /// The special token of a role.
    pub(super) fn token(&self, role: &str) -> Result<Option<AddedToken>> {
        let token = self.special_tokens.special_token(role)?;
        token.map_or_else(|| self.config.special_token(role), |token| Ok(Some(token)))
    }

    /// Special tokens that have no role, or one that no model of this crate has; `own` are those of the vocabulary or the class.
    pub(super) fn other_tokens(&self, own: Option<Vec<AddedToken>>) -> Result<Vec<AddedToken>> {
        let (mut named, mut listed) = (Vec::new(), None);
        for fields in [&self.config, &self.special_tokens] {
            let names = fields.fields.iter().filter(|(name, value)| {
                name.ends_with("_token")
                    && !ROLES.contains(&name.as_str())
                    && (value.is_string() || value.is_object())
            });
            for (name, _) in names {
                named.extend(fields.special_token(name)?);
            }
            match fields.get("extra_special_tokens")? {
                Some(Tokens::List(tokens)) => listed.get_or_insert_with(Vec::new).extend(tokens),
                Some(Tokens::Map(tokens)) => named.extend(tokens.into_values().map(|Token(token)| token)),
                None => {}
            }
        }
        let additional = |fields: &SettingsFile| fields.get::<Vec<Token>>("additional_special_tokens");
        let listed = listed.or(additional(&self.config)?);
        let contents = |tokens: Vec<Token>| tokens.into_iter().map(|Token(token)| token).collect();
        let listed: Option<Vec<_>> = listed.map(contents).or(own);
        named.extend(listed.or(additional(&self.special_tokens)?.map(contents)).unwrap_or_default());
        Ok(named)
    }

    /// Whether the older file names special tokens without a role.
    pub(super) fn has_additional(&self) -> bool {
        self.special_tokens.fields.contains_key("additional_special_tokens")
    }

    /// The settings of the tokenizer with all of its added tokens, if they list any.
    pub(super) fn with_all_added_tokens(&self, tokenizer: &Tokenizer) -> Option<Vec<u8>> {
        let mut fields = self.config.fields.clone();
        let tokens: BTreeMap<_, _> = tokenizer.get_added_tokens_decoder().into_iter().collect();
        let list = fields.get_mut("added_tokens_decoder")?;
        *list = serde_json::to_value(tokens).expect("plain data");
        Some(serde_json::to_vec(&fields).expect("plain data"))
    }

    /// The tokens that are added to the vocabulary, by the ids that the files give them; those `of_file` are of a
    /// `tokenizer.json`.
    pub(super) fn added_tokens(
        &self,
        of_file: BTreeMap<u32, AddedToken>,
    ) -> Result<BTreeMap<u32, AddedToken>> {
        if let Some(tokens) = self.config.get::<BTreeMap<u32, Token>>("added_tokens_decoder")? {
            return Ok(tokens.into_iter().map(|(id, Token(token))| (id, token)).collect());
        }
        let mut special: Vec<String> = Vec::new();
        for role in ROLES {
            special.extend(self.token(role)?.map(|token| token.content));
        }
        special.extend(self.other_tokens(Some(Vec::new()))?.into_iter().map(|token| token.content));
        let mut tokens = BTreeMap::new();
        for content in self.added_tokens.fields.keys() {
            let token = AddedToken::from(content, special.contains(content));
            tokens.extend(self.added_tokens.get(content)?.map(|id: u32| (id, token)));
        }
        tokens.extend(of_file);
        Ok(tokens)
    }
}

/// A JSON object of a file; empty if there is no file.
#[derive(Default)]
pub(super) struct SettingsFile {
    pub(super) path: PathBuf,
    fields: Map<String, Value>,
}

impl SettingsFile {
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let value = self.fields.get(name).filter(|value| !value.is_null()).map(T::deserialize).transpose();
        value.map_err(|source| corrupt(&self.path, format!("{name}: {source}").into()))
    }

    fn special_token(&self, name: &str) -> Result<Option<AddedToken>> {
        let Some(mut value) = self.get::<Value>(name)? else { return Ok(None) };
        if let Value::Object(fields) = &mut value {
            fields.insert("special".to_string(), true.into());
        }
        let token = Token::try_from(value);
        let token = token.map_err(|source| corrupt(&self.path, format!("{name}: {source}").into()))?;
        Ok(Some(token.0))
    }
}

/// A token as these files write it: its content, if it is special, or an object, which may lack flags.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Token(pub(super) AddedToken);

impl TryFrom<Value> for Token {
    type Error = serde_json::Error;

    fn try_from(mut value: Value) -> serde_json::Result<Self> {
        if let Value::String(content) = value {
            return Ok(Self(AddedToken::from(content, true)));
        }
        if let Value::Object(fields) = &mut value {
            for flag in ["single_word", "lstrip", "rstrip", "special"] {
                fields.entry(flag).or_insert(false.into());
            }
            let is_special = fields["special"] == true;
            fields.entry("normalized").or_insert((!is_special).into());
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
