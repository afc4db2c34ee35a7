//! A checkpoint to an embedding layer.

use super::files::Checkpoint;
use super::hf_config::{Fields, config_path};
use super::keys::Keys;
use super::params::{StoredParam, filled};
use crate::embeddings::{BertEmbeddings, BertEmbeddingsConfig};
use crate::error::{Error, Result};
use crate::family::{Family, Projection};
use crate::files::of_one_save;
use crate::files::regular_file;
use burn::prelude::*;
use std::path::Path;

impl BertEmbeddings {
    /// Reads the embedding layer of a Hugging Face checkpoint onto `device`.
    ///
    /// `path` is a directory with a `config.json` and the first of `model.safetensors`, `model.safetensors.index.json`,
    /// `pytorch_model.bin` and `pytorch_model.bin.index.json`, or a weights file with a `config.json` beside it. A file
    /// without one gives the sizes, and BERT's defaults the rest; one of RoBERTa's family needs a config.
    ///
    /// Values are cast to the device's default float dtype; for another, see
    /// [`load`](Self::load) and [`cast_module`](crate::cast_module).
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
    /// [`Error::ConfigFile`] if the family of the keys has another position scheme than the config.
    pub fn from_pretrained(path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        let path = path.as_ref();
        let config_path = config_path(path);
        let (checkpoint, keys, module) = of_one_save(path, || {
            let mut checkpoint = Checkpoint::open(path)?;
            let keys = Keys::locate(&checkpoint)?;
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

    /// Reads the embedding layer of a checkpoint with a given config; `config.json` is not read.
    ///
    /// # Errors
    ///
    /// Those of [`BertEmbeddingsConfig::validate`] and [`load`](Self::load).
    pub fn from_pretrained_with(
        config: &BertEmbeddingsConfig,
        path: impl AsRef<Path>,
        device: &Device,
    ) -> Result<Self> {
        let checkpoint = Checkpoint::open(path.as_ref())?;
        let keys = Keys::locate(&checkpoint)?;
        let module = config.try_init(device)?;
        filled(&module, checkpoint, module.stored_params(&keys))
    }

    /// Replaces the values of all parameters with those of a checkpoint. [`from_pretrained`](Self::from_pretrained) has
    /// an example.
    ///
    /// `path` is a directory, a weights file or a shard index, in safetensors or PyTorch's format by its content, not its
    /// extension. No code in a pickle is executed. Keys may have no prefix, `embeddings.`, or a model's name as in
    /// `bert.embeddings.`, and before it those of DataParallel (`module.`), `torch.compile` (`_orig_mod.`) and trainers
    /// (`model.`, `state_dict.`); LayerNorm may be called weight and bias or gamma and beta. All other tensors are ignored.
    ///
    /// Parameters keep their ids, device, dtype (values are cast), settings and whether they are trained.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`] if a file cannot be read, [`Error::Data`] if the path is empty;
    /// - [`Error::File`] if it is not a regular file or a git-LFS pointer, or the layer's keys are ambiguous;
    /// - [`Error::NotACheckpoint`] or [`Error::CorruptCheckpoint`] if it is truncated, damaged, of another format,
    ///   describes more than it holds, or has negative views;
    /// - [`Error::MissingKey`] if one of the layer's keys is missing;
    /// - [`Error::CheckpointDType`], [`Error::CheckpointShape`] if a tensor is not of floats or not of the
    ///   module's shape;
    /// - [`Error::Data`] if a parameter is quantised.
    ///
    /// After an error the module is unchanged.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let checkpoint = Checkpoint::open(path)?;
        let keys = Keys::locate(&checkpoint)?;
        *self = filled(self, checkpoint, self.stored_params(&keys))?;
        Ok(())
    }

    /// The parameters and their keys.
    pub(crate) fn stored_params(&self, keys: &Keys) -> Vec<StoredParam<'_>> {
        let positions = self.position_embeddings.as_ref();
        let positions = positions.map(|table| StoredParam::table(&keys.position, &table.weight));
        let token_types = self.token_type_embeddings.as_ref();
        let token_types = token_types.map(|table| StoredParam::table(&keys.token_type, &table.weight));
        [StoredParam::table(&keys.word, &self.word_embeddings.weight)]
            .into_iter()
            .chain(positions)
            .chain(token_types)
            .chain(StoredParam::norm([keys.gamma.clone(), keys.beta.clone()], &self.layer_norm))
            .collect()
    }
}

/// Refuses a file or keys of a family whose positions and heads are not those of `family`.
pub(crate) fn agree(keys: &Keys, family: Family, fields: &Fields) -> Result<()> {
    let positions = |family: Family| family.architecture().positions;
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
    let family = keys.family().unwrap_or(Family::Bert);
    if family.architecture().positions != Family::Bert.architecture().positions
        || family.architecture().projection == Projection::Always
    {
        return Err(Error::NotACheckpoint {
            path: checkpoint.path().to_path_buf(),
            problem: format!(
                "there is no config.json beside it and its keys start with {}, so BERT's defaults do not fit; \
                 give a config to from_pretrained_with",
                keys.prefix
            ),
        });
    }
    let mut size_of = |key: &str| {
        let (stored, path) = checkpoint.tensor(key)?;
        match stored.shape[..] {
            [rows, columns] => Ok((rows, columns)),
            _ => Err(Error::NotACheckpoint {
                path: path.to_path_buf(),
                problem: format!("{key} has shape {:?}, and a table has two axes", stored.shape),
            }),
        }
    };
    let (vocab_size, hidden_size) = size_of(&keys.word)?;
    Ok(BertEmbeddingsConfig::new()
        .with_family(family)
        .with_vocab_size(vocab_size)
        .with_hidden_size(hidden_size)
        .with_max_position_embeddings(size_of(&keys.position)?.0)
        .with_type_vocab_size(match family.architecture().has_token_types {
            true => size_of(&keys.token_type)?.0,
            false => 0,
        }))
}
