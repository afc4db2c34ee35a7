//! The files of a tokenizer, read and written: vocabulary, settings and special tokens.

use super::check::{check, check_length, refuse_large};
use super::tokenizer::{BertTokenizer, SpecialTokens, guarded};
use crate::error::{Error, Result};
use crate::files::hub::{Wanted, directory};
use crate::files::{Replacement, TOKENIZER_NAMES, directory_of, regular_file};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::decoders::wordpiece::WordPiece as WordPieceDecoder;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::processors::roberta::RobertaProcessing;
use tokenizers::{AddedToken, Model, ModelWrapper, PostProcessor, PostProcessorWrapper, Tokenizer};

const TOKENIZER_NAME: &str = TOKENIZER_NAMES[0];
const VOCAB_NAME: &str = TOKENIZER_NAMES[1];

/// A `model_max_length` from here on says that there is no limit; transformers writes 10³⁰.
const NO_LIMIT: f64 = 1e9;

/// The files of other libraries, which are copied along.
const OTHER_NAMES: [&str; 5] =
    ["vocab.json", "merges.txt", "sentencepiece.bpe.model", "spiece.model", "spm.model"];

fn names() -> impl Iterator<Item = &'static str> {
    TOKENIZER_NAMES.into_iter().chain(OTHER_NAMES)
}

impl BertTokenizer {
    /// Reads the tokenizer of a Hugging Face checkpoint: a directory with a `tokenizer.json` (preferred) or BERT's or
    /// MPNet's `vocab.txt`, or one of those files; with the feature `hub` also a model's name on the Hugging Face Hub.
    ///
    /// As in transformers, `tokenizer_config.json` next to it overrides the case, accents, ideographs and leading space of a
    /// `tokenizer.json`, and gives `model_max_length` and special tokens; so does `special_tokens_map.json`. A special token
    /// that none names has BERT's name, such as `[MASK]`, or RoBERTa's, `<mask>`. Texts are padded and cut at the end,
    /// whatever `padding_side` and `truncation_side` say.
    ///
    /// # Errors
    ///
    /// - [`Error::File`] if the directory has neither file, one has more than 64 MiB, or the vocabulary lacks the padding,
    ///   `[CLS]`, `[SEP]` or `[MASK]` token or the model's `[UNK]`; [`Error::Io`] if a file cannot be read;
    /// - [`Error::CorruptTokenizer`] if a file does not parse, or an entry could cause a panic or take excessive memory or
    ///   time; [`Error::NotUtf8`] if `vocab.txt` is not UTF-8.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        let path = directory(path.as_ref(), Wanted::Settings)?;
        let problem = "has neither tokenizer.json nor vocab.txt; save the tokenizer there (in Python: \
                       AutoTokenizer.from_pretrained(..).save_pretrained(..)) or name one of these files";
        let path = regular_file::first_in(&path, &[TOKENIZER_NAME, VOCAB_NAME])
            .ok_or_else(|| Error::file(&path, problem))?;
        let settings = Settings::beside(&path)?;
        let mut tokenizer =
            if is_json(&path) { from_json(&path, &settings)? } else { from_vocabulary(&path, &settings)? };

        let special = SpecialTokens::find(&tokenizer, &settings, &path)?;
        let special_token_ids = special.register(&mut tokenizer);
        let post_processor = tokenizer.get_post_processor().cloned().unwrap_or_else(|| {
            let (cls, sep) = (special.cls.clone(), special.sep.clone());
            // MPNet's vocabulary is WordPiece's, and its special tokens are RoBERTa's, two between texts.
            match cls.0.as_str() {
                "<s>" => RobertaProcessing::new(sep, cls).add_prefix_space(false).into(),
                _ => BertProcessing::new(sep, cls).into(),
            }
        });
        let stated_max_length = match settings.config.get::<f64>("model_max_length")? {
            Some(length) => (length < NO_LIMIT).then_some(length as usize),
            None => tokenizer.get_truncation().map(|truncation| truncation.max_length),
        };
        tokenizer.with_truncation(None).map_err(|source| corrupt(&path, source))?;
        // `batch` pads, and `encode` cuts.
        tokenizer.with_padding(None);
        // Applied by hand in `finish`: see the field `tokenizer`.
        tokenizer.with_post_processor(None::<PostProcessorWrapper>);
        // The post-processor has ids of its own, all of an empty text, which need not be those of the vocabulary.
        let added = |pair| {
            let empty = tokenizers::Encoding::default();
            guarded(|| post_processor.process(empty, pair, true)).map_err(|source| corrupt(&path, source))
        };
        let (one, two) = (added(None)?, added(Some(tokenizers::Encoding::default()))?);
        let added = one.get_ids().iter().chain(two.get_ids()).copied();
        let largest = tokenizer.get_vocab(true).into_values().chain(added).max();
        Ok(Self {
            path: path.into(),
            vocab_size: largest.map_or(0, |id| id as usize + 1),
            is_local: Self::is_local(&tokenizer),
            lowers_case: false,
            tokenizer: Arc::new(tokenizer),
            post_processor,
            special,
            special_token_ids,
            stated_max_length,
            own_max_length: None,
            readable_length: None,
            trained_length: None,
            pad_to_multiple_of: None,
        })
    }

    /// Copies the files that the tokenizer was read from into `dir`, which may be where they are: `tokenizer.json` or
    /// `vocab.txt`, and the settings and files of other libraries next to it. Limits that were set since are not in them.
    ///
    /// Returns [`Error::Io`] if a file is gone or cannot be written; [`Error::File`] if `dir` has a file of another
    /// tokenizer, which would be read along with them. Each file is then as it was.
    pub fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        let dir = dir.as_ref();
        regular_file::create_directory(dir)?;
        self.check_directory(dir)?;
        let mut new = Replacement::begin(dir)?;
        for (name, from) in names().filter_map(|name| Some((name, self.file(name)?))) {
            let mut from = regular_file::open(&from)?;
            new.write(&dir.join(name), |out| io::copy(&mut from, out).map(drop))?;
        }
        new.commit()
    }

    /// Whether [`save_pretrained`](Self::save_pretrained) may write into `dir`.
    pub(crate) fn check_directory(&self, dir: &Path) -> Result<()> {
        let mut names = names().filter(|name| self.file(name).is_none());
        match names.find(|name| regular_file::exists(&dir.join(name))) {
            Some(foreign) => {
                let problem = "is of another tokenizer than the one that is saved, and would be read with it; remove it, or \
                               choose another directory";
                Err(Error::file(&dir.join(foreign), problem))
            }
            None => Ok(()),
        }
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        // Under its usual name, by which a directory's tokenizer is found.
        let own = if is_json(&self.path) { TOKENIZER_NAME } else { VOCAB_NAME };
        let beside = directory_of(&self.path).join(name);
        match name {
            _ if name == own => Some(self.path.to_path_buf()),
            // The file that was named was read in its place.
            TOKENIZER_NAME => None,
            _ => regular_file::exists(&beside).then_some(beside),
        }
    }
}

/// Whether a file is a `tokenizer.json`, and no `vocab.txt`.
fn is_json(path: &Path) -> bool {
    // By extension and not by content: a vocabulary may begin with a brace.
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    refuse_large(path)?;
    serde_json::from_slice(&regular_file::read_whole(path)?).map_err(|source| corrupt(path, source.into()))
}

/// A `tokenizer.json`, with what `tokenizer_config.json` says of case, accents, ideographs and the space before a text:
/// transformers' tokenizers of these families let that overrule the file.
fn from_json(path: &Path, settings: &Settings) -> Result<Tokenizer> {
    let file: Value = read_json(path)?;
    check(&file).map_err(|problem| corrupt(path, problem.into()))?;
    // From what was checked: of a name that is there twice, the library would read both.
    let tokenizer = guarded(|| Tokenizer::deserialize(&file).map_err(Into::into));
    let mut tokenizer = tokenizer.map_err(|source| corrupt(path, source))?;
    if let Some(NormalizerWrapper::BertNormalizer(normalizer)) = tokenizer.get_normalizer() {
        let normalizer = settings.normalizer(*normalizer)?;
        tokenizer.with_normalizer(Some(normalizer));
    }
    if let (Some(PreTokenizerWrapper::ByteLevel(byte_level)), Some(add_prefix_space)) =
        (tokenizer.get_pre_tokenizer(), settings.config.get("add_prefix_space")?)
    {
        let byte_level = byte_level.add_prefix_space(add_prefix_space);
        tokenizer.with_pre_tokenizer(Some(byte_level));
    }
    require_unk(&tokenizer, path)?;
    Ok(tokenizer)
}

/// BERT's own tokenizer over a `vocab.txt`.
fn from_vocabulary(path: &Path, settings: &Settings) -> Result<Tokenizer> {
    let unk_token = settings.token("unk_token")?.unwrap_or("[UNK]".to_string());
    refuse_large(path)?;
    let vocabulary = WordPiece::read_bytes(regular_file::read_text(path)?.as_bytes());
    let model = vocabulary.and_then(|tokens| WordPiece::builder().vocab(tokens).unk_token(unk_token).build());
    let model = model.map_err(|source| corrupt(path, source))?;
    let mut tokenizer = Tokenizer::new(model);
    tokenizer
        .with_normalizer(Some(settings.normalizer(BertNormalizer::default())?))
        .with_pre_tokenizer(Some(BertPreTokenizer))
        .with_decoder(Some(WordPieceDecoder::default()));
    require_unk(&tokenizer, path)?;
    // All at once: each call builds the library's search for added tokens again.
    let added: Vec<AddedToken> = settings.added_tokens.values().map(|token| token.0.clone()).collect();
    added.iter().try_for_each(|token| check_token(path, &token.content))?;
    tokenizer.add_tokens(&added);
    for (&id, token) in settings.added_tokens.keys().zip(&added) {
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

/// Without it the model fails at the first word that it does not know. Added tokens do not count: the model has a
/// vocabulary of its own.
fn require_unk(tokenizer: &Tokenizer, path: &Path) -> Result<()> {
    let unk_token = match tokenizer.get_model() {
        ModelWrapper::WordPiece(model) => Some(&model.unk_token),
        ModelWrapper::WordLevel(model) => Some(&model.unk_token),
        ModelWrapper::BPE(model) => model.unk_token.as_ref(),
        ModelWrapper::Unigram(_) => None,
    };
    match unk_token.filter(|unk_token| tokenizer.get_model().token_to_id(unk_token).is_none()) {
        None => Ok(()),
        Some(unk_token) => Err(missing_token(path, "unk_token", &[unk_token])),
    }
}

/// What is read of `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`.
struct Settings {
    config: Fields,
    special_tokens: Fields,
    added_tokens: BTreeMap<u32, Token>,
}

impl Settings {
    fn beside(path: &Path) -> Result<Self> {
        let config = Fields::beside(path, "tokenizer_config.json")?;
        let special_tokens = Fields::beside(path, "special_tokens_map.json")?;
        let added = Fields::beside(path, "added_tokens.json")?;
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
    fn token(&self, role: &str) -> Result<Option<String>> {
        // Of two files that name it, transformers takes the newer kind.
        let token = self.config.get::<Token>(role)?;
        Ok(token.or(self.special_tokens.get(role)?).map(|Token(token)| token.content))
    }

    /// Special tokens that have no role, or one that no model of this crate has.
    fn other_tokens(&self) -> Result<Vec<String>> {
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

    fn normalizer(&self, of_file: BertNormalizer) -> Result<BertNormalizer> {
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
struct Fields {
    path: PathBuf,
    fields: Map<String, Value>,
}

impl Fields {
    fn beside(path: &Path, name: &str) -> Result<Self> {
        let path = path.with_file_name(name);
        let fields = if regular_file::exists(&path) { read_json(&path)? } else { Map::new() };
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
struct Token(AddedToken);

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

impl SpecialTokens {
    /// Looks each up under the name that the settings give it; without one, under BERT's and RoBERTa's names.
    fn find(tokenizer: &Tokenizer, settings: &Settings, path: &Path) -> Result<Self> {
        let look_up = |content: &str| Some((content.to_string(), tokenizer.token_to_id(content)?));
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
        special.all().try_for_each(|(content, _)| check_token(path, content))?;
        Ok(special)
    }

    fn all(&self) -> impl Iterator<Item = &(String, u32)> {
        [&self.pad, &self.cls, &self.sep, &self.mask].into_iter().chain(&self.unk).chain(&self.others)
    }

    /// Has the tokenizer find them in a text as they are written, where its file does not say how. Returns the ids of these and
    /// of all that the tokenizer calls special, ascending.
    fn register(&self, tokenizer: &mut Tokenizer) -> Vec<u32> {
        let known = tokenizer.get_added_tokens_decoder();
        let missing = self.all().filter(|(_, id)| !known.contains_key(id));
        let missing: Vec<_> = missing.map(|(content, _)| AddedToken::from(content, true)).collect();
        tokenizer.add_special_tokens(&missing);
        let called_special = known.iter().filter_map(|(id, token)| token.special.then_some(id));
        // A set, as one token may have several roles.
        let ids: BTreeSet<u32> = self.all().map(|(_, id)| id).chain(called_special).copied().collect();
        ids.into_iter().collect()
    }
}

/// A vocabulary that lacks a special token that the model needs, under all names that it was `looked_for`.
fn missing_token(path: &Path, token: &str, looked_for: &[&str]) -> Error {
    let problem = format!(
        "has no {token}: its vocabulary lacks {}; if the token has another name, set {token} in tokenizer_config.json",
        looked_for.join(" and ")
    );
    Error::file(path, problem)
}

/// Refuses a token for which the library would search too long.
fn check_token(path: &Path, content: &str) -> Result<()> {
    check_length(content).map_err(|problem| {
        let start: String = content.chars().take(40).collect();
        corrupt(path, format!("{start:?}…, a token of the files beside it,{problem}").into())
    })
}

fn corrupt(path: &Path, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::CorruptTokenizer { path: path.to_path_buf(), source }
}
