//! The files of a tokenizer, read and written: vocabulary, settings and special tokens.

use super::check::{check, check_length, refuse_large};
use super::classes::{Class, OWN_TOKENS, read_vocabulary};
use super::settings::{Files, ROLES, Settings, Token, corrupt, parsed};
use super::tokenizer::{BertTokenizer, SpecialTokens, guarded};
use crate::error::{Error, Result};
use crate::files::hub::{Wanted, directory};
use crate::files::{CONFIG_NAME, Replacement, TOKENIZER_NAMES, VOCABULARY_NAMES, base_of, regular_file};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::processors::roberta::RobertaProcessing;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::utils::truncation::TruncationDirection;
use tokenizers::{AddedToken, Model, ModelWrapper, PostProcessor, PostProcessorWrapper, Tokenizer};

const TOKENIZER_NAME: &str = TOKENIZER_NAMES[0];

/// A `model_max_length` from here on says that there is no limit; transformers writes 10³⁰.
const NO_LIMIT: f64 = 1e9;

fn names() -> impl Iterator<Item = &'static str> {
    TOKENIZER_NAMES.into_iter().chain(VOCABULARY_NAMES)
}

impl BertTokenizer {
    /// Reads the tokenizer of a Hugging Face checkpoint: a directory with a `tokenizer.json` (preferred) or the vocabulary of its
    /// class, or one of those files; with the feature `hub` also a model's name on the Hugging Face Hub.
    ///
    /// `tokenizer_class` of `tokenizer_config.json` or `config.json`, or else the model's family, names the class. Those of BERT
    /// and MPNet (`vocab.txt`), RoBERTa (`vocab.json` and `merges.txt`), XLM-RoBERTa, CamemBERT (`sentencepiece.bpe.model`),
    /// DeBERTa-v2 (`spm.model`) and ALBERT (`spiece.model`) are made as in transformers: the settings of `tokenizer_config.json`
    /// (case, accents, ideographs, punctuation, leading space), or the class's defaults, overrule a `tokenizer.json`. Other classes
    /// take a `tokenizer.json` as it is. Added and special tokens are those of all files, or else the class's, or else have BERT's
    /// names, such as `[MASK]`, or RoBERTa's, `<mask>`. Texts are cut at `truncation_side`, and padded at the end, whatever
    /// `padding_side` says.
    ///
    /// # Errors
    ///
    /// - [`Error::File`] if the directory has none of these files, the class needs other code (`BertJapaneseTokenizer`), one of the
    ///   tokenizer's files has more than 64 MiB or a `vocab.txt` more than 900,000 lines, or the vocabulary lacks the padding,
    ///   `[CLS]`, `[SEP]` or `[MASK]` token or the model's `[UNK]`;
    ///   [`Error::Io`] if a file cannot be read;
    /// - [`Error::CorruptTokenizer`] if a file does not parse, or an entry could cause a panic or take excessive memory or
    ///   time; [`Error::NotUtf8`] if `vocab.txt` is not UTF-8.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        let mut path = directory(path.as_ref(), Wanted::Settings)?;
        let (mut files, mut named) = read_files(&path)?;
        if named.is_none() && !names().any(|name| files.contains_key(name)) {
            // An adapter's directory may leave it to the base model.
            path = base_of(&path)?.into_owned();
            (files, named) = read_files(&path)?;
        }
        let path = if named.is_some() { path } else { path.join(TOKENIZER_NAME) };
        let settings = Settings::of(&path, &files)?;
        files.remove(CONFIG_NAME);
        let Source { class, path, file, added, others } = Source::read(path, named, &files, &settings)?;
        check(&file).map_err(|problem| corrupt(&path, problem.into()))?;
        // From what was checked: of a name that is there twice, the library would read both.
        let tokenizer = guarded(|| Tokenizer::deserialize(&file).map_err(Into::into));
        let mut tokenizer = tokenizer.map_err(|source| corrupt(&path, source))?;
        require_unk(&tokenizer, &path)?;
        // The library would copy the whole vocabulary to tell it.
        let largest_id = match &file["model"]["vocab"] {
            Value::Object(ids) => ids.values().filter_map(Value::as_u64).max(),
            Value::Array(pieces) => (pieces.len() as u64).checked_sub(1),
            _ => None,
        };
        let largest_id = largest_id.map(|id| id as u32); // the library's ids have 32 bits
        drop(file);
        add_tokens(&mut tokenizer, &settings.added_tokens(added)?, &path)?;
        let (special, special_token_ids) =
            SpecialTokens::add(&mut tokenizer, class, others, &settings, &path)?;
        let of_class = || post_processor(class, &special, &settings);
        let mut post_processor = tokenizer.get_post_processor().cloned().map_or_else(of_class, Ok)?;
        // Of a vocabulary that nobody reads without its class.
        if !files.contains_key(TOKENIZER_NAME) && class.model().0 != "WordPiece" {
            tokenizer.with_post_processor(Some(post_processor.clone()));
            let file = tokenizer.to_string(false).map_err(|source| corrupt(&path, source))?;
            files.insert(TOKENIZER_NAME, file.into_bytes());
            // Beside a tokenizer.json the list is taken as complete, while a vocabulary has tokens of its own.
            if let Some(config) = settings.with_all_added_tokens(&tokenizer) {
                files.insert("tokenizer_config.json", config);
            }
        }
        let trim_offsets = taken_trim(&mut post_processor);
        let truncation = tokenizer.get_truncation().cloned().unwrap_or_default();
        let stated_max_length = match settings.config.get::<f64>("model_max_length")? {
            Some(length) => (length < NO_LIMIT).then_some(length as usize),
            None => tokenizer.get_truncation().map(|truncation| truncation.max_length),
        };
        let truncation_side = match settings.config.get::<String>("truncation_side")?.as_deref() {
            Some("left") => TruncationDirection::Left,
            Some(_) => TruncationDirection::Right,
            None => truncation.direction,
        };
        tokenizer.set_encode_special_tokens(settings.flag("split_special_tokens", false)?);
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
            truncation_side,
            pad_to_multiple_of: None,
        })
    }

    /// Writes the files that the tokenizer was read from, as they were then, into `dir`, which may be where they are:
    /// vocabulary, settings and files of other libraries, and the `tokenizer.json` of any vocabulary but a `vocab.txt`, with all of
    /// its tokens in `added_tokens_decoder` if the settings have that list. Limits that were set since are not in them.
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

/// The files of the tokenizer in a directory, or of the one at `path`, by their names in a directory; and the name of what is at
/// `path`. They are kept: a save after hours of training writes what was read, whatever is there by then.
fn read_files(path: &Path) -> Result<(Files, Option<&'static str>)> {
    // By name and extension and not by content: a vocabulary may begin with a brace.
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let usual = if is_json { TOKENIZER_NAME } else { VOCABULARY_NAMES[0] };
    let own = VOCABULARY_NAMES.into_iter().find(|name| path.ends_with(name)).unwrap_or(usual);
    let is_dir = path.is_dir();
    let place = |name| match name {
        _ if is_dir => Some(path.join(name)),
        _ if name == own => Some(path.to_path_buf()),
        // The file that was named is read in its place.
        TOKENIZER_NAME => None,
        _ => Some(path.with_file_name(name)),
    };
    let exists = |place: &PathBuf| place == path || regular_file::exists(place);
    let read = |(name, path): (_, PathBuf)| {
        refuse_large(&path)?;
        Ok((name, regular_file::read_whole(&path)?))
    };
    let names = names().chain([CONFIG_NAME]);
    let places = names.filter_map(|name| Some((name, place(name).filter(exists)?)));
    Ok((places.map(read).collect::<Result<_>>()?, (!is_dir).then_some(own)))
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

/// What a tokenizer is made of.
struct Source {
    class: Class,
    /// Of the file with the vocabulary.
    path: PathBuf,
    /// The `tokenizer.json`, or what it would be.
    file: Value,
    /// The added tokens of the `tokenizer.json`, by their ids.
    added: BTreeMap<u32, AddedToken>,
    /// Special tokens without a role, if no other file names any.
    others: Option<Vec<AddedToken>>,
}

impl Source {
    fn read(mut path: PathBuf, named: Option<&str>, files: &Files, settings: &Settings) -> Result<Self> {
        let json = files.get(TOKENIZER_NAME);
        let (found, is_stated) = Class::find(&path, settings, json.is_some())?;
        let (class, mut file) = if let Some(json) = json {
            let file: Value = parsed(&path, json)?;
            let model = match &file["model"] {
                model if model["vocab"].is_array() => "Unigram",
                model if model["merges"].is_array() => "BPE",
                _ => "WordPiece",
            };
            let fits = |class: &Class| *class == Class::AsItIs || class.model().0 == model;
            let class = found.filter(fits).unwrap_or(Class::AsItIs);
            if is_stated && found != Some(class) {
                let problem = format!(
                    "has a {model} model, which its tokenizer_class has not; if the file is right, set tokenizer_class \
                     to PreTrainedTokenizerFast in tokenizer_config.json"
                );
                return Err(Error::file(&path, problem));
            }
            (class, file)
        } else {
            let is_there = |name| named.is_none_or(|named| named == name) && files.contains_key(name);
            let class = found.filter(|class| is_stated || is_there(class.model().1[0]));
            let name = class.unwrap_or(Class::Bert).model().1[0];
            if !is_there(name) {
                let others: Vec<_> =
                    VOCABULARY_NAMES.into_iter().filter(|name| files.contains_key(name)).collect();
                let hint = match others[..] {
                    [] => String::new(),
                    _ => {
                        format!(", or set tokenizer_class in tokenizer_config.json for {}", others.join(", "))
                    }
                };
                let problem = format!(
                    "has neither tokenizer.json nor {name}; save the tokenizer there (in Python: \
                     AutoTokenizer.from_pretrained(..).save_pretrained(..)) or name one of these files{hint}"
                );
                return Err(Error::file(path.parent().unwrap_or(&path), problem));
            }
            if named.is_none() {
                path.set_file_name(name);
            }
            let file = read_vocabulary(class.unwrap_or(Class::Bert), &path, files, settings)?;
            // Without a class, by the special tokens.
            let has = |token| file["model"]["vocab"].get(token).is_some();
            let is_mpnet = has("<s>") && !has("[CLS]");
            (class.unwrap_or(if is_mpnet { Class::MpNet } else { Class::Bert }), file)
        };
        let mut added = BTreeMap::new();
        for token in file["added_tokens"].as_array().into_iter().flatten() {
            let Token(content) = Token::deserialize(token).map_err(|source| corrupt(&path, source.into()))?;
            added.extend(token["id"].as_u64().map(|id| (id as u32, content))); // the library's ids have 32 bits
        }
        let unused = ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"].map(|token| AddedToken::from(token, true));
        let unused = (class == Class::Camembert && !settings.has_additional()).then(|| unused.to_vec());
        let others = Option::deserialize(&file[OWN_TOKENS]).ok().flatten().or(unused);
        if class != Class::AsItIs {
            let of_file = file["post_processor"].clone();
            file = class.tokenizer(file, settings)?;
            // The other classes make their own.
            if class == Class::Albert {
                file["post_processor"] = of_file;
            }
        }
        Ok(Self { class, path, file, added, others })
    }
}

/// Adds tokens to a vocabulary. They must get the ids that the files give them.
fn add_tokens(tokenizer: &mut Tokenizer, added: &BTreeMap<u32, AddedToken>, path: &Path) -> Result<()> {
    // All at once: each call builds the library's search for added tokens again.
    let tokens: Vec<AddedToken> = added.values().cloned().collect();
    tokens.iter().try_for_each(|token| check_token(path, &token.content))?;
    tokenizer.add_tokens(&tokens);
    for (&id, token) in added {
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
    Ok(())
}

/// What puts the special tokens of a class around texts.
fn post_processor(
    class: Class,
    special: &SpecialTokens,
    settings: &Settings,
) -> Result<PostProcessorWrapper> {
    let SpecialTokens { cls, sep, bos, eos, .. } = special.clone();
    let trims = settings.flag("trim_offsets", true)?;
    let adds_prefix_space = settings.flag("add_prefix_space", false)?;
    Ok(match class {
        Class::Bert | Class::DebertaV2 | Class::Albert => BertProcessing::new(sep, cls).into(),
        // Its vocabulary is WordPiece's, and its special tokens are RoBERTa's, two between texts.
        Class::MpNet => RobertaProcessing::new(sep, cls).add_prefix_space(false).into(),
        Class::Roberta => {
            RobertaProcessing::new(sep, cls).trim_offsets(trims).add_prefix_space(adds_prefix_space).into()
        }
        Class::XlmRoberta | Class::Camembert => {
            RobertaProcessing::new(eos.unwrap_or(sep), bos.unwrap_or(cls)).trim_offsets(false).into()
        }
        Class::AsItIs => TemplateProcessing::default().into(),
    })
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
    /// Looks each up under the name that the settings or the class give it, and has the tokenizer find it in a text as it is
    /// written. Returns the ids of these and of all that the tokenizer calls special, ascending, too.
    fn add(
        tokenizer: &mut Tokenizer,
        class: Class,
        others: Option<Vec<AddedToken>>,
        settings: &Settings,
        path: &Path,
    ) -> Result<(Self, Vec<u32>)> {
        let mut known = tokenizer.get_added_tokens_decoder();
        let mut seen: BTreeSet<String> = known.values().map(|token| token.content.clone()).collect();
        let mut tokens = Vec::new();
        for role in ROLES {
            let of_class = class.token(role, settings)?;
            let usual = class.usual_tokens(role);
            let stated = settings.token(role)?.map(|token| token.content);
            let names = stated.as_deref().map_or(usual.to_vec(), |stated| vec![stated]);
            // Without a class, what the file has added says most.
            let added = names.iter().find(|&&name| of_class.is_none() && seen.contains(name));
            let found = added.or(names.iter().find(|name| tokenizer.token_to_id(name).is_some()));
            let is_needed = ["pad_token", "cls_token", "sep_token", "mask_token"].contains(&role);
            let token = match (found, of_class) {
                (Some(name), Some(token)) if token.content == **name => token,
                (Some(name), of_class) if is_needed || of_class.is_some() || role == "unk_token" => {
                    // What is only guessed is not looked for in texts.
                    seen.extend(of_class.is_none().then(|| name.to_string()));
                    AddedToken::from(*name, true)
                }
                // Vocabularies of SentencePiece leave out what their class adds to them, such as [MASK].
                (None, Some(token)) if !is_needed || others.is_some() => token,
                (None, _) if is_needed => return Err(missing_token(path, role, &names)),
                _ => continue,
            };
            tokens.push((role, token));
        }
        tokens.extend(settings.other_tokens(others)?.into_iter().map(|token| ("", token)));
        tokens.iter().try_for_each(|(_, token)| check_token(path, &token.content))?;
        let missing = tokens.iter().filter(|(_, token)| seen.insert(token.content.clone()));
        let missing: Vec<AddedToken> = missing.map(|(_, token)| token.clone()).collect();
        tokenizer.add_tokens(&missing);

        let id = |token: &AddedToken| tokenizer.token_to_id(&token.content).unwrap_or_default();
        let role = |role| {
            let (_, token) = tokens.iter().find(|(name, _)| *name == role)?;
            Some((token.content.clone(), id(token)))
        };
        let needed = |name| role(name).ok_or_else(|| missing_token(path, name, &[]));
        let special = Self {
            pad: needed("pad_token")?,
            cls: needed("cls_token")?,
            sep: needed("sep_token")?,
            mask: needed("mask_token")?,
            // Optional, as Unigram vocabularies may have none; `require_unk` has checked the other models.
            unk: role("unk_token"),
            bos: role("bos_token"),
            eos: role("eos_token"),
        };
        known.retain(|_, token| token.special);
        // A set, as one token may have several roles.
        let ids: BTreeSet<u32> = tokens.iter().map(|(_, token)| id(token)).chain(known.into_keys()).collect();
        Ok((special, ids.into_iter().collect()))
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
