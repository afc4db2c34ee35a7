//! The files of a tokenizer, read and written.

use super::check::{check, refuse_large};
use super::classes::{Class, OWN_TOKENS, read_vocabulary};
use super::settings::{Files, Settings, Token, corrupt, parsed};
use super::special_tokens::{add_tokens, require_unk};
use super::tokenizer::{BertTokenizer, SpecialTokens, guarded};
use crate::error::{Error, Result};
use crate::files::hub::{HubFiles, directory};
use crate::files::{CONFIG_NAME, Replacement, TOKENIZER_NAMES, VOCABULARY_NAMES, base_of, regular_file};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::processors::roberta::RobertaProcessing;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::utils::truncation::TruncationDirection;
use tokenizers::{AddedToken, PostProcessor, PostProcessorWrapper, Tokenizer};

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
        let mut path = directory(path.as_ref(), HubFiles::Settings)?;
        let (mut files, mut named) = read_files(&path)?;
        if named.is_none() && !names().any(|name| files.contains_key(name)) {
            // An adapter's directory may leave it to the base model.
            path = base_of(&path)?.into_owned();
            (files, named) = read_files(&path)?;
        }
        let path = if named.is_some() { path } else { path.join(TOKENIZER_NAME) };
        let settings = Settings::read(&path, &files)?;
        files.remove(CONFIG_NAME);
        let TokenizerSource { class, path, file, added, others } =
            TokenizerSource::read(path, named, &files, &settings)?;
        check(&file).map_err(|problem| corrupt(&path, problem.into()))?;
        // The library would copy the whole vocabulary to tell it.
        let largest_id = match &file["model"]["vocab"] {
            Value::Object(ids) => ids.values().filter_map(Value::as_u64).max(),
            Value::Array(pieces) => (pieces.len() as u64).checked_sub(1),
            _ => None,
        };
        let largest_id = largest_id.map(|id| id as u32); // the library's ids have 32 bits
        // From what was checked: of a name that is there twice, the library would read both.
        let tokenizer = guarded(|| Tokenizer::deserialize(file).map_err(Into::into));
        let mut tokenizer = tokenizer.map_err(|source| corrupt(&path, source))?;
        require_unk(&tokenizer, &path)?;
        add_tokens(&mut tokenizer, &settings.added_tokens(added)?, &path)?;
        let (special, special_token_ids) =
            SpecialTokens::add(&mut tokenizer, class, others, &settings, &path)?;
        let from_class = || post_processor(class, &special, &settings);
        let mut post_processor = tokenizer.get_post_processor().cloned().map_or_else(from_class, Ok)?;
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
        let has_token_types = match settings.config.get::<Vec<String>>("model_input_names")? {
            Some(names) => names.iter().any(|name| name == "token_type_ids"),
            // Of no class: what the post-processor gives.
            None if class == Class::AsItIs => settings.config.get::<String>("tokenizer_class")?.is_none(),
            // As in transformers 5.24, where ALBERT's has none.
            None => matches!(class, Class::Bert | Class::DebertaV2),
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
            has_token_types,
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
    let candidate = |name| match name {
        _ if is_dir => Some(path.join(name)),
        _ if name == own => Some(path.to_path_buf()),
        // The file that was named is read in its place.
        TOKENIZER_NAME => None,
        _ => Some(path.with_file_name(name)),
    };
    let exists = |candidate: &PathBuf| candidate == path || regular_file::exists(candidate);
    let read = |(name, path): (_, PathBuf)| {
        refuse_large(&path)?;
        Ok((name, regular_file::read_whole(&path)?))
    };
    let names = names().chain([CONFIG_NAME]);
    let candidates = names.filter_map(|name| Some((name, candidate(name).filter(exists)?)));
    Ok((candidates.map(read).collect::<Result<_>>()?, (!is_dir).then_some(own)))
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
struct TokenizerSource {
    class: Class,
    /// The path of the file with the vocabulary.
    path: PathBuf,
    /// The `tokenizer.json`, or what it would be.
    file: Value,
    /// The added tokens of the `tokenizer.json`, by their ids.
    added: BTreeMap<u32, AddedToken>,
    /// Special tokens without a role, if no other file names any.
    others: Option<Vec<AddedToken>>,
}

impl TokenizerSource {
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
