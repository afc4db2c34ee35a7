//! The tokenizer classes of transformers: which settings overrule a `tokenizer.json`, and how a tokenizer is made without one.
//!
//! Source: `tokenization_auto.py`, `convert_slow_tokenizer.py` and the classes' own files of transformers 5.23. A class makes
//! its tokenizer anew, from the vocabulary and the settings: of a `tokenizer.json` it takes the vocabulary, the character map
//! and the added tokens alone.

use super::sentencepiece::SentencePiece;
use super::settings::{Files, Settings, corrupt, parsed};
use crate::error::{Error, Result};
use crate::files::regular_file;
use Class::{Albert, AsItIs, Bert, Camembert, DebertaV2, MpNet, Roberta, XlmRoberta};
use serde_json::{Map, Value, json};
use std::path::Path;
use tokenizers::AddedToken;

/// The most lines of a `vocab.txt`, for each of which the library takes some 150 bytes. LaBSE's has 501,153.
const MAX_LINES: usize = 900_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Bert,
    MpNet,
    Roberta,
    XlmRoberta,
    Camembert,
    DebertaV2,
    Albert,
    /// What takes a `tokenizer.json` as it is, whatever the settings say: `PreTrainedTokenizerFast`, and other classes.
    AsItIs,
}

/// Each class with its names, without `Tokenizer` and `Fast`, and the families whose models have it if they state none.
const CLASSES: [(Class, &str, &str); 8] = [
    (
        Bert,
        "Bert DistilBert Electra ConvBert MobileBert SqueezeBert LayoutLM",
        "bert distilbert electra ernie nomic_bert",
    ),
    (MpNet, "MPNet", "mpnet"),
    (Roberta, "Roberta Longformer Bart", "roberta data2vec-text"),
    (XlmRoberta, "XLMRoberta", "xlm-roberta gte jina_embeddings_v3"),
    (Camembert, "Camembert", "camembert"),
    (DebertaV2, "DebertaV2", "deberta-v2"),
    (Albert, "Albert", "albert"),
    (AsItIs, "PreTrained", "modernbert"),
];

/// Classes that compute in Python, and read no `tokenizer.json`.
const IN_PYTHON: &str = "BertJapanese Phobert Bertweet Bartpho BertGeneration RoCBert Flaubert XLM";

const WAY_OUT: &str = "tokenize in Python and pass the ids (BertEmbeddingsInput::from_rows), or save a tokenizer.json with the \
                       same ids and set tokenizer_class to PreTrainedTokenizerFast in tokenizer_config.json";

impl Class {
    /// The class of the tokenizer at `path`, if anything tells it, and whether a file states it by name.
    pub(super) fn find(path: &Path, settings: &Settings, has_json: bool) -> Result<(Option<Self>, bool)> {
        let unsupported = |path: &Path, what: &str| {
            Err(Error::file(path, format!("{what}, which is not supported; {WAY_OUT}")))
        };
        let places = [&settings.config, &settings.model];
        for fields in places {
            for name in ["word_tokenizer_type", "subword_tokenizer_type"] {
                if let Some(kind) = fields.get::<String>(name)? {
                    return unsupported(&fields.path, &format!("has the {name} {kind}"));
                }
            }
        }
        if !has_json && settings.config.get::<Value>("auto_map")?.is_some() {
            return unsupported(&settings.config.path, "names code of its own in auto_map");
        }
        let codes = path.with_file_name("bpe.codes");
        if !has_json && regular_file::exists(&codes) {
            return unsupported(&codes, "is of fastBPE");
        }
        let has = |names: &str, name: &str| names.split(' ').any(|known| known == name);
        let family = settings.model.get::<String>("model_type")?.unwrap_or_default();
        let of_family = CLASSES.iter().find(|(.., families)| has(families, &family)).map(|class| class.0);
        for fields in places {
            let Some(stated) = fields.get::<String>("tokenizer_class")? else { continue };
            // Whatever these models state.
            if of_family == Some(AsItIs) {
                break;
            }
            let name = stated.strip_suffix("Fast").unwrap_or(&stated);
            let name = name.strip_suffix("Tokenizer").unwrap_or_default();
            let class = CLASSES.iter().find(|(_, names, _)| has(names, name)).map_or(AsItIs, |class| class.0);
            if has(IN_PYTHON, name) || class == AsItIs && !has_json {
                return unsupported(&fields.path, &format!("has the tokenizer_class {stated}"));
            }
            return Ok((Some(class), true));
        }
        Ok((of_family, false))
    }

    /// The type of its model, and the files of its vocabulary if there is no `tokenizer.json`.
    pub(super) fn model(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Bert | MpNet => ("WordPiece", ["vocab.txt"; 2]),
            Roberta | AsItIs => ("BPE", ["vocab.json", "merges.txt"]),
            XlmRoberta | Camembert => ("Unigram", ["sentencepiece.bpe.model"; 2]),
            DebertaV2 => ("Unigram", ["spm.model"; 2]),
            Albert => ("Unigram", ["spiece.model"; 2]),
        }
    }

    /// The names of a special token that no file names, first its own; whether the class has the token at all.
    pub(super) fn usual_tokens(self, role: &str) -> ([&'static str; 2], bool) {
        let (bert, roberta) = match role {
            "bos_token" | "cls_token" => ("[CLS]", "<s>"),
            "eos_token" | "sep_token" => ("[SEP]", "</s>"),
            "unk_token" => ("[UNK]", "<unk>"),
            "pad_token" => ("[PAD]", "<pad>"),
            _ => ("[MASK]", "<mask>"),
        };
        let is_bert = match self {
            Bert | DebertaV2 | AsItIs => true,
            MpNet => role == "unk_token",
            Albert => !["unk_token", "pad_token"].contains(&role),
            Roberta | XlmRoberta | Camembert => false,
        };
        let is_there = match self {
            Bert => !["bos_token", "eos_token"].contains(&role),
            _ => self != AsItIs,
        };
        (if is_bert { [bert, roberta] } else { [roberta, bert] }, is_there)
    }

    /// The special token of a role, by the files or the class.
    pub(super) fn token(self, role: &str, settings: &Settings) -> Result<Option<AddedToken>> {
        let ([usual, _], is_there) = self.usual_tokens(role);
        let usual = || is_there.then(|| AddedToken::from(usual, true));
        let Some(token) = settings.token(role)?.or_else(usual) else { return Ok(None) };
        let is_plain = token == AddedToken::from(&token.content, true);
        Ok(Some(match self {
            MpNet if is_plain => token.normalized(true).lstrip(role == "mask_token"),
            Camembert if is_plain => token.lstrip(role == "mask_token"),
            _ => token,
        }))
    }

    /// What a `tokenizer.json` with this vocabulary would be, without special tokens.
    pub(super) fn tokenizer(self, vocabulary: Vocabulary, settings: &Settings) -> Result<Value> {
        let Vocabulary { tokens, merges, unk_id, precompiled_charsmap, .. } = vocabulary;
        let flag = |name, default| settings.flag(name, default);
        let map = precompiled_charsmap.map(|map| json!({"type": "Precompiled", "precompiled_charsmap": map}));
        let lower_case =
            |default| Ok::<_, Error>(flag("do_lower_case", default)?.then(|| json!({"type": "Lowercase"})));
        let replace = |pattern, content| json!({"type": "Replace", "pattern": pattern, "content": content});
        let byte_level = |space| json!({"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": true});
        let otherwise = if self == DebertaV2 { "first" } else { "never" };
        let scheme = if flag("add_prefix_space", true)? { "always" } else { otherwise };
        let metaspace =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
        let words = vec![json!({"type": "WhitespaceSplit"}), metaspace.clone()];
        let (normalizers, pre_tokenizers, decoder) = match self {
            Bert | MpNet => {
                let normalizer = json!({
                    "type": "BertNormalizer",
                    "clean_text": true,
                    "handle_chinese_chars": flag("tokenize_chinese_chars", true)?,
                    "strip_accents": settings.config.get::<bool>("strip_accents")?,
                    "lowercase": flag("do_lower_case", true)?,
                });
                let decoder = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
                (vec![normalizer], vec![json!({"type": "BertPreTokenizer"})], decoder)
            }
            Roberta | AsItIs => {
                (vec![], vec![byte_level(flag("add_prefix_space", false)?)], byte_level(true))
            }
            XlmRoberta | Camembert => (map.into_iter().collect(), words, metaspace),
            DebertaV2 => {
                let spaces = replace(json!({"Regex": r"\s{2,}|[\n\r\t]"}), " ");
                let strip = json!({"type": "Strip", "strip_left": false, "strip_right": true});
                let normalizers =
                    lower_case(false)?.into_iter().chain([spaces, json!({"type": "NFC"}), strip]);
                let punctuation = json!({"type": "Punctuation", "behavior": "Isolated"});
                let split = flag("split_by_punct", false)?.then_some(punctuation);
                (normalizers.collect(), split.into_iter().chain([metaspace.clone()]).collect(), metaspace)
            }
            Albert => {
                let mut normalizers =
                    ["``", "''"].map(|quote| replace(json!({"String": quote}), "\"")).to_vec();
                if !flag("keep_accents", false)? {
                    normalizers.extend([json!({"type": "NFKD"}), json!({"type": "StripAccents"})]);
                }
                normalizers.extend(lower_case(true)?.into_iter().chain(map));
                (normalizers, words, metaspace)
            }
        };
        let unk = self.token("unk_token", settings)?.unwrap_or_default().content;
        let place = |fits: &dyn Fn(&Value) -> bool| {
            let place = tokens
                .as_array()
                .and_then(|pieces| pieces.iter().position(|piece| piece[0] == unk && fits(piece)));
            place.map(|place| place as u64)
        };
        let unk_id = match self {
            Albert => 1,
            XlmRoberta => 3,
            Camembert => place(&|_| true).unwrap_or(0),
            _ => place(&|piece| piece[1] == 0.0).or(unk_id).or(settings.config.get("unk_id")?).unwrap_or(1),
        };
        let mut model = match self.model().0 {
            "WordPiece" => {
                json!({"unk_token": unk, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100})
            }
            "Unigram" => json!({"unk_id": unk_id, "byte_fallback": false}),
            _ => json!({"merges": merges, "continuing_subword_prefix": "", "end_of_word_suffix": ""}),
        };
        (model["type"], model["vocab"]) = (self.model().0.into(), tokens);
        Ok(json!({
            "version": "1.0",
            "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
            "decoder": decoder,
            "model": model,
        }))
    }
}

/// What a class makes a tokenizer of.
pub(super) struct Vocabulary {
    pub(super) tokens: Value,
    merges: Value,
    unk_id: Option<u64>,
    /// In base64.
    precompiled_charsmap: Option<Value>,
    /// Special tokens without a role, if no file names any.
    pub(super) others: Option<Vec<AddedToken>>,
}

impl Vocabulary {
    fn new(tokens: Value) -> Self {
        Self { tokens, merges: Value::Null, unk_id: None, precompiled_charsmap: None, others: None }
    }

    /// Of a `tokenizer.json`.
    pub(super) fn of_json(class: Class, file: &mut Value) -> Self {
        let mut normalizer = file["normalizer"].take();
        let parts = match normalizer["normalizers"].take() {
            Value::Array(parts) => parts,
            _ => vec![normalizer],
        };
        let mut maps = parts.into_iter().map(|mut part| part["precompiled_charsmap"].take());
        let unused = ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"].map(|token| AddedToken::from(token, true));
        Self {
            merges: file["model"]["merges"].take(),
            precompiled_charsmap: maps.find(Value::is_string),
            others: (class == Camembert).then(|| unused.to_vec()),
            ..Self::new(file["model"]["vocab"].take())
        }
    }

    /// Of the files of a class, the first of which is at `path`.
    pub(super) fn read(class: Class, path: &Path, files: &Files, settings: &Settings) -> Result<Self> {
        let (model, [name, merges]) = class.model();
        let file = &files[name];
        match model {
            "WordPiece" => Self::of_lines(path, file),
            "BPE" => {
                let path = path.with_file_name(merges);
                let missing = || Error::file(&path, "is missing, but belongs to the vocab.json beside it");
                let text = regular_file::text(&path, files.get(merges).ok_or_else(missing)?.clone())?;
                let pair = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
                    [first, second] => Ok(json!([first, second])),
                    _ => Err(corrupt(&path, format!("{line:?} is not a pair of tokens").into())),
                };
                let merges = text.lines().filter(|line| !line.starts_with("#version")).map(pair);
                let merges = merges.collect::<Result<_>>()?;
                Ok(Self { merges, ..Self::new(parsed(&path.with_file_name(name), file)?) })
            }
            _ => {
                let model = SentencePiece::read(file).map_err(|problem| corrupt(path, problem.into()))?;
                Self::of_sentencepiece(class, model, settings)
            }
        }
    }

    fn of_lines(path: &Path, file: &[u8]) -> Result<Self> {
        let text = regular_file::text(path, file.to_vec())?;
        let lines = text.lines().count();
        if lines > MAX_LINES {
            let problem = format!("has {lines} lines, but a vocabulary may have {MAX_LINES} at most");
            return Err(Error::file(path, problem));
        }
        let tokens = text.lines().enumerate().map(|(id, line)| (line.trim_end().to_string(), id.into()));
        Ok(Self::new(Value::Object(tokens.collect::<Map<_, _>>())))
    }

    /// Models of fairseq have other ids than SentencePiece's, and special tokens before and after its pieces.
    fn of_sentencepiece(class: Class, model: SentencePiece, settings: &Settings) -> Result<Self> {
        let SentencePiece { pieces, unk_id, precompiled_charsmap } = model;
        let special =
            |role| Ok::<_, Error>(json!([class.token(role, settings)?.unwrap_or_default().content, 0.0]));
        let (first, skipped) = match class {
            XlmRoberta => (
                ["bos_token", "pad_token", "eos_token", "unk_token"]
                    .map(special)
                    .into_iter()
                    .collect::<Result<_>>()?,
                3,
            ),
            Camembert => {
                let [pad, unk] = [special("pad_token")?, special("unk_token")?];
                let unused = [("<s>NOTUSED", 0.0), ("</s>NOTUSED", 0.0), ("<unk>NOTUSED", -100.0)];
                let [bos, eos, old_unk] = unused.map(|(token, score)| json!([token, score]));
                (vec![bos, pad, eos, unk, old_unk], 1)
            }
            _ => (Vec::new(), 0),
        };
        let mask = (skipped > 0).then(|| special("mask_token")).transpose()?;
        let others = pieces.iter().filter(|piece| piece.is_added());
        let others = others.map(|piece| AddedToken::from(piece.text, piece.is_control()).normalized(false));
        let entries = pieces.iter().skip(skipped).map(|piece| json!([piece.text, piece.score]));
        let map = (!precompiled_charsmap.is_empty()).then(|| base64::encode(precompiled_charsmap).into());
        Ok(Self {
            unk_id: Some(unk_id),
            precompiled_charsmap: map,
            others: Some(others.collect()),
            ..Self::new(first.into_iter().chain(entries).chain(mask).collect())
        })
    }
}
