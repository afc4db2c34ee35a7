//! The files of a tokenizer, read and written.

use super::check::{check, guarded, refuse_large};
use super::settings::{Settings, SpecialTokens, check_token, corrupt, missing_token};
use super::tokenizer::BertTokenizer;
use crate::error::{Error, Result};
use crate::files::hub::{Wanted, directory};
use crate::files::names::TOKENIZER_NAMES;
use crate::files::{Replacement, directory_of, regular_file};
use serde::Deserialize;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use tokenizers::decoders::wordpiece::WordPiece as WordPieceDecoder;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::processors::roberta::RobertaProcessing;
use tokenizers::{AddedToken, Model, ModelWrapper, Tokenizer};

const TOKENIZER_NAME: &str = TOKENIZER_NAMES[0];
const VOCAB_NAME: &str = TOKENIZER_NAMES[1];

/// A `model_max_length` from here on says that there is no limit; transformers writes 10³⁰.
const NO_LIMIT: f64 = 1e9;

/// The files of other libraries, which are copied along.
const OTHER_NAMES: [&str; 4] = ["vocab.json", "merges.txt", "sentencepiece.bpe.model", "spiece.model"];

fn names() -> impl Iterator<Item = &'static str> {
    TOKENIZER_NAMES.into_iter().chain(OTHER_NAMES)
}

impl BertTokenizer {
    /// Reads the tokenizer of a Hugging Face checkpoint: a directory with a `tokenizer.json` (preferred) or BERT's or
    /// MPNet's `vocab.txt`, or one of those files; with the feature `hub` also a model's name on the Hugging Face Hub.
    ///
    /// As in transformers, `tokenizer_config.json` beside it overrides the case, accents, ideographs and leading space of a
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
        special.register(&mut tokenizer);
        if tokenizer.get_post_processor().is_none() {
            let [cls, sep] = [&special.cls, &special.sep].map(|token| (token.content.clone(), token.id));
            // MPNet's vocabulary is WordPiece's, and its special tokens are RoBERTa's, two between texts.
            let processor: PostProcessorWrapper = match cls.0.as_str() {
                "<s>" => RobertaProcessing::new(sep, cls).add_prefix_space(false).into(),
                _ => BertProcessing::new(sep, cls).into(),
            };
            tokenizer.with_post_processor(Some(processor));
        }
        let truncation = tokenizer.get_truncation().map(|truncation| truncation.max_length);
        let model_max_length = match settings.get::<f64>("model_max_length")? {
            Some(length) => (length < NO_LIMIT).then_some(length as usize),
            None => truncation,
        };
        tokenizer.with_truncation(None).map_err(|source| corrupt(&path, source))?;
        // `batch` pads, and `encode` cuts.
        tokenizer.with_padding(None);
        let added_ids = added_ids(&tokenizer).map_err(|source| corrupt(&path, source))?;
        Ok(Self::new(&path, tokenizer, special, model_max_length, added_ids))
    }

    /// Copies the files that the tokenizer was read from into `dir`, which may be where they are: `tokenizer.json` or
    /// `vocab.txt`, and the settings and files of other libraries beside it. Limits that were set since are not in them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a file is gone or cannot be written; [`Error::File`] if `dir` has a file of another tokenizer, which
    /// would be read along with them. Each file is then as it was.
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

/// The ids that the post-processor adds to a text, and to a pair.
fn added_ids(tokenizer: &Tokenizer) -> tokenizers::Result<Vec<u32>> {
    // Of empty texts what is left is what it adds.
    let empty = tokenizers::Encoding::default;
    let one = guarded(|| tokenizer.post_process(empty(), None, true))?;
    let two = guarded(|| tokenizer.post_process(empty(), Some(empty()), true))?;
    Ok([one.get_ids(), two.get_ids()].concat())
}

/// A `tokenizer.json`, with what `tokenizer_config.json` says of case, accents, ideographs and the space before a text:
/// transformers' tokenizers of these families let that overrule the file.
fn from_json(path: &Path, settings: &Settings) -> Result<Tokenizer> {
    refuse_large(path)?;
    let file: Value = serde_json::from_slice(&regular_file::read_whole(path)?)
        .map_err(|source| corrupt(path, source.into()))?;
    check(&file).map_err(|problem| corrupt(path, problem.into()))?;
    // From what was checked: of a name that is there twice, the library would read both.
    let tokenizer = guarded(|| Tokenizer::deserialize(&file).map_err(Into::into));
    let mut tokenizer = tokenizer.map_err(|source| corrupt(path, source))?;
    if let Some(NormalizerWrapper::BertNormalizer(normalizer)) = tokenizer.get_normalizer() {
        let normalizer = settings.normalizer(*normalizer)?;
        tokenizer.with_normalizer(Some(normalizer));
    }
    if let (Some(PreTokenizerWrapper::ByteLevel(byte_level)), Some(add_prefix_space)) =
        (tokenizer.get_pre_tokenizer(), settings.get("add_prefix_space")?)
    {
        let byte_level = ByteLevel::new(add_prefix_space, byte_level.trim_offsets, byte_level.use_regex);
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
