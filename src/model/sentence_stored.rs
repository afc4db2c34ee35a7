//! How `BertForSentenceEmbedding` is stored: beside the model, sentence-transformers' list of modules.

use super::config::BertModelConfig;
use super::keys::ModelKeys;
use super::pooling::Pooling;
use super::sentence_embedding::{BertForSentenceEmbedding, BertForSentenceEmbeddingConfig};
use super::stored::{Part, Stored, in_file, stored_head};
use crate::checkpoint::{Fields, JsonFile, read_json};
use crate::error::{Error, Result};
use crate::regular_file;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const MODULES: &str = "modules.json";
const POOLING: &str = "1_Pooling";
const NORMALIZE: &str = "2_Normalize";
const TRANSFORMER: &str = "sentence_bert_config.json";
/// Other names of that file in older directories, which sentence-transformers reads if it is not there.
const OLD_TRANSFORMERS: [&str; 5] = [
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
];

/// The names of a pooling in `pooling_mode` and in the older flags.
const MODES: [(Pooling, &str, &str); 6] = [
    (Pooling::Cls, "cls", "pooling_mode_cls_token"),
    (Pooling::Mean, "mean", "pooling_mode_mean_tokens"),
    (Pooling::Max, "max", "pooling_mode_max_tokens"),
    (Pooling::MeanSqrtLen, "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"),
    (Pooling::WeightedMean, "weightedmean", "pooling_mode_weightedmean_tokens"),
    (Pooling::LastToken, "lasttoken", "pooling_mode_lasttoken"),
];

impl BertForSentenceEmbeddingConfig {
    /// Reads the config of a directory of sentence-transformers, or a Hugging Face `config.json`: the file, or the
    /// directory that holds it.
    ///
    /// Of sentence-transformers' files it reads `modules.json`, the pooling's config, and `max_seq_length` and
    /// `do_lower_case` of `sentence_bert_config.json` or of its older names. Prompts are not read.
    ///
    /// # Errors
    ///
    /// Those of [`BertModelConfig::from_pretrained`]; [`Error::ConfigFile`], naming the field, if the modules are not
    /// a transformer in the directory itself, a pooling and optionally a normalisation, or the pooling has several
    /// modes, leaves out prompts or has another width.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_fields(&Fields::at(path.as_ref())?)
    }

    fn from_fields(fields: &Fields) -> Result<Self> {
        let config = Self::new(BertModelConfig::from_fields(fields)?);
        let dir = fields.path().parent().unwrap_or(Path::new(""));
        let modules = dir.join(MODULES);
        let config = if regular_file::exists(&modules) {
            let (pooling, normalize) = modules_of(&modules, dir, config.bert.embeddings.hidden_size)?;
            config.with_pooling(pooling).with_normalize(normalize)
        } else {
            config.with_normalize(false)
        };
        let names = [TRANSFORMER].into_iter().chain(OLD_TRANSFORMERS);
        let transformer = names.map(|name| dir.join(name)).find(|path| regular_file::exists(path));
        let config = match transformer {
            Some(path) => {
                let fields = read_json(&path)?;
                config
                    .with_max_seq_length(max_seq_length(&fields, &path)?)
                    .with_do_lower_case(do_lower_case(&fields, &path)?)
            }
            None => config,
        };
        in_file(config.validate(), fields)?;
        Ok(config)
    }
}

/// The pooling that a list of modules ends in, and whether it is normalised.
fn modules_of(path: &Path, dir: &Path, hidden_size: usize) -> Result<(Pooling, bool)> {
    let invalid = |problem: String| Error::ConfigFile { path: path.to_path_buf(), field: "modules", problem };
    let Value::Array(modules) = read_json(path)? else { return Err(invalid("are not a list".into())) };
    let text = |module: &Value, field: &str| {
        module.get(field).and_then(Value::as_str).map_or_else(String::new, String::from)
    };
    let kinds: Vec<String> = modules.iter().map(|module| kind(&text(module, "type"))).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let normalize = match kinds[..] {
        ["Transformer", "Pooling"] => None,
        ["Transformer", "Pooling", "Normalize"] => Some(dir.join(text(&modules[2], "path"))),
        _ => {
            let problem = "but only Transformer, Pooling and, if need be, Normalize are supported";
            return Err(invalid(format!("are {}, {problem}", kinds.join(", "))));
        }
    };
    if !text(&modules[0], "path").is_empty() {
        return Err(invalid(format!(
            "have the Transformer in {:?}, but it must be beside {MODULES}",
            text(&modules[0], "path")
        )));
    }
    let pooling = pooling_of(&dir.join(text(&modules[1], "path")).join("config.json"), hidden_size)?;
    if let Some(folder) = &normalize {
        check_normalize(&folder.join("config.json"))?;
    }
    Ok((pooling, normalize.is_some()))
}

/// The last part of a class of sentence-transformers, or the whole name of another.
fn kind(class: &str) -> String {
    let name = class.strip_prefix("sentence_transformers.").and_then(|class| class.rsplit('.').next());
    name.unwrap_or(class).into()
}

/// The mode of a pooling's config, in its present or its former form.
fn pooling_of(path: &Path, hidden_size: usize) -> Result<Pooling> {
    let config: Map<String, Value> = read_json(path)?;
    let invalid = |field, problem: String| Error::ConfigFile { path: path.to_path_buf(), field, problem };
    for field in ["embedding_dimension", "word_embedding_dimension"] {
        if let Some(width) = config.get(field).filter(|width| width.as_u64() != Some(hidden_size as u64)) {
            return Err(invalid(field, format!("is {width}, but the model's hidden_size is {hidden_size}")));
        }
    }
    if config.get("include_prompt").is_some_and(|include| *include != Value::Bool(true)) {
        return Err(invalid("include_prompt", "is false, but prompts cannot be left out here".into()));
    }
    let names: Vec<&str> = match config.get("pooling_mode") {
        Some(Value::Array(modes)) => modes.iter().map(|mode| mode.as_str().unwrap_or("?")).collect(),
        Some(mode) => vec![mode.as_str().unwrap_or("?")],
        None => {
            let flags: Vec<_> = config.iter().filter(|(name, _)| name.starts_with("pooling_mode_")).collect();
            if let Some((name, value)) = flags.iter().find(|(_, value)| !value.is_boolean()) {
                return Err(invalid(
                    "pooling_mode",
                    format!("has {name} {value}, but it must be true or false"),
                ));
            }
            let is_true = |(_, value): &&(&String, &Value)| **value == Value::Bool(true);
            let names: Vec<&str> = flags.iter().filter(is_true).map(|(name, _)| name.as_str()).collect();
            if names.is_empty() && !flags.is_empty() {
                return Err(invalid("pooling_mode", "has no flag that is true; set one".into()));
            }
            names
        }
    };
    let supported = MODES.map(|(_, name, _)| name).join(", ");
    match names[..] {
        [] => Ok(Pooling::Mean),
        [name] => MODES
            .iter()
            .find(|(_, mode, flag)| *mode == name || *flag == name)
            .map(|(pooling, ..)| *pooling)
            .ok_or_else(|| invalid("pooling_mode", format!("is {name:?}, but must be one of {supported}"))),
        _ => {
            let problem = format!("is {}, but must be a single one of {supported}", names.join(" with "));
            Err(invalid("pooling_mode", problem))
        }
    }
}

/// Whether what is normalised are the sentences' vectors; without a config, they are.
fn check_normalize(path: &Path) -> Result<()> {
    if !regular_file::exists(path) {
        return Ok(());
    }
    let config: Map<String, Value> = read_json(path)?;
    for field in ["module_input_name", "module_output_name"] {
        let other = config.get(field).filter(|name| !name.is_null() && *name != "sentence_embedding");
        if let Some(other) = other {
            let problem = format!("is {other}, but must be \"sentence_embedding\"");
            return Err(Error::ConfigFile { path: path.to_path_buf(), field, problem });
        }
    }
    Ok(())
}

fn max_seq_length(config: &Map<String, Value>, path: &Path) -> Result<Option<usize>> {
    match config.get("max_seq_length") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let length =
                value.as_u64().filter(|&length| length > 0).and_then(|length| length.try_into().ok());
            let problem = || format!("is {value}, but must be a whole number above 0");
            length.map(Some).ok_or_else(|| Error::ConfigFile {
                path: path.to_path_buf(),
                field: "max_seq_length",
                problem: problem(),
            })
        }
    }
}

fn do_lower_case(config: &Map<String, Value>, path: &Path) -> Result<bool> {
    match config.get("do_lower_case") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(do_lower_case)) => Ok(*do_lower_case),
        Some(value) => Err(Error::ConfigFile {
            path: path.to_path_buf(),
            field: "do_lower_case",
            problem: format!("is {value}, but must be true or false"),
        }),
    }
}

impl Stored for BertForSentenceEmbedding {
    stored_head!(BertForSentenceEmbeddingConfig);

    const CLASS: Option<&'static str> = None;

    fn parts<'a>(&'a self, _keys: &ModelKeys) -> Vec<Part<'a>> {
        Vec::new()
    }

    /// In the format that every version of sentence-transformers since 2.0 reads.
    fn files_beside(&self, dir: &Path) -> Result<Vec<JsonFile>> {
        let config = self.config();
        let module = |index: usize, path: &str, class: &str| {
            let class = format!("sentence_transformers.models.{class}");
            json!({ "idx": index, "name": index.to_string(), "path": path, "type": class })
        };
        let mut modules = vec![module(0, "", "Transformer"), module(1, POOLING, "Pooling")];
        let mut pooling = json!({ "word_embedding_dimension": self.bert.embeddings.hidden_size() });
        for (mode, _, flag) in MODES {
            pooling[flag] = json!(mode == config.pooling);
        }
        let file = |path: PathBuf, value| JsonFile { path: dir.join(path), value };
        let mut files = vec![file(Path::new(POOLING).join("config.json"), pooling)];
        if config.normalize {
            modules.push(module(2, NORMALIZE, "Normalize"));
            let normalize = json!({ "module_input_name": "sentence_embedding" });
            files.push(file(Path::new(NORMALIZE).join("config.json"), normalize));
        }
        let transformer = dir.join(TRANSFORMER);
        let is_there = regular_file::exists(&transformer);
        let mut fields: Map<String, Value> = if is_there { read_json(&transformer)? } else { Map::new() };
        fields.remove("max_seq_length");
        fields.extend(config.max_seq_length.map(|length| ("max_seq_length".to_string(), json!(length))));
        if config.do_lower_case || fields.contains_key("do_lower_case") {
            fields.insert("do_lower_case".into(), json!(config.do_lower_case));
        }
        if is_there || !fields.is_empty() {
            files.push(file(TRANSFORMER.into(), fields.into()));
        }
        files.push(file(MODULES.into(), modules.into()));
        Ok(files)
    }
}
