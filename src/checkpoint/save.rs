//! An embedding layer to a Hugging Face directory.

use super::directory::Directory;
use super::families::FamilySpec;
use super::hf_config::Fields;
use super::keys::Keys;
use super::names::MODEL_PREFIX;
use super::params::{check_stored, tensors};
use crate::embeddings::{BertEmbeddings, BertEmbeddingsConfig};
use crate::error::{Error, Result};
use crate::family::{PositionEmbeddingType, Projection};
use crate::layers::EmbeddingInitializer;
use serde_json::{Map, Value, json};
use std::path::Path;

impl BertEmbeddings {
    /// Writes `config.json` and `model.safetensors` into `dir`, under Hugging Face's names, in the module's dtype.
    ///
    /// Python reads them with `BertModel.from_pretrained(dir)` or the class of another [`Family`](crate::Family), with a
    /// class that has a head, or with plain `safetensors`.
    ///
    /// **Into an empty or new directory** the layer's tensors and fields are written, and attention heads and an
    /// intermediate size that fit the hidden size. transformers initialises the other parts of a model.
    ///
    /// **Into a directory that holds a model** the layer's tensors, under the names that the file uses, and the fields that
    /// changed are replaced, and everything else is kept. An output head of another vocabulary is not resized.
    ///
    /// # Atomicity
    ///
    /// New files are written into a hidden folder and flushed to disk. A save that fails or is killed before all are complete
    /// leaves the old ones. After one that is killed later this crate reads the new ones, and its next load or save with write
    /// access puts them in their places; other programs may see old and new files side by side until then. A load beside a
    /// save gives the old model or the new one.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`](crate::Error::Io) if a file cannot be read or written;
    /// - the errors of [`load`](Self::load) if there is a `model.safetensors` that is not a checkpoint of this layer,
    ///   and of [`BertEmbeddingsConfig::from_pretrained`] if there is an invalid `config.json`;
    /// - [`Error::ConfigFile`](crate::Error::ConfigFile) if that config is of another family, position scheme or
    ///   hidden size; [`Error::Config`](crate::Error::Config) if the family's `config.json` cannot state the position
    ///   scheme;
    /// - [`Error::NotACheckpoint`](crate::Error::NotACheckpoint) if the directory holds its weights in another form (shards, `.bin`), which a
    ///   new `model.safetensors` would hide;
    /// - [`Error::CheckpointDType`](crate::Error::CheckpointDType) if a parameter is quantised;
    /// - those of [`BertEmbeddingsConfig::try_init`] and [`Error::Data`](crate::Error::Data) if the module's config does
    ///   not build a module of the same parameters, because its fields were changed.
    ///
    /// Nothing is written then.
    pub fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        let directory = Directory::open(dir.as_ref())?;
        let fields = self.merged_fields(directory.fields()?)?;
        let keys = directory.keys()?.unwrap_or_else(|| Keys::under(MODEL_PREFIX));
        let device = self.word_embeddings.weight.lazy_device();
        let built = self.config().try_init(&device)?;
        check_stored(&self.stored_params(&keys), &built.stored_params(&keys))?;
        let tensors = tensors(self.stored_params(&keys), directory.model_path())?;
        let has_positions = self.position_embeddings.is_some();
        directory.replace(fields, self.family(), Vec::new(), tensors, Vec::new(), |key| {
            let is_kept = !keys.is_of_layer(key, has_positions);
            is_kept.then(|| key.to_string())
        })
    }

    /// The fields of `config.json`: those of the layer, and the others of the old file.
    pub(crate) fn merged_fields(&self, old: Option<Fields>) -> Result<Map<String, Value>> {
        let config = self.config();
        let scheme = config.position_embedding_type;
        let stated = match scheme {
            PositionEmbeddingType::RelativeKey => Some("relative_key"),
            PositionEmbeddingType::RelativeKeyQuery => Some("relative_key_query"),
            absolute if absolute == config.family.architecture().positions => None,
            other => {
                return Err(Error::Config {
                    field: "position_embedding_type",
                    problem: format!(
                        "is {other:?}, which a config.json of {} cannot say; set family to one with such positions",
                        config.family.model_type()
                    ),
                });
            }
        };
        let Some(old) = old else {
            let mut fields = layer_fields(&config);
            fields.extend(model_fields(&config));
            fields.extend(stated.map(|word| ("position_embedding_type".into(), word.into())));
            return Ok(fields);
        };
        let was = old.config()?;
        let width = |config: &BertEmbeddingsConfig| config.width().to_string();
        for (field, was, is) in [
            ("model_type", was.family.model_type().into(), config.family.model_type().into()),
            ("position_embedding_type", format!("{:?}", was.position_embedding_type), format!("{scheme:?}")),
            ("hidden_size", was.hidden_size.to_string(), config.hidden_size.to_string()),
            ("embedding_size", width(&was), width(&config)),
        ] {
            if was != is {
                let problem = format!("is {was}, but the module's is {is}; save into another directory");
                return Err(old.invalid(field, problem));
            }
        }
        let mut fields = old.into_map();
        replace_changed(&mut fields, layer_fields(&config), &layer_fields(&was));
        Ok(fields)
    }
}

/// Replaces the fields whose values are others than the old file means: what was read and not changed is written back as it
/// was, or stays away.
pub(crate) fn replace_changed(
    fields: &mut Map<String, Value>,
    new: Map<String, Value>,
    old: &Map<String, Value>,
) {
    for (field, value) in new {
        if old.get(&field) != Some(&value) {
            fields.insert(field, value);
        }
    }
}

/// The fields that the layer determines, under BERT's names.
fn layer_fields(config: &BertEmbeddingsConfig) -> Map<String, Value> {
    let (EmbeddingInitializer::Normal { std } | EmbeddingInitializer::TruncatedNormal { std, .. }) =
        config.initializer;
    let projection = config.family.architecture().projection;
    [
        ("vocab_size", json!(config.vocab_size)),
        ("hidden_size", json!(config.hidden_size)),
        ("max_position_embeddings", json!(config.max_position_embeddings)),
        ("type_vocab_size", json!(config.type_vocab_size)),
        ("pad_token_id", json!(config.pad_token_id)),
        ("layer_norm_eps", json!(config.layer_norm_eps)),
        ("hidden_dropout_prob", json!(config.hidden_dropout_prob)),
        ("initializer_range", json!(std)),
    ]
    .into_iter()
    .chain((projection != Projection::Never).then(|| ("embedding_size", json!(config.width()))))
    .map(|(field, value)| (field.to_string(), value))
    .collect()
}

/// The fields that a model around the layer needs: attention heads of size 64, as in every published BERT, if 64
/// divides the hidden size.
fn model_fields(config: &BertEmbeddingsConfig) -> [(String, Value); 4] {
    let (family, hidden_size) = (config.family, config.hidden_size);
    let heads = if hidden_size.is_multiple_of(64) { hidden_size / 64 } else { 1 };
    [
        ("model_type", json!(family.model_type())),
        ("architectures", json!([format!("{}Model", FamilySpec::of(family).class)])),
        ("num_attention_heads", json!(heads)),
        ("intermediate_size", json!(4 * hidden_size)),
    ]
    .map(|(field, value)| (field.to_string(), value))
}
