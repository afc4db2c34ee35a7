//! The files of a tokenizer, read and written: vocabulary, settings and special tokens.

use super::check::{check, check_length, refuse_large};
use super::settings::{Files, Settings, corrupt, parsed};
use super::tokenizer::{BertTokenizer, SpecialTokens, guarded};
use crate::error::{Error, Result};
use crate::files::hub::{Wanted, directory};
use crate::files::{Replacement, TOKENIZER_NAMES, regular_file};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
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

/// The most lines of a `vocab.txt`, for each of which the library takes some 150 bytes. LaBSE's has 501,153.
const MAX_LINES: usize = 900_000;

/// The files of other libraries, which are saved along.
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
    /// - [`Error::File`] if the directory has neither file, one of the tokenizer's files has more than 64 MiB or a `vocab.txt` more
    ///   than 900,000 lines, or the vocabulary lacks the padding, `[CLS]`, `[SEP]` or `[MASK]` token or the model's `[UNK]`;
    ///   [`Error::Io`] if a file cannot be read;
    /// - [`Error::CorruptTokenizer`] if a file does not parse, or an entry could cause a panic or take excessive memory or
    ///   time; [`Error::NotUtf8`] if `vocab.txt` is not UTF-8.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        let path = directory(path.as_ref(), Wanted::Settings)?;
        let problem = "has neither tokenizer.json nor vocab.txt; save the tokenizer there (in Python: \
                       AutoTokenizer.from_pretrained(..).save_pretrained(..)) or name one of these files";
        let path = regular_file::first_in(&path, &[TOKENIZER_NAME, VOCAB_NAME])
            .ok_or_else(|| Error::file(&path, problem))?;
        let files = read_files(&path)?;
        let settings = Settings::of(&path, &files)?;
        let (mut tokenizer, largest_id) = match files.get(TOKENIZER_NAME) {
            Some(file) => from_json(&path, file, &settings)?,
            None => from_vocabulary(&path, &files[VOCAB_NAME], &settings)?,
        };

        let special = SpecialTokens::find(&tokenizer, &settings, &path)?;
        let special_token_ids = special.register(&mut tokenizer);
        let mut post_processor = tokenizer.get_post_processor().cloned().unwrap_or_else(|| {
            let (cls, sep) = (special.cls.clone(), special.sep.clone());
            // MPNet's vocabulary is WordPiece's, and its special tokens are RoBERTa's, two between texts.
            match cls.0.as_str() {
                "<s>" => RobertaProcessing::new(sep, cls).add_prefix_space(false).into(),
                _ => BertProcessing::new(sep, cls).into(),
            }
        });
        let trim_offsets = taken_trim(&mut post_processor);
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
        let largest = tokenizer.get_added_tokens_decoder().into_keys().chain(added).chain(largest_id).max();
        Ok(Self {
            files: files.into(),
            vocab_size: largest.map_or(0, |id| id as usize + 1),
            is_local: Self::is_local(&tokenizer),
            lowers_case: false,
            tokenizer: Arc::new(tokenizer),
            post_processor,
            trim_offsets,
            special,
            special_token_ids,
            stated_max_length,
            own_max_length: None,
            readable_length: None,
            trained_length: None,
            pad_to_multiple_of: None,
        })
    }

    /// Writes the files that the tokenizer was read from, as they were then, into `dir`, which may be where they are:
    /// `tokenizer.json` or `vocab.txt`, and the settings and files of other libraries next to it. Limits that were set since are
    /// not in them.
    ///
    /// Returns [`Error::Io`] if a file cannot be written; [`Error::File`] if `dir` has a file of another tokenizer, which would be
    /// read along with them. Each file is then as it was.
    pub fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        let dir = dir.as_ref();
        regular_file::create_directory(dir)?;
        self.check_directory(dir)?;
        let mut new = Replacement::begin(dir)?;
        for (name, bytes) in self.files.iter() {
            new.write(&dir.join(name), |out| out.write_all(bytes))?;
        }
        new.commit()
    }

    /// Whether [`save_pretrained`](Self::save_pretrained) may write into `dir`.
    pub(crate) fn check_directory(&self, dir: &Path) -> Result<()> {
        let mut names = names().filter(|name| !self.files.contains_key(name));
        match names.find(|name| regular_file::exists(&dir.join(name))) {
            Some(foreign) => {
                let problem = "is of another tokenizer than the one that is saved, and would be read with it; remove it, or \
                               choose another directory";
                Err(Error::file(&dir.join(foreign), problem))
            }
            None => Ok(()),
        }
    }
}

/// The tokenizer at `path` and the files beside it, by the names by which a directory's tokenizer is found. They are kept: a save
/// after hours of training writes what was read, whatever is there by then.
fn read_files(path: &Path) -> Result<Files> {
    // By extension and not by content: a vocabulary may begin with a brace.
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let own = if is_json { TOKENIZER_NAME } else { VOCAB_NAME };
    let place = |name| match name {
        _ if name == own => Some(path.to_path_buf()),
        // The file that was named is read in its place.
        TOKENIZER_NAME => None,
        _ => Some(path.with_file_name(name)).filter(|beside| regular_file::exists(beside)),
    };
    let read = |(name, path): (_, PathBuf)| {
        refuse_large(&path)?;
        Ok((name, regular_file::read_whole(&path)?))
    };
    names().filter_map(|name| Some((name, place(name)?))).map(read).collect()
}

/// Takes the trimming of offsets out of a post-processor: whether the tokenizer puts a space before a text, if there is any.
fn taken_trim(post_processor: &mut PostProcessorWrapper) -> Option<bool> {
    let (trims, add_prefix_space) = match post_processor {
        PostProcessorWrapper::Roberta(part) => (&mut part.trim_offsets, part.add_prefix_space),
        PostProcessorWrapper::ByteLevel(part) => (&mut part.trim_offsets, part.add_prefix_space),
        PostProcessorWrapper::Sequence(parts) => {
            let taken: Vec<_> = parts.as_mut().iter_mut().map(taken_trim).collect();
            return taken.into_iter().flatten().next();
        }
        PostProcessorWrapper::Bert(_) | PostProcessorWrapper::Template(_) => return None,
    };
    std::mem::take(trims).then_some(add_prefix_space)
}

/// A `tokenizer.json`, with what `tokenizer_config.json` says of case, accents, ideographs and the space before a text:
/// transformers' tokenizers of these families let that overrule the file.
/// Returns the largest id of the model, too: the library would copy the whole vocabulary to tell it.
fn from_json(path: &Path, file: &[u8], settings: &Settings) -> Result<(Tokenizer, Option<u32>)> {
    let file: Value = parsed(path, file)?;
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
    let largest_id = match &file["model"]["vocab"] {
        Value::Object(ids) => ids.values().filter_map(Value::as_u64).max(),
        Value::Array(pieces) => (pieces.len() as u64).checked_sub(1),
        _ => None,
    };
    Ok((tokenizer, largest_id.map(|id| id as u32))) // the library's ids have 32 bits
}

/// BERT's own tokenizer over a `vocab.txt`, and the largest id of the model.
fn from_vocabulary(path: &Path, file: &[u8], settings: &Settings) -> Result<(Tokenizer, Option<u32>)> {
    let unk_token = settings.token("unk_token")?.unwrap_or("[UNK]".to_string());
    let text = regular_file::text(path, file.to_vec())?;
    let lines = text.lines().count();
    if lines > MAX_LINES {
        let problem = format!("has {lines} lines, but a vocabulary may have {MAX_LINES} at most");
        return Err(Error::file(path, problem));
    }
    let vocabulary = WordPiece::read_bytes(text.as_bytes());
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
    Ok((tokenizer, (lines as u32).checked_sub(1)))
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
