//! How `BertForSentenceEmbedding` is stored: beside the model, sentence-transformers' list of modules.

use super::*;
use crate::checkpoint::{Fields, ModelKeys, StoredParam};
use crate::error::shown;
use crate::files::hub::transformer_folder;
use crate::files::{CONFIG_NAME, SENTENCE_NAMES, TRANSFORMER_NAMES, read_json, regular_file};
use crate::model::sentence_transformers::{SideConfig, of_torch_class, torch_class, torch_classes};
use crate::model::stored::{Copies, Stored, stored_head};
#[cfg(feature = "tokenizers")]
use crate::text::BertTokenizer;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const MODULES: &str = SENTENCE_NAMES[0];

/// The names of a pooling in `pooling_mode` and in the older flags, of which several give their vectors in this order.
const MODES: [(Pooling, &str, &str); 6] = [
    (Pooling::Cls, "cls", "pooling_mode_cls_token"),
    (Pooling::Max, "max", "pooling_mode_max_tokens"),
    (Pooling::Mean, "mean", "pooling_mode_mean_tokens"),
    (Pooling::MeanSqrtLen, "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"),
    (Pooling::WeightedMean, "weightedmean", "pooling_mode_weightedmean_tokens"),
    (Pooling::LastToken, "lasttoken", "pooling_mode_lasttoken"),
];

/// The folders of the pooling, of the layers and, if there is one, of the normalisation.
fn modules_of(dir: &Path) -> Result<(PathBuf, Vec<PathBuf>, Option<PathBuf>)> {
    let path = dir.join(MODULES);
    let invalid = |problem: String| Err(Error::ConfigFile { path: path.clone(), field: "modules", problem });
    let Value::Array(modules) = read_json(&path)? else { return invalid("are not a list".into()) };
    let texts = |field: &str| -> Vec<&str> {
        modules.iter().map(|module| module[field].as_str().unwrap_or_default()).collect()
    };
    let (paths, kinds) = (texts("path"), texts("type"));
    let kinds: Vec<&str> = kinds.into_iter().map(kind).collect();
    let dense = match &kinds[..] {
        // The normalisation is optional, and nothing follows it.
        ["Transformer", "Pooling", rest @ ..] => rest.strip_suffix(&["Normalize"]).or(Some(rest)),
        _ => None,
    };
    let Some(dense) = dense.filter(|dense| dense.iter().all(|kind| *kind == "Dense")) else {
        let problem =
            "but supported are Transformer, Pooling, then any number of Dense and, if need be, Normalize";
        return invalid(format!("are {}, {problem}", kinds.join(", ")));
    };
    if !paths[0].is_empty() && transformer_folder(dir).is_none() {
        let problem = format!("have the Transformer in {:?}, where there is no {CONFIG_NAME}", paths[0]);
        return invalid(problem);
    }
    // The paths are the file's word, and could lead to files anywhere.
    let outside = kinds.iter().zip(&paths).skip(1).find(|(_, path)| !regular_file::is_plain_name(path));
    if let Some((kind, path)) = outside {
        return invalid(format!("have a {kind} in {path:?}, which is not the name of a folder"));
    }
    let mut folders = paths[1..].iter().map(|path| dir.join(path));
    let pooling = folders.next().expect("the second of the modules");
    Ok((pooling, folders.by_ref().take(dense.len()).collect(), folders.next()))
}

/// The directory with the list of modules, for that of the model.
fn root_of(dir: &Path) -> &Path {
    let above = dir.parent().filter(|above| transformer_folder(above).is_some_and(|folder| folder == dir));
    above.filter(|_| !regular_file::exists(&dir.join(MODULES))).unwrap_or(dir)
}

fn dense_of(config: &SideConfig, width: usize) -> Result<SentenceDenseConfig> {
    check_names(config)?;
    let required = |field| config.size(field)?.ok_or_else(|| config.invalid(field, "is missing".into()));
    let in_features = required("in_features")?;
    if in_features != width {
        let problem = format!("is {in_features}, but what it reads has width {width}");
        return Err(config.invalid("in_features", problem));
    }
    if config.flag("use_residual")? == Some(true) {
        return Err(config.invalid("use_residual", "is true, but a residual is not supported".into()));
    }
    let activation = match config.fields.get("activation_function") {
        None => Activation::Tanh,
        Some(class) => of_torch_class(class).ok_or_else(|| {
            let problem = format!("is {}, but must be one of {}", shown(&class.to_string()), torch_classes());
            config.invalid("activation_function", problem)
        })?,
    };
    Ok(SentenceDenseConfig {
        out_features: required("out_features")?,
        bias: config.flag("bias")?.unwrap_or(true),
        activation,
    })
}

/// The last part of a class of sentence-transformers, or the whole name of another.
fn kind(class: &str) -> &str {
    let name = class.strip_prefix("sentence_transformers.").and_then(|class| class.rsplit('.').next());
    name.unwrap_or(class)
}

/// The modes of a pooling's config, in its present or its former form, and whether prompts are pooled.
fn poolings_of(config: &SideConfig, hidden_size: usize) -> Result<(Vec<Pooling>, bool)> {
    for field in ["embedding_dimension", "word_embedding_dimension"] {
        if let Some(width) = config.fields.get(field).filter(|width| **width != hidden_size) {
            let problem = format!("is {width}, but the model's hidden_size is {hidden_size}");
            return Err(config.invalid(field, problem));
        }
    }
    let include_prompt = config.flag("include_prompt")?.unwrap_or(true);
    let invalid = |problem: String| Err(config.invalid("pooling_mode", problem));
    // Newer files have `pooling_mode`, older ones a flag for each mode.
    let flags = || config.fields.iter().filter(|(name, _)| name.starts_with("pooling_mode_"));
    let names: Vec<&str> = match config.fields.get("pooling_mode") {
        Some(Value::Array(modes)) => modes.iter().map(|mode| mode.as_str().unwrap_or("?")).collect(),
        Some(mode) => vec![mode.as_str().unwrap_or("?")],
        None => match flags().find(|(_, is_set)| !is_set.is_boolean()) {
            Some((name, value)) => {
                return invalid(format!("has {name} {value}, but it must be true or false"));
            }
            None => {
                let is_set = |name: &str| config.fields.get(name).is_some_and(|is_set| *is_set == true);
                let known = MODES.map(|(.., flag)| flag);
                let others = flags().map(|(name, _)| name.as_str()).filter(|name| !known.contains(name));
                known.into_iter().chain(others).filter(|name| is_set(name)).collect()
            }
        },
    };
    if names.is_empty() && flags().count() > 0 && !config.fields.contains_key("pooling_mode") {
        return invalid("has no flag that is true; set one".into());
    }
    let supported = MODES.map(|(_, name, _)| name).join(", ");
    let pooling = |name: &str| {
        let known = MODES.iter().find(|(_, mode, flag)| [*mode, *flag].contains(&name));
        let problem = || format!("is {name:?}, but must be one of {supported}");
        known.map(|(pooling, ..)| *pooling).ok_or_else(|| config.invalid("pooling_mode", problem()))
    };
    if names.len() > MODES.len() {
        return invalid(format!("has {} names, but there are {supported}", names.len()));
    }
    let poolings = names.into_iter().map(pooling).collect::<Result<Vec<_>>>()?;
    Ok((if poolings.is_empty() { vec![Pooling::Mean] } else { poolings }, include_prompt))
}

/// Whether a module reads and writes the sentences' vectors, as it does without a word of it.
fn check_names(config: &SideConfig) -> Result<()> {
    for field in ["module_input_name", "module_output_name"] {
        if let Some(other) = config.get(field).filter(|name| *name != "sentence_embedding") {
            return Err(config.invalid(field, format!("is {other}, but must be \"sentence_embedding\"")));
        }
    }
    Ok(())
}

impl Stored for BertForSentenceEmbedding {
    stored_head!(BertForSentenceEmbeddingConfig, None, bert);

    fn config_of(fields: &Fields) -> Result<BertForSentenceEmbeddingConfig> {
        let mut config = BertForSentenceEmbeddingConfig::new(BertModelConfig::from_fields(fields)?);
        let (transformer, dir) = (fields.dir(), root_of(fields.dir()));
        // As sentence-transformers reads a directory of transformers.
        config.normalize = false;
        if regular_file::exists(&dir.join(MODULES)) {
            let (pooling, dense, normalize) = modules_of(dir)?;
            let mut width = config.bert.embeddings.hidden_size;
            let pooling = SideConfig::at(pooling.join(CONFIG_NAME))?;
            let (mut poolings, include_prompt) = poolings_of(&pooling, width)?;
            (config.pooling, config.include_prompt) = (poolings.remove(0), include_prompt);
            width *= 1 + poolings.len();
            config.more_pooling = poolings;
            for folder in dense {
                let dense = dense_of(&SideConfig::at(folder.join(CONFIG_NAME))?, width)?;
                width = dense.out_features;
                config.dense.push(dense);
            }
            if let Some(folder) = normalize {
                check_names(&SideConfig::if_there(folder.join(CONFIG_NAME))?)?;
                config.normalize = true;
            }
        }
        let own = SideConfig::of_kind(dir, "SentenceTransformer")?;
        let transformer = TRANSFORMER_NAMES
            .iter()
            .map(|name| transformer.join(name))
            .find(|path| regular_file::exists(path));
        let stated = transformer.map_or(Ok(SideConfig::default()), SideConfig::at)?;
        // serde's names of the variants are sentence-transformers'.
        let known = |name: &Value| serde_json::from_value(name.as_str()?.into()).ok();
        let similarity =
            own.value("similarity_fn_name", "one of cosine, dot, euclidean, manhattan", known)?;
        Ok(config
            .with_prompts(own.prompts()?)
            .with_truncate_dim(own.size("truncate_dim")?)
            .with_similarity(similarity.unwrap_or_default())
            .with_max_seq_length(stated.size("max_seq_length")?)
            .with_do_lower_case(stated.flag("do_lower_case")?.unwrap_or(false)))
    }

    fn adapt_params(&self, _keys: &ModelKeys, params: &mut Vec<StoredParam>) -> Copies {
        for param in params {
            if let Some((index, name)) = param.key.strip_prefix("dense.").and_then(|key| key.split_once('.'))
            {
                let index: usize = index.parse().expect("the index in a Vec");
                let folder = format!("{}_Dense", index + 2); // after Transformer and Pooling
                (param.key, param.part, param.folder) = (name.into(), Some(folder.clone()), Some(folder));
            }
        }
        Copies::default()
    }

    fn folders_beside(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let dir = root_of(dir);
        if self.dense.is_empty() || !regular_file::exists(&dir.join(MODULES)) {
            return Ok(Vec::new());
        }
        let (_, folders, _) = modules_of(dir)?;
        // None at all is a checkpoint without these layers, which are then reported as missing.
        if ![0, self.dense.len()].contains(&folders.len()) {
            let problem = format!("have {} Dense, but the config has {}", folders.len(), self.dense.len());
            return Err(Error::ConfigFile { path: dir.join(MODULES), field: "modules", problem });
        }
        Ok(folders)
    }

    #[cfg(feature = "tokenizers")]
    fn prepare_tokenizer(&self, tokenizer: BertTokenizer) -> BertTokenizer {
        let length = self.stated.max_seq_length.into_iter();
        let tokenizer = length.fold(tokenizer, BertTokenizer::with_max_seq_length);
        if self.stated.do_lower_case { tokenizer.with_lower_case() } else { tokenizer }
    }

    /// In the format that every version of sentence-transformers since 2.0 reads.
    fn files_beside(&self, dir: &Path) -> Result<Vec<(PathBuf, Value)>> {
        let config = self.config();
        let module = |index: usize, folder: &str, class: &str| {
            let kind = format!("sentence_transformers.models.{class}");
            json!({ "idx": index, "name": index.to_string(), "path": folder, "type": kind })
        };
        // The Transformer is the directory itself, whose config is the model's.
        let (mut modules, mut files) = (vec![module(0, "", "Transformer")], Vec::new());
        let mut add = |class: &str, config: Value| {
            let folder = format!("{}_{class}", modules.len());
            modules.push(module(modules.len(), &folder, class));
            files.push((dir.join(folder).join(CONFIG_NAME), config));
        };
        let mut pooling = json!({ "word_embedding_dimension": self.bert.embeddings.hidden_size() });
        let all: Vec<Pooling> = [config.pooling].into_iter().chain(config.more_pooling.clone()).collect();
        for (mode, _, flag) in MODES {
            pooling[flag] = json!(all.contains(&mode));
        }
        if all.len() > 1 {
            // The flags have an order of their own.
            let name = |of: &Pooling| MODES.iter().find(|(mode, ..)| mode == of).map(|(_, name, _)| *name);
            pooling["pooling_mode"] = all.iter().map(name).collect();
        }
        if !config.include_prompt {
            pooling["include_prompt"] = json!(false);
        }
        add("Pooling", pooling);
        for SentenceDense { linear, activation } in &self.dense {
            let [in_features, out_features] = linear.weight.lazy_shape().dims();
            let dense = json!({
                "in_features": in_features,
                "out_features": out_features,
                "bias": linear.bias.is_some(),
                // One without a class was refused when the model was built.
                "activation_function": torch_class(*activation),
            });
            add("Dense", dense);
        }
        if config.normalize {
            add("Normalize", json!({ "module_input_name": "sentence_embedding" }));
        }
        let mut own = SideConfig::of_kind(dir, "SentenceTransformer")?;
        let says_nothing = config.prompts == Prompts::new()
            && config.truncate_dim.is_none()
            && config.similarity == Similarity::Cosine;
        if !(own.fields.is_empty() && says_nothing) {
            own.fields.entry("model_type").or_insert_with(|| "SentenceTransformer".into());
            own.set_prompts(&config.prompts);
            own.fields.insert("similarity_fn_name".into(), json!(config.similarity));
            // Absent rather than null where nothing is cut.
            own.fields.remove("truncate_dim");
            own.fields.extend(config.truncate_dim.map(|dim| ("truncate_dim".to_string(), json!(dim))));
            files.push((own.path, own.fields.into()));
        }
        let SideConfig { path, mut fields } = SideConfig::if_there(dir.join(TRANSFORMER_NAMES[0]))?;
        fields.remove("max_seq_length");
        fields.extend(config.max_seq_length.map(|length| ("max_seq_length".to_string(), json!(length))));
        if config.do_lower_case || fields.contains_key("do_lower_case") {
            fields.insert("do_lower_case".into(), json!(config.do_lower_case));
        }
        // An empty file would be read in place of one under an older name.
        if regular_file::exists(&path) || !fields.is_empty() {
            files.push((path, fields.into()));
        }
        files.push((dir.join(MODULES), modules.into()));
        Ok(files)
    }
}
