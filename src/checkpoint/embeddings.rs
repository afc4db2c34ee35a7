//! The embedding layer, from a Hugging Face checkpoint and back.

use super::directory::Directory;
use super::fields::{Fields, config_path};
use super::keys::ModelKeys;
use super::load::filled;
use super::params::{StoredParam, check_stored, stored_params};
use super::written_fields::merged_fields;
use super::{Checkpoint, POSITION, TOKEN_TYPE};
use crate::embeddings::{BertEmbeddings, BertEmbeddingsConfig};
use crate::error::{Error, Result};
use crate::family::{Architecture, Family, PositionEmbeddingType, Presence};
use crate::files::hub::{HubFiles, directory};
use crate::files::{read_consistently, regular_file};
use burn::prelude::*;
use std::path::Path;

impl BertEmbeddingsConfig {
    /// Reads a Hugging Face `config.json`: the file, or the directory that holds it.
    ///
    /// `model_type`, or without it `architectures`, determines the family. Missing fields take the defaults of its config class
    /// in transformers. Positions are the family's, unless `position_embedding_type` is a relative one, which transformers 5
    /// no longer reads.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read, [`Error::Json`] if it is not JSON, [`Error::UnsupportedModel`] for another
    /// family, and [`Error::ConfigFile`], naming the field, if nothing states the family or no module can be built from a value.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        Fields::at(path.as_ref())?.config()
    }
}

impl BertEmbeddings {
    /// Reads the embedding layer of a Hugging Face checkpoint onto `device`, in its default float dtype.
    ///
    /// `path` is a directory with a `config.json` and the first of `model.safetensors`, `model.safetensors.index.json`,
    /// `pytorch_model.bin` and `pytorch_model.bin.index.json`, or a weights file with a `config.json` next to it. Without a
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
        let path = &directory(path.as_ref(), HubFiles::Weights)?;
        let config_path = config_path(path)?;
        read_consistently(path, || {
            let checkpoint = Checkpoint::open(path)?;
            // A directory without a config is incomplete, a file of weights may be all there is.
            let has_config = path.is_dir() || regular_file::exists(&config_path);
            let fields = has_config.then(|| Fields::read(config_path.clone())).transpose()?;
            let family = fields.as_ref().map_or(Family::Bert, |fields| fields.spec.family);
            let keys = ModelKeys::find(&checkpoint, family)?;
            let module = match fields {
                Some(fields) => {
                    keys.agree(family, &fields)?;
                    fields.config()?.build(device)
                }
                None => config_from_shapes(&checkpoint, &keys)?.try_init(device)?,
            };
            filled(&module, &checkpoint, &module.stored_params(&keys))
        })
    }

    /// Reads the embedding layer of a checkpoint with a given config; `config.json` is not read. Errors are those of
    /// [`BertEmbeddingsConfig::validate`] and [`load`](Self::load).
    pub fn from_pretrained_with(
        config: &BertEmbeddingsConfig,
        path: impl AsRef<Path>,
        device: &Device,
    ) -> Result<Self> {
        let mut module = config.try_init(device)?;
        module.load(path)?;
        Ok(module)
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
    /// - [`Error::MissingKey`], [`Error::CheckpointDType`] or [`Error::CheckpointShape`] if one of the layer's tensors is
    ///   missing, not of floats or not of the module's shape.
    ///
    /// After an error the module is unchanged.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let checkpoint = Checkpoint::open(&directory(path.as_ref(), HubFiles::Weights)?)?;
        let keys = ModelKeys::find(&checkpoint, self.family())?;
        *self = filled(self, &checkpoint, &self.stored_params(&keys))?;
        Ok(())
    }

    fn stored_params(&self, keys: &ModelKeys) -> Vec<StoredParam> {
        stored_params(self, self.word_embeddings.weight.id, keys, &[])
    }

    /// Writes `config.json` and `model.safetensors` into `dir`, under Hugging Face's names, in the module's dtype. Python reads
    /// them with `from_pretrained` of transformers' classes or with `safetensors`.
    ///
    /// A new directory gets the layer's tensors and fields, and attention heads and an intermediate size that fit the hidden
    /// size. In one that holds a model, the layer's tensors and the fields that changed are replaced and everything else is
    /// kept; an output head of another vocabulary is not resized.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`] if a file cannot be read or written, [`Error::CheckpointDType`] if a parameter is quantised;
    /// - the errors of [`load`](Self::load) if there is a `model.safetensors` that is not a checkpoint of this layer,
    ///   and of [`BertEmbeddingsConfig::from_pretrained`] if there is an invalid `config.json`;
    /// - [`Error::ConfigFile`] if that config is of another family, position scheme or hidden size; [`Error::Config`] if the
    ///   family's `config.json` cannot state the position scheme;
    /// - [`Error::NotACheckpoint`] if the directory holds its weights in another form (shards, `.bin`), which a new
    ///   `model.safetensors` would hide;
    /// - those of [`BertEmbeddingsConfig::try_init`] and [`Error::Data`] if the module's config does not build a module of
    ///   the same parameters, because its fields were changed.
    ///
    /// Nothing is written then.
    pub fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        let (config, family) = (self.config(), self.family());
        let (directory, fields, keys) = Directory::open(dir.as_ref(), family)?;
        let fields = merged_fields(&config, fields)?;
        let keys = keys.unwrap_or_else(|| ModelKeys::written("", family));
        // A module whose fields were changed may not be what its config builds, and could not be read back.
        let device = self.word_embeddings.weight.lazy_device();
        let (params, built) = (self.stored_params(&keys), config.try_init(&device)?);
        check_stored(&params, &built.stored_params(&keys))?;
        let has_positions = self.position_embeddings.is_some();
        let own: Vec<String> = params.iter().map(|param| param.key.clone()).collect();
        directory.replace(fields, Vec::new(), params, |key| {
            let is_replaced = keys.is_of_layer(key, has_positions) || own.iter().any(|own| own == key);
            (!is_replaced).then(|| key.to_string())
        })
    }
}

/// The config of a file without a `config.json`: sizes from shapes, the rest BERT's defaults.
fn config_from_shapes(checkpoint: &Checkpoint, keys: &ModelKeys) -> Result<BertEmbeddingsConfig> {
    // Shapes say neither how positions count nor which dtype, ε or dropout belongs to them.
    let family = keys.stated_family().unwrap_or(Family::Bert);
    let Architecture { positions, token_types, projection, .. } = *family.architecture();
    if positions != PositionEmbeddingType::Absolute || projection == Presence::Always {
        let problem = format!(
            "there is no config.json beside it and its keys start with {}, so BERT's defaults do not fit; give a config to \
             from_pretrained_with",
            keys.layer_prefix
        );
        return Err(Error::not_a_checkpoint(&checkpoint.path, problem));
    }
    let size_of = |table: &str| {
        let key = format!("{}{table}", keys.layer_prefix);
        let (stored, file) = checkpoint.tensor(&key)?;
        let [rows, columns] = stored.shape[..] else {
            let problem = format!("{key} has shape {:?}, and a table has two axes", stored.shape);
            return Err(Error::not_a_checkpoint(&file.path, problem));
        };
        Ok((rows, columns))
    };
    let (vocab_size, hidden_size) = size_of(keys.family.word()[1])?;
    Ok(BertEmbeddingsConfig::new()
        .with_family(family)
        .with_vocab_size(vocab_size)
        .with_hidden_size(hidden_size)
        .with_max_position_embeddings(size_of(POSITION)?.0)
        .with_type_vocab_size(if token_types == Presence::Never { 0 } else { size_of(TOKEN_TYPE)?.0 }))
}
