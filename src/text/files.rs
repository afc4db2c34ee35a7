//! The files that a tokenizer is read from.

use super::special::SpecialTokens;
use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use tokenizers::decoders::wordpiece::WordPiece as WordPieceDecoder;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::{AddedToken, ModelWrapper, Tokenizer};

const TOKENIZER_NAME: &str = "tokenizer.json";
const VOCAB_NAME: &str = "vocab.txt";
const CONFIG_NAME: &str = "tokenizer_config.json";
const SPECIAL_TOKENS_NAME: &str = "special_tokens_map.json";
const ADDED_TOKENS_NAME: &str = "added_tokens.json";

/// A `model_max_length` from here on says that there is no limit; transformers writes 10³⁰.
const NO_LIMIT: f64 = 1e9;

/// A tokenizer as its files describe it.
pub(super) struct Pretrained {
    /// It neither truncates nor pads.
    pub(super) tokenizer: Tokenizer,
    pub(super) special: SpecialTokens,
    pub(super) model_max_length: Option<usize>,
}

impl Pretrained {
    /// Reads a directory, a `tokenizer.json` or a `vocab.txt`.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let path = tokenizer_path(path)?;
        let settings = Settings::beside(&path)?;
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let mut tokenizer = match is_json {
            true => from_json(&path, &settings)?,
            false => from_vocabulary(&path, &settings)?,
        };

        let special = SpecialTokens::find(&tokenizer, &settings, &path)?;
        special.register(&mut tokenizer);
        if tokenizer.get_post_processor().is_none() {
            let [cls, sep] = [&special.cls, &special.sep].map(|token| (token.content.clone(), token.id));
            tokenizer.with_post_processor(Some(BertProcessing::new(sep, cls)));
        }
        let truncation = tokenizer.get_truncation().map(|truncation| truncation.max_length);
        let model_max_length = match settings.model_max_length {
            Some(length) => (length < NO_LIMIT).then_some(length as usize),
            None => truncation,
        };
        tokenizer.with_truncation(None).map_err(|source| corrupt(&path, source))?;
        tokenizer.with_padding(None);
        Ok(Self { tokenizer, special, model_max_length })
    }
}

/// The file itself, or what a directory has in its place.
fn tokenizer_path(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let mut files = [TOKENIZER_NAME, VOCAB_NAME].map(|name| path.join(name)).into_iter();
    files.find(|path| path.is_file()).ok_or_else(|| Error::NoTokenizer { path: path.to_path_buf() })
}

/// A `tokenizer.json`, with what `tokenizer_config.json` says of case, accents and ideographs: transformers'
/// tokenizers of the BERT family let that overrule the normaliser of the file.
fn from_json(path: &Path, settings: &Settings) -> Result<Tokenizer> {
    let mut tokenizer = Tokenizer::from_bytes(read(path)?).map_err(|source| corrupt(path, source))?;
    if let Some(NormalizerWrapper::BertNormalizer(normalizer)) = tokenizer.get_normalizer() {
        let normalizer = settings.normalizer(*normalizer);
        tokenizer.with_normalizer(Some(normalizer));
    }
    if let ModelWrapper::WordPiece(model) = tokenizer.get_model() {
        let unk_token = model.unk_token.clone();
        require_unk(&tokenizer, unk_token, path)?;
    }
    Ok(tokenizer)
}

/// BERT's own tokenizer over a `vocab.txt`.
fn from_vocabulary(path: &Path, settings: &Settings) -> Result<Tokenizer> {
    let unk_token = settings.unk_token.as_ref().map_or("[UNK]", Token::content).to_string();
    let vocabulary = WordPiece::read_bytes(read_text(path)?.as_bytes());
    let model =
        vocabulary.and_then(|tokens| WordPiece::builder().vocab(tokens).unk_token(unk_token.clone()).build());
    let model = model.map_err(|source| corrupt(path, source))?;
    let mut tokenizer = Tokenizer::new(model);
    tokenizer
        .with_normalizer(Some(settings.normalizer(BertNormalizer::default())))
        .with_pre_tokenizer(Some(BertPreTokenizer))
        .with_decoder(Some(WordPieceDecoder::default()));
    require_unk(&tokenizer, unk_token, path)?;
    for (&id, token) in &settings.added_tokens_decoder {
        let token = token.added();
        tokenizer.add_tokens(std::slice::from_ref(&token));
        let found = tokenizer.token_to_id(&token.content);
        if found != Some(id) {
            let problem = format!(
                "{} is an added token of id {id} in the files beside it, but here it has {}",
                token.content,
                found.map_or("none".to_string(), |id| format!("id {id}"))
            );
            return Err(corrupt(path, problem.into()));
        }
    }
    Ok(tokenizer)
}

/// Without it WordPiece fails at the first word that it does not know.
fn require_unk(tokenizer: &Tokenizer, unk_token: String, path: &Path) -> Result<()> {
    match tokenizer.token_to_id(&unk_token) {
        Some(_) => Ok(()),
        None => Err(Error::MissingToken {
            path: path.to_path_buf(),
            token: "unk_token",
            looked_for: vec![unk_token],
        }),
    }
}

/// The text of a file, without a byte order mark.
fn read_text(path: &Path) -> Result<String> {
    let mut text = String::from_utf8(read(path)?).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count();
        Error::NotUtf8 { path: path.to_path_buf(), line, offset: offset as u64 }
    })?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| Error::reading(path, source))
}

fn corrupt(path: &Path, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::CorruptTokenizer { path: path.to_path_buf(), source }
}

/// What is read of `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    do_lower_case: Option<bool>,
    /// `Some(None)` where the file says null: then accents go with the upper case.
    #[serde(deserialize_with = "stated")]
    strip_accents: Option<Option<bool>>,
    tokenize_chinese_chars: Option<bool>,
    model_max_length: Option<f64>,
    pub(super) pad_token: Option<Token>,
    pub(super) unk_token: Option<Token>,
    pub(super) cls_token: Option<Token>,
    pub(super) sep_token: Option<Token>,
    pub(super) mask_token: Option<Token>,
    pub(super) bos_token: Option<Token>,
    pub(super) eos_token: Option<Token>,
    additional_special_tokens: Option<Tokens>,
    extra_special_tokens: Option<Tokens>,
    added_tokens_decoder: BTreeMap<u32, Token>,
}

impl Settings {
    /// The files that lie beside `path`, as far as there are any.
    fn beside(path: &Path) -> Result<Self> {
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

    fn normalizer(&self, of_file: BertNormalizer) -> BertNormalizer {
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

    fn added(&self) -> AddedToken {
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

/// Tells a field that is null from one that is not there.
fn stated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<bool>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A JSON file in the directory of `path`; `None` if there is none.
fn parse_beside<T: for<'de> Deserialize<'de>>(path: &Path, name: &str) -> Result<Option<T>> {
    let path = path.with_file_name(name);
    if !path.is_file() {
        return Ok(None);
    }
    serde_json::from_slice(&read(&path)?).map(Some).map_err(|source| corrupt(&path, source.into()))
}
