//! How `BertForSentenceEmbedding` is stored: beside the model, sentence-transformers' list of modules.

use super::pooling_config;
use super::sentence_module::SentenceDenseConfig;
use super::*;
use crate::checkpoint::{Fields, ModelKeys, StoredParam};
use crate::encoder::Activation;
use crate::error::shown;
use crate::files::hub::transformer_folder;
use crate::files::{CONFIG_NAME, SENTENCE_NAMES, TRANSFORMER_NAMES, read_json, regular_file};
use crate::model::sentence_transformers::{SideConfig, torch_activation, torch_class, torch_classes};
use crate::model::stored::{Copies, Stored, stored_head};
#[cfg(feature = "tokenizers")]
use crate::text::BertTokenizer;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const MODULES: &str = SENTENCE_NAMES[0];

/// Classes of modules that are not computed here, and why.
const OTHERS: [(&[&str], &str); 4] = [
    (&["BoW", "StaticEmbedding", "WordEmbeddings", "WordWeights"], "reads words without a Transformer"),
    (&["CNN", "LSTM"], "computes the tokens' vectors anew"),
    (&["Asym", "Router"], "chooses modules by the kind of a text"),
    (&["CLIPModel"], "embeds images and texts"),
];

/// The classes of the modules after the Transformer, each with its folder: perhaps a WeightedLayerPooling, a Pooling, and what
/// follows it.
fn read_modules(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let path = dir.join(MODULES);
    let invalid = |problem: String| Err(Error::ConfigFile { path: path.clone(), field: "modules", problem });
    let Value::Array(modules) = read_json(&path)? else { return invalid("are not a list".into()) };
    let texts = |field: &str| -> Vec<&str> {
        modules.iter().map(|module| module[field].as_str().unwrap_or_default()).collect()
    };
    let (paths, kinds) = (texts("path"), texts("type"));
    let kinds: Vec<&str> = kinds.into_iter().map(class_name).collect();
    for (classes, does) in OTHERS {
        if let Some(kind) = kinds.iter().find(|kind| classes.contains(kind)) {
            return invalid(format!("have {kind}, which {does} and is not supported"));
        }
    }
    let rest = match &kinds[..] {
        ["Transformer", "WeightedLayerPooling", "Pooling", rest @ ..]
        | ["Transformer", "Pooling", rest @ ..] => Some(rest),
        _ => None,
    };
    let is_after_pooling = |kind: &&str| ["Dense", "LayerNorm", "Dropout", "Normalize"].contains(kind);
    if rest.is_none_or(|rest| !rest.iter().all(is_after_pooling)) {
        let problem = "but supported are Transformer, perhaps WeightedLayerPooling, Pooling, and then Dense, LayerNorm, Dropout and \
                       Normalize in any order";
        return invalid(format!("are {}, {problem}", kinds.join(", ")));
    }
    if !paths[0].is_empty() && transformer_folder(dir).is_none() {
        let problem = format!("have the Transformer in {:?}, where there is no {CONFIG_NAME}", paths[0]);
        return invalid(problem);
    }
    // The paths are the file's word, and could lead to files anywhere.
    let outside = kinds.iter().zip(&paths).skip(1).find(|(_, path)| !regular_file::is_plain_name(path));
    if let Some((kind, path)) = outside {
        return invalid(format!("have a {kind} in {path:?}, which is not the name of a folder"));
    }
    let folders = kinds.iter().zip(&paths).skip(1).map(|(kind, path)| (kind.to_string(), dir.join(path)));
    Ok(folders.collect())
}

/// The directory with the list of modules, for that of the model.
fn root_of(dir: &Path) -> &Path {
    let above = dir.parent().filter(|above| transformer_folder(above).is_some_and(|folder| folder == dir));
    above.filter(|_| !regular_file::exists(&dir.join(MODULES))).unwrap_or(dir)
}

/// A module after the pooling that reads vectors of length `width`.
fn read_module(kind: &str, config: &SideConfig, width: usize) -> Result<SentenceModuleConfig> {
    let required = |field| config.size(field)?.ok_or_else(|| config.invalid(field, "is missing".into()));
    let check_width = |field| match required(field)? {
        found if found == width => Ok(()),
        found => Err(config.invalid(field, format!("is {found}, but what it reads has width {width}"))),
    };
    Ok(match kind {
        "Dense" => {
            check_names(config)?;
            check_width("in_features")?;
            let activation = match config.fields.get("activation_function") {
                None => Activation::Tanh,
                Some(class) => torch_activation(class).ok_or_else(|| {
                    let problem =
                        format!("is {}, but must be one of {}", shown(&class.to_string()), torch_classes());
                    config.invalid("activation_function", problem)
                })?,
            };
            let dense = SentenceDenseConfig::new(required("out_features")?)
                .with_bias(config.flag("bias")?.unwrap_or(true))
                .with_activation(activation)
                .with_use_residual(config.flag("use_residual")?.unwrap_or(false));
            dense.into()
        }
        "LayerNorm" => {
            check_width("dimension")?;
            SentenceModuleConfig::LayerNorm
        }
        "Dropout" => {
            let is_valid = |prob: &f64| (0.0..1.0).contains(prob);
            let read = |prob: &Value| prob.as_f64().filter(is_valid);
            SentenceModuleConfig::Dropout(config.value("dropout", "a number in [0, 1)", read)?.unwrap_or(0.2))
        }
        _ => {
            check_names(config)?;
            SentenceModuleConfig::Normalize
        }
    })
}

/// The first hidden state of a WeightedLayerPooling of a model of so many layers.
fn read_layer_start(config: &SideConfig, fields: &Fields, layers: usize) -> Result<usize> {
    let stated = config.size("num_hidden_layers")?.unwrap_or(12);
    if stated != layers {
        let problem = format!("is {stated}, but the model has {layers} layers");
        return Err(config.invalid("num_hidden_layers", problem));
    }
    let transformer = transformer_settings(fields.dir())?;
    let of_settings = ["config_kwargs", "config_args"].iter().any(|kwargs| {
        transformer.fields.get(*kwargs).is_some_and(|kwargs| kwargs["output_hidden_states"] == true)
    });
    let are_asked_for = of_settings || fields.flag("output_hidden_states")? == Some(true);
    fields.ensure(are_asked_for, "output_hidden_states", || {
        "is not true, without which sentence-transformers skips the WeightedLayerPooling of modules.json; set it, or remove \
         that module"
            .into()
    })?;
    let read = |start: &Value| start.as_u64().and_then(|start| start.try_into().ok());
    Ok(config.value("layer_start", "a whole number", read)?.unwrap_or(4))
}

/// The settings of the Transformer in its folder, under whatever name, or nothing.
fn transformer_settings(dir: &Path) -> Result<SideConfig> {
    let mut paths = TRANSFORMER_NAMES.iter().map(|name| dir.join(name));
    paths.find(|path| regular_file::exists(path)).map_or(Ok(SideConfig::default()), SideConfig::at)
}

/// The last part of a class of sentence-transformers, or the whole name of another.
fn class_name(class: &str) -> &str {
    let name = class.strip_prefix("sentence_transformers.").and_then(|class| class.rsplit('.').next());
    name.unwrap_or(class)
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
        let dir = root_of(fields.dir());
        // As sentence-transformers reads a directory of transformers.
        config.normalize = false;
        if regular_file::exists(&dir.join(MODULES)) {
            let mut width = 0;
            for (kind, folder) in read_modules(dir)? {
                let path = folder.join(CONFIG_NAME);
                let has_defaults = ["Dropout", "Normalize"].contains(&kind.as_str());
                let own = if has_defaults { SideConfig::if_there(path)? } else { SideConfig::at(path)? };
                match kind.as_str() {
                    "WeightedLayerPooling" => {
                        let layers = config.bert.num_hidden_layers;
                        config.layer_start = Some(read_layer_start(&own, fields, layers)?);
                    }
                    "Pooling" => {
                        let (mut poolings, include_prompt) =
                            pooling_config::read(&own, config.bert.embeddings.hidden_size)?;
                        (config.pooling, config.include_prompt) = (poolings.remove(0), include_prompt);
                        config.more_pooling = poolings;
                        width = config.width();
                    }
                    _ => {
                        let module = read_module(&kind, &own, width)?;
                        width = module.width_after(width);
                        config.modules.push(module);
                    }
                }
            }
            let is_last = |module: &mut SentenceModuleConfig| *module == SentenceModuleConfig::Normalize;
            config.normalize = config.modules.pop_if(is_last).is_some();
        }
        let own = SideConfig::read_kind(dir, "SentenceTransformer")?;
        let stated = transformer_settings(fields.dir())?;
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

    fn head_fields(&self) -> Map<String, Value> {
        self.layer_weights.iter().map(|_| ("output_hidden_states".into(), json!(true))).collect()
    }

    fn adapt_params(&self, _keys: &ModelKeys, params: &mut Vec<StoredParam>) -> Copies {
        // After Transformer, WeightedLayerPooling if there is one, and Pooling.
        let first = 2 + usize::from(self.layer_weights.is_some());
        for param in params {
            let names: Vec<&str> = param.key.split('.').collect();
            let (folder, key) = match names[..] {
                ["layer_weights"] => ("1_WeightedLayerPooling".into(), param.key.clone()),
                ["modules", index, class, ref rest @ ..] => {
                    let index: usize = index.parse().expect("the index in a Vec");
                    let key = match rest {
                        // By names of their own, whatever those of the model's norms are.
                        ["gamma" | "weight"] => "norm.weight".into(),
                        ["beta" | "bias"] => "norm.bias".into(),
                        _ => rest.join("."),
                    };
                    (format!("{}_{class}", first + index), key)
                }
                _ => continue,
            };
            (param.key, param.part, param.folder) = (key, Some(folder.clone()), Some(folder));
        }
        Copies::default()
    }

    fn module_folders(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        const WITH_WEIGHTS: [&str; 3] = ["WeightedLayerPooling", "Dense", "LayerNorm"];
        let dir = root_of(dir);
        let own = self.layer_weights.iter().map(|_| WITH_WEIGHTS[0]);
        let own = own.chain(self.modules.iter().map(|module| module.config().class()));
        let own: Vec<&str> = own.filter(|class| WITH_WEIGHTS.contains(class)).collect();
        if own.is_empty() || !regular_file::exists(&dir.join(MODULES)) {
            return Ok(Vec::new());
        }
        let mut listed = read_modules(dir)?;
        listed.retain(|(kind, _)| WITH_WEIGHTS.contains(&kind.as_str()));
        let (kinds, folders): (Vec<String>, _) = listed.into_iter().unzip();
        // None at all is a checkpoint without these modules, which are then reported as missing.
        if !kinds.is_empty() && kinds != own {
            let problem = format!("have {}, but the config has {}", kinds.join(", "), own.join(", "));
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

    /// The files of sentence-transformers' modules, in the format that every version since 2.0 reads.
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
        if let Some(layer_start) = config.layer_start {
            let weighted = json!({
                "word_embedding_dimension": self.bert.embeddings.hidden_size(),
                "num_hidden_layers": config.bert.num_hidden_layers,
                "layer_start": layer_start,
            });
            add("WeightedLayerPooling", weighted);
        }
        let poolings: Vec<Pooling> =
            [config.pooling].into_iter().chain(config.more_pooling.clone()).collect();
        let hidden_size = self.bert.embeddings.hidden_size();
        add("Pooling", pooling_config::written(&poolings, hidden_size, config.include_prompt));
        let mut width = config.pooled_width();
        // A switch of the config is a module of the file.
        let last = config.normalize.then_some(SentenceModuleConfig::Normalize);
        for module in config.modules.iter().chain(&last) {
            let (in_features, out_features) = (width, module.width_after(width));
            let own = match module {
                SentenceModuleConfig::Dense(dense) => {
                    let mut own = json!({
                        "in_features": in_features,
                        "out_features": out_features,
                        "bias": dense.bias,
                        // One without a class was refused when the model was built.
                        "activation_function": torch_class(dense.activation),
                    });
                    // Versions before 5.7 do not know it.
                    if dense.use_residual {
                        own["use_residual"] = json!(true);
                    }
                    own
                }
                SentenceModuleConfig::LayerNorm => json!({ "dimension": width }),
                SentenceModuleConfig::Dropout(prob) => json!({ "dropout": prob }),
                SentenceModuleConfig::Normalize => json!({ "module_input_name": "sentence_embedding" }),
            };
            add(module.class(), own);
            width = out_features;
        }
        let mut own = SideConfig::read_kind(dir, "SentenceTransformer")?;
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
