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
use serde_json::{Value, json};
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
    /// `PreTrainedTokenizerFast` and unknown classes: a `tokenizer.json` as it is, whatever the settings say.
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
    (AsItIs, "PreTrained", "modernbert eurobert"),
];

/// Where [`read_vocabulary`] puts special tokens without a role, which count if no other file names any.
pub(super) const OWN_TOKENS: &str = "own_tokens";

/// Classes that compute in Python, and read no `tokenizer.json`.
const IN_PYTHON: &str = "BertJapanese Phobert Bertweet Bartpho BertGeneration RoCBert Flaubert XLM";

const WAY_OUT: &str = "tokenize in Python and pass the ids (BertEmbeddingsInput::from_rows), or save a tokenizer.json with the \
                       same ids and set tokenizer_class to PreTrainedTokenizerFast in tokenizer_config.json";

impl Class {
    /// The class of the tokenizer at `path`, if anything tells it, and whether a file states it by name.
    pub(super) fn find(path: &Path, settings: &Settings, has_json: bool) -> Result<(Option<Self>, bool)> {
        let refuse =
            |path: &Path, what| Err(Error::file(path, format!("{what}, which is not supported; {WAY_OUT}")));
        if !has_json && settings.config.get::<Value>("auto_map")?.is_some() {
            return refuse(&settings.config.path, "names code of its own in auto_map".to_string());
        }
        let codes = path.with_file_name("bpe.codes");
        if !has_json && regular_file::exists(&codes) {
            return refuse(&codes, "is of fastBPE".to_string());
        }
        let has = |names: &str, name: &str| names.split(' ').any(|known| known == name);
        let family = settings.model.get::<String>("model_type")?.unwrap_or_default();
        let of_family = CLASSES.iter().find(|(.., families)| has(families, &family)).map(|class| class.0);
        // What ModernBERTs state is wrong, and what EuroBERTs state is this class.
        let fields = ["tokenizer_class", "word_tokenizer_type", "subword_tokenizer_type"];
        for field in fields.into_iter().filter(|_| of_family != Some(AsItIs)) {
            for file in [&settings.config, &settings.model] {
                let Some(stated) = file.get::<String>(field)? else { continue };
                let name = stated.strip_suffix("Fast").unwrap_or(&stated);
                let name = name.strip_suffix("Tokenizer").unwrap_or_default();
                let class =
                    CLASSES.iter().find(|(_, names, _)| has(names, name)).map_or(AsItIs, |class| class.0);
                if has(IN_PYTHON, name) || field != fields[0] || class == AsItIs && !has_json {
                    return refuse(&file.path, format!("has the {field} {stated}"));
                }
                return Ok((Some(class), true));
            }
        }
        Ok((of_family, false))
    }

    /// The type of its model, and the files of its vocabulary if there is no `tokenizer.json`.
    pub(super) fn model(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Bert | MpNet => ("WordPiece", ["vocab.txt"; 2]),
            Roberta => ("BPE", ["vocab.json", "merges.txt"]),
            XlmRoberta | Camembert => ("Unigram", ["sentencepiece.bpe.model"; 2]),
            DebertaV2 => ("Unigram", ["spm.model"; 2]),
            Albert => ("Unigram", ["spiece.model"; 2]),
            AsItIs => ("", ["tokenizer.json"; 2]),
        }
    }

    /// The names of a special token that no file names, first the class's own.
    pub(super) fn usual_tokens(self, role: &str) -> [&'static str; 2] {
        let [bert, roberta] = match role {
            "bos_token" | "cls_token" => ["[CLS]", "<s>"],
            "eos_token" | "sep_token" => ["[SEP]", "</s>"],
            "unk_token" => ["[UNK]", "<unk>"],
            "pad_token" => ["[PAD]", "<pad>"],
            _ => ["[MASK]", "<mask>"],
        };
        let is_roberta = match self {
            Bert | DebertaV2 | AsItIs => false,
            MpNet => role != "unk_token",
            Albert => ["unk_token", "pad_token"].contains(&role),
            Roberta | XlmRoberta | Camembert => true,
        };
        if is_roberta { [roberta, bert] } else { [bert, roberta] }
    }

    /// The special token of a role, by the files or the class.
    pub(super) fn token(self, role: &str, settings: &Settings) -> Result<Option<AddedToken>> {
        let has_role = self != AsItIs && (self != Bert || !["bos_token", "eos_token"].contains(&role));
        let usual = has_role.then(|| AddedToken::from(self.usual_tokens(role)[0], true));
        let token = settings.token(role)?.or(usual);
        let has_lstrip = role == "mask_token" && matches!(self, MpNet | Camembert);
        Ok(token.map(|token| match token == AddedToken::from(&token.content, true) {
            true => token.lstrip(has_lstrip),
            false => token,
        }))
    }

    /// What the class makes of the vocabulary and the character map of a `tokenizer.json`.
    pub(super) fn tokenizer(self, mut file: Value, settings: &Settings) -> Result<Value> {
        let mut take = |pointer| file.pointer_mut(pointer).map(Value::take).unwrap_or_default();
        let [tokens, merges, unk_id] = ["/model/vocab", "/model/merges", "/model/unk_id"].map(&mut take);
        let mut maps = match take("/normalizer/normalizers") {
            Value::Array(parts) => parts,
            _ => vec![take("/normalizer")],
        };
        let mut maps = maps.iter_mut().filter_map(|part| Some(part.get_mut("precompiled_charsmap")?.take()));
        let map = maps.find(Value::is_string).unwrap_or_default();
        let flag = |name, default| settings.flag(name, default);
        let only = |is_there: bool, part| if is_there { part } else { Value::Null };
        let map = only(!map.is_null(), json!({"type": "Precompiled", "precompiled_charsmap": map}));
        let is_lower = flag("do_lower_case", self != DebertaV2)?;
        let lower_case = only(is_lower, json!({"type": "Lowercase"}));
        let scheme = match self {
            _ if flag("add_prefix_space", true)? => "always",
            DebertaV2 => "first",
            _ => "never",
        };
        let metaspace =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
        let words = json!([{"type": "WhitespaceSplit"}, metaspace]);
        let (mut normalizers, mut pre_tokenizers, decoder) = match self {
            Bert | MpNet => {
                let (ideographs, strip) =
                    (flag("tokenize_chinese_chars", true)?, settings.config.get::<bool>("strip_accents")?);
                let normalizer = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": ideographs,
                    "strip_accents": strip, "lowercase": is_lower});
                let decoder = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
                (json!([normalizer]), json!([{"type": "BertPreTokenizer"}]), decoder)
            }
            Roberta | AsItIs => {
                let decoder = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
                let mut pre_tokenizer = decoder.clone();
                pre_tokenizer["add_prefix_space"] = flag("add_prefix_space", false)?.into();
                (json!([]), json!([pre_tokenizer]), decoder)
            }
            XlmRoberta | Camembert => (json!([map]), words, metaspace),
            DebertaV2 => {
                let spaces =
                    json!({"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "});
                let strip = json!({"type": "Strip", "strip_left": false, "strip_right": true});
                let punctuation = json!({"type": "Punctuation", "behavior": "Isolated"});
                let punctuation = only(flag("split_by_punct", false)?, punctuation);
                (
                    json!([lower_case, spaces, {"type": "NFC"}, strip]),
                    json!([punctuation, metaspace]),
                    metaspace,
                )
            }
            Albert => {
                let [open, close] = ["``", "''"]
                    .map(|quotes| json!({"type": "Replace", "pattern": {"String": quotes}, "content": "\""}));
                let has_accents = flag("keep_accents", false)?;
                let [split, strip] =
                    ["NFKD", "StripAccents"].map(|part| only(!has_accents, json!({"type": part})));
                (json!([open, close, split, strip, lower_case, map]), words, metaspace)
            }
        };
        for parts in [&mut normalizers, &mut pre_tokenizers].into_iter().filter_map(Value::as_array_mut) {
            parts.retain(|part| !part.is_null());
        }
        let unk = self.token("unk_token", settings)?.unwrap_or_default().content;
        let index_of = |score: &dyn Fn(&Value) -> bool| {
            let mut pieces = tokens.as_array().into_iter().flatten();
            pieces.position(|piece| piece[0] == unk && score(&piece[1])).map(|index| index as u64)
        };
        let unk_id = match self {
            Albert => 1,
            XlmRoberta => 3,
            Camembert => index_of(&|_| true).unwrap_or(0),
            _ => index_of(&|score| *score == 0.0).or(unk_id.as_u64()).unwrap_or(1),
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
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
            "decoder": decoder,
            "model": model,
        }))
    }
}

/// The vocabulary in the files of a class, the first of which is at `path`, as a `tokenizer.json`.
pub(super) fn read_vocabulary(
    class: Class,
    path: &Path,
    files: &Files,
    settings: &Settings,
) -> Result<Value> {
    let (model, [name, merges]) = class.model();
    if model == "WordPiece" {
        let text = regular_file::text(path, files[name].clone())?;
        let lines = text.lines().count();
        if lines > MAX_LINES {
            let problem = format!("has {lines} lines, but a vocabulary may have {MAX_LINES} at most");
            return Err(Error::file(path, problem));
        }
        let tokens = text.lines().enumerate().map(|(id, line)| (line.trim_end().to_string(), id.into()));
        return Ok(json!({"model": {"vocab": Value::Object(tokens.collect())}}));
    }
    if model == "BPE" {
        let path = path.with_file_name(merges);
        let missing = || Error::file(&path, "is missing, but belongs to the vocab.json beside it");
        let text = regular_file::text(&path, files.get(merges).ok_or_else(missing)?.clone())?;
        let pair = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            [first, second] => Ok(json!([first, second])),
            _ => Err(corrupt(&path, format!("{line:?} is not a pair of tokens").into())),
        };
        let merges = text.lines().filter(|line| !line.starts_with("#version")).map(pair);
        let merges = merges.collect::<Result<Value>>()?;
        let vocab: Value = parsed(&path.with_file_name(name), &files[name])?;
        return Ok(json!({"model": {"vocab": vocab, "merges": merges}}));
    }
    let file = SentencePiece::read(&files[name]).map_err(|problem| corrupt(path, problem.into()))?;
    let mut special = Vec::new();
    for role in ["bos_token", "pad_token", "eos_token", "unk_token", "mask_token"] {
        special.push(json!([class.token(role, settings)?.unwrap_or_default().content, 0.0]));
    }
    // Models of fairseq have other ids than SentencePiece's, and special tokens before and after its pieces.
    let skipped = match class {
        XlmRoberta => 3,
        Camembert => {
            (special[0], special[2]) = (json!(["<s>NOTUSED", 0.0]), json!(["</s>NOTUSED", 0.0]));
            special.insert(4, json!(["<unk>NOTUSED", -100.0]));
            1
        }
        _ => {
            special.clear();
            0
        }
    };
    let mask = special.pop();
    let pieces = file.pieces.iter().skip(skipped).map(|(piece, score, _)| json!([piece, score]));
    let vocab: Value = special.into_iter().chain(pieces).chain(mask).collect();
    let own = file.pieces.iter().filter(|(.., kind)| [3, 4].contains(kind));
    let own = own.map(|&(piece, _, kind)| AddedToken::from(piece, kind == 3).normalized(false));
    let map = file.precompiled_charsmap;
    let map = if map.is_empty() { Value::Null } else { base64::encode(map).into() };
    Ok(json!({
        "model": {"vocab": vocab, "unk_id": file.unk_id},
        "normalizer": {"precompiled_charsmap": map},
        OWN_TOKENS: own.collect::<Vec<_>>(),
    }))
}
