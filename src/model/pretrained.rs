//! Whole models from Hugging Face directories, and back.

use super::keys::{ModelKeys, head_of};
use super::masked_lm::{BertForMaskedLm, BertForMaskedLmConfig};
use crate::checkpoint::{
    Checkpoint, Directory, Family, Fields, StoredParam, agree, filled, tensors, torch_name,
};
use crate::error::{Error, Result};
use burn::nn::LinearConfig;
use burn::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

impl BertForMaskedLmConfig {
    /// Reads a Hugging Face `config.json`: the file, or the directory that holds it.
    ///
    /// Fields that are missing take BERT-base's values, as in transformers. `model_type` is one of bert, ernie,
    /// roberta, xlm-roberta, camembert and data2vec-text.
    ///
    /// # Errors
    ///
    /// Those of [`BertEmbeddingsConfig::from_pretrained`](crate::BertEmbeddingsConfig::from_pretrained);
    /// [`Error::UnsupportedModel`] if encoder or head of
    /// the family are not BERT's; [`Error::ConfigFile`], naming the field, if the activation is not the exact
    /// GELU, the head is not tied to the word table, the model is a decoder, or [`validate`](Self::validate)
    /// refuses a value.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::from_fields(&Fields::at(path)?)
    }

    fn from_fields(fields: &Fields) -> Result<Self> {
        head_of(fields.family()?, fields.path())?;
        if let Some(activation) = fields.text("hidden_act")?.filter(|&activation| activation != "gelu") {
            let problem = format!("is {activation:?}, but the model's activation is \"gelu\", the exact one");
            return Err(fields.invalid("hidden_act", problem));
        }
        for (field, allowed, problem) in [
            (
                "tie_word_embeddings",
                true,
                "is false, but the head reads the word table and has none of its own",
            ),
            ("is_decoder", false, "is true, but the model looks both ways"),
            ("add_cross_attention", false, "is true, but the model has no second sequence to look at"),
        ] {
            if fields.flag(field)?.is_some_and(|found| found != allowed) {
                return Err(fields.invalid(field, problem.into()));
            }
        }
        let config = Self::new(fields.config()?);
        let config = Self {
            num_hidden_layers: fields.size("num_hidden_layers", config.num_hidden_layers)?,
            num_attention_heads: fields.size("num_attention_heads", config.num_attention_heads)?,
            intermediate_size: fields.size("intermediate_size", config.intermediate_size)?,
            attention_probs_dropout_prob: fields
                .number("attention_probs_dropout_prob", config.attention_probs_dropout_prob)?,
            ..config
        };
        config.validate().map_err(|error| match error {
            Error::Config { field, problem } => fields.invalid(field, problem),
            other => other,
        })?;
        Ok(config)
    }
}

/// What a checkpoint and the model that was read from it do not have in common.
///
/// Printed, it says so in words; an empty report prints nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a fresh head predicts nothing before it is trained"]
pub struct LoadReport {
    /// Keys that the model needs and the checkpoint does not have. These parameters were drawn anew: they are
    /// those of the masked-language-model head, or there are none.
    pub missing: Vec<String>,
    /// Keys of the checkpoint that the model has no use for, such as those of other heads.
    pub unused: Vec<String>,
}

impl LoadReport {
    /// Whether the checkpoint had no masked-language-model head, so that the model's is untrained.
    pub fn head_is_fresh(&self) -> bool {
        !self.missing.is_empty()
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.head_is_fresh() {
            writeln!(
                f,
                "the checkpoint has no masked-language-model head; drawn anew: {}",
                self.missing.join(", ")
            )?;
        }
        if !self.unused.is_empty() {
            writeln!(f, "not used of the checkpoint: {}", self.unused.join(", "))?;
        }
        Ok(())
    }
}

impl BertForMaskedLm {
    /// Reads a whole model from a Hugging Face checkpoint onto `device`.
    ///
    /// `path` is a directory as transformers writes it (safetensors or `.bin`, in one file or in shards), or a
    /// weights file with a `config.json` beside it. Keys start with the model's name, as in `bert.encoder.…`,
    /// or with nothing, as in a checkpoint of the encoder alone. A pooler is read where there is one.
    ///
    /// Encoder and embeddings must be there to the last tensor. The head must be there whole, or not at all:
    /// then it is drawn anew, and the report says so. Whatever else the checkpoint holds is listed there too.
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_bert::BertEmbeddingsConfig;
    /// use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig};
    ///
    /// let device = Device::default();
    /// let embeddings = BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(8);
    /// let config = BertForMaskedLmConfig::new(embeddings)
    ///     .with_num_hidden_layers(1)
    ///     .with_num_attention_heads(2)
    ///     .with_intermediate_size(16);
    /// let dir = tempfile::tempdir()?;
    /// config.init(&device).save_pretrained(dir.path())?;
    ///
    /// let (model, report) = BertForMaskedLm::from_pretrained(dir.path(), &device)?;
    /// assert_eq!(model.config(), config);
    /// assert!(!report.head_is_fresh());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`BertForMaskedLmConfig::from_pretrained`] and, for every tensor of the model,
    /// [`BertEmbeddings::load`](crate::BertEmbeddings::load).
    pub fn from_pretrained(path: impl AsRef<Path>, device: &Device) -> Result<(Self, LoadReport)> {
        let path = path.as_ref();
        let fields = Fields::beside(path)?;
        Self::read(&BertForMaskedLmConfig::from_fields(&fields)?, &fields, path, device)
    }

    /// Reads a checkpoint for a config of the caller's own, say with other dropout.
    ///
    /// `config.json` tells the family alone.
    ///
    /// # Errors
    ///
    /// Those of [`BertForMaskedLmConfig::validate`] and [`from_pretrained`](Self::from_pretrained).
    pub fn from_pretrained_with(
        config: &BertForMaskedLmConfig,
        path: impl AsRef<Path>,
        device: &Device,
    ) -> Result<(Self, LoadReport)> {
        let path = path.as_ref();
        Self::read(config, &Fields::beside(path)?, path, device)
    }

    fn read(
        config: &BertForMaskedLmConfig,
        fields: &Fields,
        path: &Path,
        device: &Device,
    ) -> Result<(Self, LoadReport)> {
        let head = head_of(fields.family()?, fields.path())?;
        let checkpoint = Checkpoint::open(path)?;
        let keys = ModelKeys::locate(&checkpoint, head)?;
        agree(&keys.embeddings, &config.embeddings, fields)?;
        let mut model = config.try_init(device)?;
        let has = |name: &str| checkpoint.keys().any(|key| key.starts_with(name));
        if has(&keys.pooler()) {
            let hidden_size = config.embeddings.hidden_size;
            model.pooler = Some(LinearConfig::new(hidden_size, hidden_size).init(device));
        }
        let mut params = model.body_params(&keys);
        let head_params = model.head_params(&keys);
        let missing = match has(keys.head.prefix) {
            true => {
                params.extend(head_params);
                Vec::new()
            }
            false => head_params.into_iter().map(|param| param.key).collect(),
        };
        let used: BTreeSet<&str> = params.iter().map(|param| param.key.as_str()).collect();
        let is_unused = |key: &&str| !used.contains(key) && !keys.is_copy(key);
        let unused = checkpoint.keys().filter(is_unused).map(String::from).collect();
        let model = filled(&model, checkpoint, params)?;
        Ok((model, LoadReport { missing, unused }))
    }

    /// Writes `config.json` and `model.safetensors` into `dir`; Python reads them with
    /// `AutoModelForMaskedLM.from_pretrained(dir)`.
    ///
    /// **Into a directory that holds a model already** the model's tensors and fields are replaced and all else
    /// is kept: other heads, `tokenizer.json`. A new directory becomes a `bert` or, with positions after
    /// padding, a `roberta`; to keep another `model_type` (camembert, xlm-roberta, …), copy the `config.json`
    /// there first. The word table is stored once; the head's copy is left out, as transformers leaves it out.
    /// Values are stored in the model's dtype, and the config says which that is.
    ///
    /// The files are replaced as by [`BertEmbeddings::save_pretrained`](crate::BertEmbeddings::save_pretrained):
    /// a save that fails leaves the old ones.
    ///
    /// # Errors
    ///
    /// Those of [`BertEmbeddings::save_pretrained`](crate::BertEmbeddings::save_pretrained), and
    /// [`Error::UnsupportedModel`] if the directory holds a model of another kind.
    pub fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        let directory = Directory::open(dir.as_ref())?;
        let old_fields = directory.fields()?;
        let family = match &old_fields {
            Some(fields) => fields.family()?,
            None => Family::by_positions(self.embeddings.config().position_embedding_type),
        };
        let keys = ModelKeys::written(family, directory.config_path())?;
        let mut fields = self.embeddings.merged_fields(old_fields)?;
        let config = self.config();
        fields.extend(
            [
                ("architectures", json!([format!("{}ForMaskedLM", family.class)])),
                ("num_hidden_layers", json!(config.num_hidden_layers)),
                ("num_attention_heads", json!(config.num_attention_heads)),
                ("intermediate_size", json!(config.intermediate_size)),
                ("attention_probs_dropout_prob", json!(config.attention_probs_dropout_prob)),
                ("hidden_act", json!("gelu")),
            ]
            .map(|(field, value)| (field.to_string(), value)),
        );
        // transformers loads in the dtype that the config names; before 4.56 it had another name.
        if let Some(dtype) = torch_name(self.embeddings.word_embeddings.weight.val().dtype()) {
            fields.insert("dtype".into(), dtype.into());
            fields.entry("torch_dtype").and_modify(|old| *old = dtype.into());
        }
        let mut params = self.body_params(&keys);
        params.extend(self.head_params(&keys));
        let tensors = tensors(params, directory.model_path())?;
        let old_prefix = directory.keys()?.and_then(|old| old.model_prefix().map(String::from));
        let has_pooler = self.pooler.is_some();
        directory.replace(fields, tensors, |key| {
            // A file of the encoder alone has no prefix; beside a head it needs one.
            let name = match old_prefix.as_deref() {
                Some("") if !key.starts_with("cls.") && !key.starts_with("lm_head.") => {
                    format!("{}{key}", keys.prefix)
                }
                _ => key.to_string(),
            };
            let is_replaced = keys.is_copy(&name)
                || name.starts_with(&keys.encoder())
                || name.starts_with(keys.head.prefix)
                || (has_pooler && name.starts_with(&keys.pooler()));
            (!is_replaced).then_some(name)
        })
    }

    /// Embeddings, encoder and pooler.
    fn body_params(&self, keys: &ModelKeys) -> Vec<StoredParam<'_>> {
        let mut params = self.embeddings.stored_params(&keys.embeddings);
        for (i, layer) in self.encoder.layers.iter().enumerate() {
            let name = |part: &str| keys.layer(i, part);
            params.extend(StoredParam::linear(&name("attention.self.query"), &layer.attention.query));
            params.extend(StoredParam::linear(&name("attention.self.key"), &layer.attention.key));
            params.extend(StoredParam::linear(&name("attention.self.value"), &layer.attention.value));
            params.extend(StoredParam::linear(&name("attention.output.dense"), &layer.attention_output));
            params.extend(StoredParam::norm(
                keys.norm(&name("attention.output.LayerNorm")),
                &layer.attention_layer_norm,
            ));
            params.extend(StoredParam::linear(&name("intermediate.dense"), &layer.intermediate));
            params.extend(StoredParam::linear(&name("output.dense"), &layer.output));
            params.extend(StoredParam::norm(keys.norm(&name("output.LayerNorm")), &layer.output_layer_norm));
        }
        if let Some(pooler) = &self.pooler {
            params.extend(StoredParam::linear(&format!("{}dense", keys.pooler()), pooler));
        }
        params
    }

    fn head_params(&self, keys: &ModelKeys) -> Vec<StoredParam<'_>> {
        let mut params = Vec::from(StoredParam::linear(keys.head.transform, &self.head.transform));
        params.extend(StoredParam::norm(keys.norm(keys.head.layer_norm), &self.head.layer_norm));
        params.push(StoredParam::vector(keys.bias, &self.head.bias));
        params
    }
}
