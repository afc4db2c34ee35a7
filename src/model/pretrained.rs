//! Whole models from Hugging Face directories, and back.

use super::save::save;
use super::stored::{Part, Stored};
use crate::checkpoint::{Checkpoint, FamilySpec, Fields, ModelKeys, StoredParam, agree, filled};
use crate::error::{Error, Result, shown};
use crate::files::hub::{Wanted, directory};
use crate::files::of_one_save;
use crate::layers::{PositionFill, VocabularyResize};
#[cfg(feature = "tokenizers")]
use crate::text::BertTokenizer;
use burn::prelude::*;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// Hugging Face checkpoints of every model of this crate, in and out.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::BertEmbeddingsConfig;
/// use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, BertModel, BertModelConfig, PretrainedModel};
///
/// let device = Device::default();
/// let embeddings = BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(12);
/// let config = BertModelConfig::new(embeddings).with_num_hidden_layers(1);
/// let dir = tempfile::tempdir()?;
/// BertForMaskedLmConfig::new(config.clone()).init(&device).save_pretrained(dir.path())?;
///
/// let (model, report) = BertForMaskedLm::from_pretrained(dir.path(), &device)?;
/// assert!(report.is_complete());
/// assert_eq!(model.bert.config(), config);
///
/// // A directory gives every model; what it lacks is newly initialised and reported.
/// let (_, report) = BertModel::from_pretrained(dir.path(), &device)?;
/// assert_eq!(report.missing, ["bert.pooler.dense.weight", "bert.pooler.dense.bias"]);
/// assert_eq!(report.unused.len(), 5); // the head
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PretrainedModel: Stored {
    /// Reads a model from a Hugging Face checkpoint onto `device`.
    ///
    /// `path` is a directory as transformers writes it (safetensors or `.bin`, in one file or in shards), or a weights file
    /// with a `config.json` beside it; with the feature `hub` also a model's name on the Hugging Face Hub, as `owner/name` or
    /// `owner/name@revision`. Embeddings and encoder must be complete. The pooler and the head must each be
    /// complete or absent; absent ones are newly initialised and [reported](LoadReport), as are unused tensors.
    ///
    /// # Errors
    ///
    /// Those of the config's `from_pretrained` and, for every tensor of the model,
    /// [`BertEmbeddings::load`](crate::BertEmbeddings::load). [`Error::Hub`](crate::Error::Hub) for a name that is no path, if
    /// the model cannot be had from the Hub.
    fn from_pretrained(path: impl AsRef<Path>, device: &Device) -> Result<(Self, LoadReport)> {
        of_save(path.as_ref(), |path, fields| {
            let config = Self::config_of(fields)?;
            fields.in_file(built(&config, fields, path, device, Misfit::Refused))
        })
    }

    /// Reads a checkpoint with another config, for example with other dropout; `config.json` is only compared with it.
    ///
    /// # Errors
    ///
    /// Those of the config's `validate` and of [`from_pretrained`](Self::from_pretrained);
    /// [`Error::ConfigFile`](crate::Error::ConfigFile) if the positions of the file's family are others.
    fn from_pretrained_with(
        config: &Self::Config,
        path: impl AsRef<Path>,
        device: &Device,
    ) -> Result<(Self, LoadReport)> {
        of_save(path.as_ref(), |path, fields| built(config, fields, path, device, Misfit::Refused))
    }

    /// [`from_pretrained_with`](Self::from_pretrained_with), but a head of another size than the checkpoint's is newly
    /// initialised and reported as missing and as unused: to fine-tune a classifier for other labels. (transformers'
    /// `ignore_mismatched_sizes=True` also leaves out single tensors of embeddings and encoder.)
    ///
    /// Errors are those of [`from_pretrained_with`](Self::from_pretrained_with), but for the shapes of the head.
    fn from_pretrained_with_new_head(
        config: &Self::Config,
        path: impl AsRef<Path>,
        device: &Device,
    ) -> Result<(Self, LoadReport)> {
        of_save(path.as_ref(), |path, fields| built(config, fields, path, device, Misfit::NewlyInitialised))
    }

    /// Replaces the model's values by those of a checkpoint. A head or pooler that the checkpoint lacks is unchanged and
    /// reported as missing. Parameters keep their ids, device, dtype (values are cast) and whether they are trained.
    ///
    /// Errors are those of [`from_pretrained`](Self::from_pretrained). After an error the model is as it was.
    fn load(&mut self, path: impl AsRef<Path>) -> Result<LoadReport> {
        // The config is read too, because its positions must be the model's.
        let (model, report) = of_save(path.as_ref(), |path, fields| {
            let checkpoint = Checkpoint::open(path)?;
            let keys = ModelKeys::of_model(&checkpoint, self.bert().embeddings.family())?;
            read(self, fields, checkpoint, keys, Misfit::Refused)
        })?;
        *self = model;
        Ok(report)
    }

    /// Grows or shrinks the vocabulary: the word embeddings as by
    /// [`BertEmbeddings::resize_vocabulary`](crate::BertEmbeddings::resize_vocabulary), an untied decoder alike, and the bias
    /// of a masked-language-model head. New entries of the bias are the mean of the old ones with
    /// [`NewRows::MeanCovariance`](crate::NewRows::MeanCovariance), as in transformers, and zeros otherwise.
    ///
    /// Errors are those of `BertEmbeddings::resize_vocabulary`. The model is unchanged then.
    fn resize_vocabulary(&mut self, resize: &VocabularyResize) -> Result<()> {
        // A copy, so that an error leaves the model unchanged. Its tensors are shared.
        let mut resized = self.clone();
        resized.bert_mut().embeddings.resize_vocabulary(resize)?;
        resized.resize_head(resize)?;
        *self = resized;
        Ok(())
    }

    /// Adds position embeddings as [`BertEmbeddings::extend_positions`](crate::BertEmbeddings::extend_positions) does,
    /// with the same errors.
    fn extend_positions(&mut self, max_position_embeddings: usize, fill: PositionFill) -> Result<()> {
        self.bert_mut().embeddings.extend_positions(max_position_embeddings, fill)
    }

    /// Writes `config.json` and `model.safetensors` into `dir`, in the model's dtype; Python reads them with the
    /// `from_pretrained` of transformers' class, such as `AutoModelForMaskedLM`.
    ///
    /// **In a directory that already holds a model**, the model's tensors and fields are replaced and everything else
    /// is kept: other heads, `tokenizer.json`. Tied tensors are stored once, as transformers does. The files are replaced as
    /// by [`BertEmbeddings::save_pretrained`](crate::BertEmbeddings::save_pretrained): a save that fails leaves the old ones.
    ///
    /// # Errors
    ///
    /// Those of [`BertEmbeddings::save_pretrained`](crate::BertEmbeddings::save_pretrained);
    /// [`Error::Config`](crate::Error::Config) or [`Error::Data`](crate::Error::Data) if the module's config does not build
    /// the module, because its fields were changed: no layers, a head of another size, or a layer with another ε, dropout or
    /// number of attention heads than the others. Nothing is written then.
    fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        save(self, dir.as_ref())
    }

    /// Limits a tokenizer to the texts that the model reads: to its positions, whatever
    /// [`with_model_max_length`](BertTokenizer::with_model_max_length) says before or after; to a sentence-transformers
    /// model's `max_seq_length`, unless the caller set a smaller limit, and to lower case if that model's config says so.
    /// A [`Pipeline`](crate::pipeline::Pipeline) does so by itself; call it for a custom training loop.
    ///
    /// # Errors
    ///
    /// [`Error::Data`](crate::Error::Data) if the model has fewer word embeddings than the tokenizer has tokens;
    /// [`Error::Config`](crate::Error::Config) if it counts positions from another padding id than the tokenizer's.
    #[cfg(feature = "tokenizers")]
    fn limit_tokenizer(&self, tokenizer: BertTokenizer) -> Result<BertTokenizer> {
        self.prepare_tokenizer(tokenizer).limited_to(&self.bert().embeddings.config())
    }
}

impl<M: Stored> PretrainedModel for M {}

/// The differences between a checkpoint and the model that was read from it. An empty report prints nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a newly initialised head predicts nothing before it is trained"]
pub struct LoadReport {
    /// Keys that the model needs and the checkpoint does not have. These parameters are newly initialised or, after
    /// [`load`](PretrainedModel::load), unchanged. A head or the pooler is only ever missing as a whole.
    pub missing: Vec<String>,
    /// Keys of the checkpoint that the model has no use for, such as those of other heads.
    pub unused: Vec<String>,
    /// The class that `architectures` of `config.json` names, if the model has a head and is of another class.
    pub other_class: Option<String>,
}

impl LoadReport {
    /// Whether every parameter of the model came from the checkpoint.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(class) = &self.other_class {
            writeln!(f, "config.json names another class: {}", shown(class))?;
        }
        let [missing, unused] = ["not in the checkpoint, not loaded", "in the checkpoint, not used"];
        for (what, keys) in [(missing, &self.missing), (unused, &self.unused)] {
            // Keys come from a file, which may hold what a terminal would obey.
            let keys: Vec<String> = keys.iter().map(|key| shown(key)).collect();
            if !keys.is_empty() {
                writeln!(f, "{what}: {}", keys.join(", "))?;
            }
        }
        Ok(())
    }
}

/// What `read` reads of the checkpoint at a path, or of the model of that name, and its config, both of one save.
fn of_save<T>(path: &Path, read: impl Fn(&Path, &Fields) -> Result<T>) -> Result<T> {
    let path = &directory(path, Wanted::Weights)?;
    of_one_save(path, || read(path, &Fields::beside(path)?))
}

#[derive(Clone, Copy, PartialEq)]
enum Misfit {
    Refused,
    NewlyInitialised,
}

fn built<M: Stored>(
    config: &M::Config,
    fields: &Fields,
    path: &Path,
    device: &Device,
    misfit: Misfit,
) -> Result<(M, LoadReport)> {
    let checkpoint = Checkpoint::open(path)?;
    let bert = M::bert_config(config);
    let family = bert.embeddings.family;
    let keys = ModelKeys::of_model(&checkpoint, family)?;
    // Before the model is built: a config can state more layers than fit into memory.
    keys.check_depth(&checkpoint, bert.num_stored_layers(), bert.num_hidden_layers)?;
    read(&M::build(config, device)?, fields, checkpoint, keys, misfit)
}

fn read<M: Stored>(
    model: &M,
    fields: &Fields,
    checkpoint: Checkpoint,
    keys: ModelKeys,
    misfit: Misfit,
) -> Result<(M, LoadReport)> {
    let family = model.bert().embeddings.family();
    // Before anything is read: keys of another family may have the same shapes.
    agree(&keys, family, fields)?;
    let stored = keys.stored.clone().unwrap_or_default();
    let is_new = |params: &[StoredParam], own: &Checkpoint| {
        misfit == Misfit::NewlyInitialised && params.iter().any(|param| param.is_of_other_shape(own))
    };
    let mut params = model.bert().body_params(&keys);
    let (mut missing, mut copies) = (Vec::new(), BTreeSet::new());
    for part in model.parts(&keys) {
        for names in part.equal {
            if names.iter().all(|name| stored.contains(name)) && !checkpoint.are_equal(&names)? {
                let problem = format!(
                    "has {} and {} that differ, but the config ties the head to the word embeddings; set tie_word_embeddings \
                     to false in config.json to give the head its own decoder and bias",
                    names[0], names[1]
                );
                return Err(Error::file(checkpoint.path(), problem));
            }
        }
        copies.extend(part.copies);
        let is_stored = part.params.iter().any(|param| stored.contains(&param.key));
        if is_stored && !is_new(&part.params, &checkpoint) {
            params.extend(part.params);
        } else {
            missing.extend(part.params.into_iter().map(|param| param.key));
        }
    }
    let used: BTreeSet<&String> = params.iter().map(|param| &param.key).collect();
    // Buffers of the embedding layer and copies of tied weights are read by no one, and no loss.
    let is_read = |key: &String| used.contains(key) || copies.contains(key);
    let is_unused = |key: &String| !is_read(key) && !keys.is_of_layer(key, true);
    let unused = stored.iter().filter(|key| is_unused(key)).cloned().collect();
    // Into copies: if a later file fails, nothing was loaded.
    let mut filled_model = filled(model, &checkpoint, params)?;
    let dir = fields.dir();
    let folders = model.folders_beside(dir)?;
    for (i, (name, Part { params, .. })) in model.parts_beside().into_iter().enumerate() {
        let mut checkpoint = folders.get(i).map(|folder| Checkpoint::open(folder)).transpose()?;
        match checkpoint.take_if(|own| !is_new(&params, own)) {
            Some(checkpoint) => filled_model = filled(&filled_model, &checkpoint, params)?,
            None => missing.extend(params.into_iter().map(|param| format!("{name}/{}", param.key))),
        }
    }
    let class = M::CLASS.map(|class| format!("{}{class}", FamilySpec::of(family).class));
    let other_class = fields.class_beside(class.as_deref());
    Ok((filled_model, LoadReport { missing, unused, other_class }))
}
