//! The embedding layer, from a Hugging Face checkpoint and back.

use super::directory::Directory;
use super::families::FamilySpec;
use super::files::{Checkpoint, MODEL_PREFIX, POSITION, TOKEN_TYPE, WORD};
use super::hf_config::{Fields, config_path};
use super::keys::Keys;
use super::params::{StoredParam, check_stored, filled, tensors};
use crate::embeddings::{BertEmbeddings, BertEmbeddingsConfig};
use crate::error::{Error, Result};
use crate::family::{Family, PositionEmbeddingType, Projection};
use crate::files::hub::{Wanted, directory};
use crate::files::{of_one_save, regular_file};
use crate::layers::EmbeddingInitializer;
use burn::prelude::*;
use serde_json::{Map, Value, json};
use std::path::Path;

impl BertEmbeddings {
    /// Reads the embedding layer of a Hugging Face checkpoint onto `device`, in its default float dtype.
    ///
    /// `path` is a directory with a `config.json` and the first of `model.safetensors`, `model.safetensors.index.json`,
    /// `pytorch_model.bin` and `pytorch_model.bin.index.json`, or a weights file with a `config.json` beside it. Without a
    /// `config.json`, shapes give the sizes and BERT's defaults the rest; RoBERTa's family needs a config.
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_bert::{BertEmbeddings, BertEmbeddingsConfig};
    ///
    /// let device = Device::default();
    /// let dir = tempfile::tempdir()?;
    /// let embeddings = BertEmbeddingsConfig::new().with_vocab_size(9).with_hidden_size(4).init(&device);
    /// embeddings.save_pretrained(dir.path())?;
    ///
    /// let loaded = BertEmbeddings::from_pretrained(dir.path(), &device)?;
    /// let weight = |module: &BertEmbeddings| module.word_embeddings.weight.val().into_data();
    /// assert_eq!(weight(&loaded), weight(&embeddings));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`BertEmbeddingsConfig::from_pretrained`] and [`load`](Self::load);
    /// [`Error::ConfigFile`] if the family of the keys has other positions than the config's.
    pub fn from_pretrained(path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        let path = &directory(path.as_ref(), Wanted::Weights)?;
        let config_path = config_path(path);
        let (checkpoint, keys, module) = of_one_save(path, || {
            let mut checkpoint = Checkpoint::open(path)?;
            let keys = Keys::locate(&checkpoint)?;
            // A directory without a config is incomplete, a file of weights may be all there is.
            let module = if path.is_dir() || regular_file::exists(&config_path) {
                let fields = Fields::read(config_path.clone())?;
                let config = fields.config()?;
                agree(&keys, config.family, &fields)?;
                fields.in_file(config.try_init(device))?
            } else {
                config_of_shapes(&mut checkpoint, &keys)?.try_init(device)?
            };
            Ok((checkpoint, keys, module))
        })?;
        filled(&module, checkpoint, module.stored_params(&keys))
    }

    /// Reads the embedding layer of a checkpoint with a given config; `config.json` is not read. Errors are those of
    /// [`BertEmbeddingsConfig::validate`] and [`load`](Self::load).
    pub fn from_pretrained_with(
        config: &BertEmbeddingsConfig,
        path: impl AsRef<Path>,
        device: &Device,
    ) -> Result<Self> {
        let checkpoint = Checkpoint::open(&directory(path.as_ref(), Wanted::Weights)?)?;
        let keys = Keys::locate(&checkpoint)?;
        let module = config.try_init(device)?;
        filled(&module, checkpoint, module.stored_params(&keys))
    }

    /// Replaces the values of all parameters with those of a checkpoint. They keep their ids, device, dtype (values are cast),
    /// settings and whether they are trained.
    ///
    /// `path` is a directory, a weights file or a shard index, in safetensors or PyTorch's format by its content, not its
    /// extension. No code in a pickle is executed. Keys may have the prefix `embeddings.` or `bert.embeddings.` (or another
    /// model's), and before it that of DataParallel (`module.`), `torch.compile` (`_orig_mod.`) or a trainer (`model.`,
    /// `state_dict.`); LayerNorm may be called weight and bias or gamma and beta. Other tensors are ignored.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`] if a file cannot be read, [`Error::Data`] if the path is empty or a parameter quantised;
    /// - [`Error::File`] if it is not a regular file or a git-LFS pointer, or the layer's keys are ambiguous;
    /// - [`Error::NotACheckpoint`] or [`Error::CorruptCheckpoint`] if it is truncated, corrupted, of another format,
    ///   describes more than it holds, or has negative views;
    /// - [`Error::MissingKey`] if one of the layer's keys is missing;
    /// - [`Error::CheckpointDType`], [`Error::CheckpointShape`] if a tensor is not of floats or not of the module's shape.
    ///
    /// After an error the module is unchanged.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = &directory(path.as_ref(), Wanted::Weights)?;
        let checkpoint = Checkpoint::open(path)?;
        let keys = Keys::locate(&checkpoint)?;
        *self = filled(self, checkpoint, self.stored_params(&keys))?;
        Ok(())
    }

    pub(crate) fn stored_params(&self, keys: &Keys) -> Vec<StoredParam<'_>> {
        let tables = [
            (WORD, Some(&self.word_embeddings)),
            (POSITION, self.position_embeddings.as_ref()),
            (TOKEN_TYPE, self.token_type_embeddings.as_ref()),
        ];
        let tables = tables
            .into_iter()
            .filter_map(|(name, table)| Some(StoredParam::table(keys.named(name), &table?.weight)));
        tables.chain(StoredParam::norm(keys.layer_norm(), &self.layer_norm)).collect()
    }

    /// Writes `config.json` and `model.safetensors` into `dir`, under Hugging Face's names, in the module's dtype. Python reads
    /// them with `from_pretrained` of transformers' classes or with `safetensors`.
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
    /// leaves the old ones; after one that is killed later this crate reads the new ones, which its next load or save moves
    /// to their places. A load beside a save gives the old model or the new one.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`] if a file cannot be read or written;
    /// - the errors of [`load`](Self::load) if there is a `model.safetensors` that is not a checkpoint of this layer,
    ///   and of [`BertEmbeddingsConfig::from_pretrained`] if there is an invalid `config.json`;
    /// - [`Error::ConfigFile`] if that config is of another family, position scheme or hidden size; [`Error::Config`] if the
    ///   family's `config.json` cannot state the position scheme;
    /// - [`Error::NotACheckpoint`] if the directory holds its weights in another form (shards, `.bin`), which a new
    ///   `model.safetensors` would hide;
    /// - [`Error::CheckpointDType`] if a parameter is quantised;
    /// - those of [`BertEmbeddingsConfig::try_init`] and [`Error::Data`] if the module's config does not build a module of
    ///   the same parameters, because its fields were changed.
    ///
    /// Nothing is written then.
    pub fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        let directory = Directory::open(dir.as_ref())?;
        let fields = self.merged_fields(directory.fields()?)?;
        let keys = directory.keys()?.unwrap_or_else(|| Keys::under(MODEL_PREFIX));
        // A module whose fields were changed may not be what its config builds, and could not be read back.
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

    /// The fields of `config.json`: the layer's, and the others of the old file.
    pub(crate) fn merged_fields(&self, old: Option<Fields>) -> Result<Map<String, Value>> {
        let config = self.config();
        let scheme = config.position_embedding_type;
        let stated = match scheme {
            PositionEmbeddingType::RelativeKey => Some("relative_key"),
            PositionEmbeddingType::RelativeKeyQuery => Some("relative_key_query"),
            // The family's own need no word, and transformers 5 would not read it.
            absolute if absolute == config.family.architecture().positions => None,
            other => {
                let problem = format!(
                    "is {other:?}, which a config.json of {} cannot say; set family to one with such positions",
                    config.family.model_type()
                );
                return Err(Error::config("position_embedding_type", problem));
            }
        };
        // Only a new directory needs fields for the rest of a model: an old file has its own.
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
        // A number that means the same may be written otherwise, and fields may be left to defaults.
        replace_changed(&mut fields, layer_fields(&config), &layer_fields(&was));
        Ok(fields)
    }
}

/// Refuses a file or keys of a family whose positions are not those of `family`.
pub(crate) fn agree(keys: &Keys, family: Family, fields: &Fields) -> Result<()> {
    let positions = |family: Family| family.architecture().positions;
    // Positions alone are compared: they change what is computed, and no shape would show it.
    let problem = match (fields.spec().family, keys.family()) {
        (stated, _) if positions(stated) != positions(family) => format!(
            "gives {:?} positions, but the config's family is {family:?}, which has {:?} ones; correct its family",
            positions(stated),
            positions(family)
        ),
        (_, Some(found)) if positions(found) != positions(family) => format!(
            "gives {:?} positions, but the weights' keys start with {}, whose family has {:?} ones; correct it",
            positions(family),
            keys.prefix,
            positions(found)
        ),
        _ => return Ok(()),
    };
    Err(fields.invalid("model_type", problem))
}

/// The config of a file without a `config.json`: sizes from shapes, the rest BERT's defaults.
fn config_of_shapes(checkpoint: &mut Checkpoint, keys: &Keys) -> Result<BertEmbeddingsConfig> {
    // Shapes say neither how positions count nor which dtype, ε or dropout belongs to them.
    let family = keys.family().unwrap_or(Family::Bert);
    if family.architecture().positions != Family::Bert.architecture().positions
        || family.architecture().projection == Projection::Always
    {
        let problem = format!(
            "there is no config.json beside it and its keys start with {}, so BERT's defaults do not fit; give a config to \
             from_pretrained_with",
            keys.prefix
        );
        return Err(Error::not_a_checkpoint(checkpoint.path(), problem));
    }
    let mut size_of = |table: &str| {
        let key = keys.named(table);
        let (stored, path) = checkpoint.tensor(&key)?;
        match stored.shape[..] {
            [rows, columns] => Ok((rows, columns)),
            _ => {
                let problem = format!("{key} has shape {:?}, and a table has two axes", stored.shape);
                Err(Error::not_a_checkpoint(path, problem))
            }
        }
    };
    let (vocab_size, hidden_size) = size_of(WORD)?;
    Ok(BertEmbeddingsConfig::new()
        .with_family(family)
        .with_vocab_size(vocab_size)
        .with_hidden_size(hidden_size)
        .with_max_position_embeddings(size_of(POSITION)?.0)
        .with_type_vocab_size(match family.architecture().has_token_types {
            true => size_of(TOKEN_TYPE)?.0,
            false => 0,
        }))
}

/// Replaces the fields whose values changed. The others are written back as they were read, or stay away.
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

fn layer_fields(config: &BertEmbeddingsConfig) -> Map<String, Value> {
    // transformers' models are initialised from a normal distribution, and fields have no word for another.
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

fn model_fields(config: &BertEmbeddingsConfig) -> [(String, Value); 4] {
    let (family, hidden_size) = (config.family, config.hidden_size);
    // Heads of size 64, as in every published BERT.
    let heads = if hidden_size.is_multiple_of(64) { hidden_size / 64 } else { 1 };
    [
        ("model_type", json!(family.model_type())),
        ("architectures", json!([format!("{}Model", FamilySpec::of(family).class)])),
        ("num_attention_heads", json!(heads)),
        // Four times the width, as in BERT.
        ("intermediate_size", json!(4 * hidden_size)),
    ]
    .map(|(field, value)| (field.to_string(), value))
}
