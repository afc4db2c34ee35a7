//! Whole models from Hugging Face directories, and back.

use super::adapter::{adapter_of, task_type};
use super::load_report::LoadReport;
use super::stored::{Stored, check_built_by_config, params_of};
use crate::checkpoint::{
    Checkpoint, Directory, Fields, ModelKeys, StoredParam, filled, merged_fields, replace_changed,
    stored_dtype,
};
use crate::error::{Error, Result};
use crate::files::hub::{HubFiles, directory};
use crate::files::read_consistently;
use crate::layers::{PositionFill, VocabularyResize};
#[cfg(feature = "tokenizers")]
use crate::text::BertTokenizer;
use burn::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
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
    /// with a `config.json` next to it; with the feature `hub` also a model's name on the Hugging Face Hub, as `owner/name` or
    /// `owner/name@revision`. Embeddings and encoder must be complete. The pooler and the head must each be complete or
    /// absent; absent ones are newly initialised and [reported](LoadReport), as are unused tensors.
    ///
    /// Errors are those of the config's `from_pretrained` and, for every tensor of the model, of
    /// [`BertEmbeddings::load`](crate::BertEmbeddings::load), and [`Error::Hub`] for a name that is not a path, if the model
    /// cannot be had from the Hub.
    fn from_pretrained(path: impl AsRef<Path>, device: &Device) -> Result<(Self, LoadReport)> {
        read_save(path.as_ref(), |path, fields| {
            let config = Self::config_of(fields)?;
            fields.in_file(built(&config, fields, &Checkpoint::open(path)?, device, Misfit::Refused))
        })
    }

    /// Reads a checkpoint with another config, for example with other dropout; `config.json` is only compared with it. Errors
    /// are those of the config's `validate` and of [`from_pretrained`](Self::from_pretrained), and [`Error::ConfigFile`] if
    /// the positions of the file's family are others.
    fn from_pretrained_with(
        config: &Self::Config,
        path: impl AsRef<Path>,
        device: &Device,
    ) -> Result<(Self, LoadReport)> {
        read_save(path.as_ref(), |path, fields| {
            built(config, fields, &Checkpoint::open(path)?, device, Misfit::Refused)
        })
    }

    /// [`from_pretrained_with`](Self::from_pretrained_with), but a head of another size than the checkpoint's, or whose labels
    /// have other names, is newly initialised and reported as missing and as unused: to fine-tune a classifier for other labels.
    /// `LABEL_0`, `LABEL_1`, … are not names. Errors are the same, but for the shapes of the head.
    fn from_pretrained_with_new_head(
        config: &Self::Config,
        path: impl AsRef<Path>,
        device: &Device,
    ) -> Result<(Self, LoadReport)> {
        read_save(path.as_ref(), |path, fields| {
            built(config, fields, &Checkpoint::open(path)?, device, Misfit::NewlyInitialised)
        })
    }

    /// [`from_pretrained_with`](Self::from_pretrained_with) of a directory with a PEFT adapter, which is not merged: each weight that it
    /// changes keeps a [`LoraAdapter`](burn::module::LoraAdapter), and a training run of `Tuning::Full` goes on with the adapters
    /// and what was trained besides them, as `PeftModel.from_pretrained` does with `is_trainable`. Errors are the same, and
    /// [`Error::File`] without an adapter.
    fn from_pretrained_with_adapter(
        config: &Self::Config,
        path: impl AsRef<Path>,
        device: &Device,
    ) -> Result<(Self, LoadReport)> {
        read_save(path.as_ref(), |path, fields| {
            let mut checkpoint = Checkpoint::open(path)?;
            let low_rank = checkpoint.take_low_rank();
            if low_rank.is_empty() {
                return Err(Error::file(
                    path,
                    "has no LoRA adapter; `from_pretrained` reads models without one",
                ));
            }
            let (model, report) = built::<Self>(config, fields, &checkpoint, device, Misfit::Refused)?;
            let keys = ModelKeys::find_in_model(&checkpoint, model.bert().embeddings.family(), fields)?;
            let params = params_of(&model, &keys).0;
            Ok((checkpoint.with_low_rank(model, &params, &low_rank)?, report))
        })
    }

    /// Replaces the model's values by those of a checkpoint. A head or pooler that the checkpoint lacks is unchanged and
    /// reported as missing. Parameters keep their ids, device, dtype (values are cast) and whether they are trained. Errors
    /// are those of [`from_pretrained`](Self::from_pretrained). After an error the model is as it was.
    fn load(&mut self, path: impl AsRef<Path>) -> Result<LoadReport> {
        // The config is read too, because its positions must be the model's.
        let (model, report) = read_save(path.as_ref(), |path, fields| {
            let checkpoint = Checkpoint::open(path)?;
            let keys = ModelKeys::find_in_model(&checkpoint, self.bert().embeddings.family(), fields)?;
            read(self, fields, &checkpoint, &keys, Misfit::Refused)
        })?;
        *self = model;
        Ok(report)
    }

    /// Grows or shrinks the vocabulary: the word embeddings as by
    /// [`BertEmbeddings::resize_vocabulary`](crate::BertEmbeddings::resize_vocabulary), an untied decoder alike, and the bias
    /// of a masked-language-model head. New entries of the bias are the mean of the old ones with
    /// [`NewRows::MeanCovariance`](crate::NewRows::MeanCovariance), as in transformers, and zeros otherwise. Errors are those
    /// of `BertEmbeddings::resize_vocabulary`. The model is unchanged then.
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
    /// In a directory that already holds a model, its tensors and fields are replaced and everything else is kept: other
    /// heads, `tokenizer.json`. A save that fails leaves the old files.
    ///
    /// Errors are those of [`BertEmbeddings::save_pretrained`](crate::BertEmbeddings::save_pretrained), and [`Error::Config`]
    /// or [`Error::Data`] if the module's config does not build the module, because its fields were changed: no layers, a
    /// head of another size, or a layer with another ε, dropout or number of attention heads than the others. Nothing is
    /// written then.
    fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        save(self, dir.as_ref())
    }

    /// Writes the model's LoRA adapters and its head into `dir`, as PEFT does: `adapter_config.json`, with this name of the base
    /// model, a path or a name on the Hub, and `adapter_model.safetensors`. Python reads them with `PeftModel.from_pretrained` and
    /// transformers' `from_pretrained`, and every loader of this crate does.
    ///
    /// Layers that the family stores as one tensor, such as the `Wqkv` of ModernBERT, get one adapter whose rank is the sum of
    /// theirs; it computes the same.
    ///
    /// [`Error::Data`] if no linear layer of the encoder has an adapter, or one outside has; if something else than adapters and
    /// head is trained, if a layer of sentence embeddings follows the pooling, none of which PEFT's files can hold, or if the
    /// family is GTE, NomicBERT or Jina embeddings v3, whose modules transformers renames; [`Error::File`] if `dir` holds a model,
    /// and those of [`save_pretrained`](Self::save_pretrained) for files.
    fn save_adapter(&self, dir: impl AsRef<Path>, base_model_name_or_path: &str) -> Result<()> {
        adapter_of(self)?.write(dir.as_ref(), base_model_name_or_path, task_type::<Self>())
    }

    /// Limits a tokenizer to the texts that the model reads: to the positions of its tables, whatever
    /// [`with_model_max_length`](BertTokenizer::with_model_max_length) says before or after, and to the
    /// `max_position_embeddings` of computed ones, if nothing else is said; to a sentence-transformers
    /// model's `max_seq_length`, unless the caller set a smaller limit, and to lower case if that model's config says so. A
    /// [`Pipeline`](crate::pipeline::Pipeline) does so by itself; call it for a custom training loop.
    ///
    /// [`Error::Data`] if the model has fewer word embeddings than the tokenizer has tokens; [`Error::Config`] if it counts
    /// positions from another padding id than the tokenizer's.
    #[cfg(feature = "tokenizers")]
    fn limit_tokenizer(&self, tokenizer: BertTokenizer) -> Result<BertTokenizer> {
        self.prepare_tokenizer(tokenizer).limited_to(&self.bert().embeddings.config())
    }
}

impl<M: Stored> PretrainedModel for M {}

/// Calls `read` with the checkpoint at a path, or the Hub's model of that name, and its config, both of one save.
fn read_save<T>(path: &Path, read: impl Fn(&Path, &Fields) -> Result<T>) -> Result<T> {
    let path = &directory(path, HubFiles::Weights)?;
    read_consistently(path, || read(path, &Fields::beside(path)?))
}

#[derive(Clone, Copy, PartialEq)]
enum Misfit {
    Refused,
    NewlyInitialised,
}

fn built<M: Stored>(
    config: &M::Config,
    fields: &Fields,
    checkpoint: &Checkpoint,
    device: &Device,
    misfit: Misfit,
) -> Result<(M, LoadReport)> {
    // Nothing is initialised before it is read.
    let model = M::build(config, device)?;
    let bert = model.bert();
    let keys = ModelKeys::find_in_model(checkpoint, bert.embeddings.family(), fields)?;
    // First of all keys: those of a checkpoint with fewer layers end before the last one.
    let key = keys.layer_query(bert.encoder.layers.len().saturating_sub(1));
    if !keys.is_stored(&key) {
        let layers = bert.encoder.num_hidden_layers();
        let is_of_other_code = !fields.is_null("auto_map") && !keys.is_stored(&keys.layer_query(0));
        let hint = match is_of_other_code {
            true => "auto_map in config.json names other code, whose keys are not transformers'".into(),
            false => format!("num_hidden_layers is {layers}, so this layer should be there"),
        };
        return Err(Error::missing_key(&checkpoint.path, key, hint));
    }
    read(&model, fields, checkpoint, &keys, misfit)
}

fn read<M: Stored>(
    model: &M,
    fields: &Fields,
    checkpoint: &Checkpoint,
    keys: &ModelKeys,
    misfit: Misfit,
) -> Result<(M, LoadReport)> {
    let relabelled = if misfit == Misfit::NewlyInitialised { relabelled(model, fields)? } else { None };
    let is_new = |params: &[StoredParam], own: &Checkpoint| {
        let is_misfit = |param: &StoredParam| {
            // The bias of the last layer, one value for each label.
            param.is_of_other_shape(own) || relabelled.is_some_and(|labels| param.shape == [labels])
        };
        misfit == Misfit::NewlyInitialised && params.iter().any(is_misfit)
    };
    let (params, copies) = params_of(model, keys);
    let differ = |names: &[String; 2]| {
        Ok::<_, Error>(names.iter().all(|name| keys.is_stored(name)) && !checkpoint.are_equal(names)?)
    };
    if let Some(names) = &copies.equal
        && differ(names)?
    {
        let problem = format!(
            "has {} and {} that differ, but the config ties the head to the word embeddings; set tie_word_embeddings to false in \
             config.json to give the head its own decoder and bias",
            names[0], names[1]
        );
        return Err(Error::file(&checkpoint.path, problem));
    }
    let (mut found, mut missing, mut in_folders) = (Vec::new(), Vec::new(), Vec::new());
    for part in params.chunk_by(|left, right| left.part == right.part) {
        // By any of its keys: a part that is there by half is a damaged file, and no new head.
        let is_stored = || part.iter().any(|param| keys.is_stored(&param.key));
        match &part[0] {
            StoredParam { folder: Some(folder), .. } => in_folders.push((folder, part)),
            StoredParam { part: Some(_), .. } if !is_stored() || is_new(part, checkpoint) => {
                missing.extend(part.iter().map(|param| param.key.clone()));
            }
            _ => found.extend(part),
        }
    }
    // Buffers of the embedding layer and copies of tied weights are read by no one, and no loss.
    let used = found.iter().map(|param| &param.key).chain(&copies.keys);
    let mut used: BTreeSet<&str> = used.map(String::as_str).collect();
    if let Some(names) = &copies.replaced
        && differ(names)?
    {
        used.remove(names[0].as_str());
    }
    let unused = checkpoint.keys().filter(|key| !used.contains(key) && !keys.is_of_layer(key, true));
    let unused = unused.map(String::from).collect();
    // Into copies: if a later file fails, nothing was loaded.
    let mut filled_model = filled(model, checkpoint, found)?;
    let mut folders = model.module_folders(fields.dir())?.into_iter();
    for (name, part) in in_folders {
        let mut own = folders.next().map(|folder| Checkpoint::open(&folder)).transpose()?;
        match own.take_if(|own| !is_new(part, own)) {
            Some(own) => filled_model = filled(&filled_model, &own, part)?,
            None => missing.extend(part.iter().map(|param| format!("{name}/{}", param.key))),
        }
    }
    let other_class = fields.other_class(class_of(model).as_deref());
    Ok((filled_model, LoadReport { missing, unused, other_class, adapter: checkpoint.adapter.clone() }))
}

/// The number of a head's labels, if the config.json gives as many other names.
fn relabelled<M: Stored>(model: &M, fields: &Fields) -> Result<Option<usize>> {
    let own = own_fields(model);
    let (Some(own), Some(stored)) =
        (own.get("id2label").and_then(Value::as_object), fields.object("id2label")?)
    else {
        return Ok(None);
    };
    // transformers' names of classes without names.
    let is_named = |names: &Map<String, Value>| {
        names.iter().any(|(id, name)| name.as_str() != Some(&format!("LABEL_{id}")))
    };
    let is_other = own.len() == stored.len() && own != stored && is_named(own) && is_named(stored);
    Ok(is_other.then_some(own.len()))
}

fn save<M: Stored>(model: &M, dir: &Path) -> Result<()> {
    let bert = model.bert();
    let family = bert.embeddings.family();
    let spec = family.spec();
    let (directory, old_fields, old_keys) = Directory::open(dir, family)?;
    let old_prefix = old_keys.as_ref().and_then(|keys| keys.model_prefix());
    // Beside a head the model's keys need a prefix.
    let prefix = match M::CLASS {
        Some(_) => format!("{}.", spec.base),
        None => old_prefix.unwrap_or_default().to_string(),
    };
    let keys = ModelKeys::written(&prefix, family);

    let words = &bert.embeddings.word_embeddings.weight;
    // Models to compare with are built there, but never initialised.
    let device = words.lazy_device();
    let own = own_fields(model);
    // Fields that still mean what the old file meant are written as they were.
    let was = old_fields.as_ref().and_then(|old| M::build(&M::config_of(old).ok()?, &device).ok());
    let mut fields = merged_fields(&bert.embeddings.config(), old_fields)?;
    let mut same = was.as_ref().map(own_fields).unwrap_or_default();
    // transformers gives a head as many outputs as there are labels, so another head's labels stay only if they are as many.
    if num_labels(&fields) != num_labels(&own) {
        same.retain(|field, _| !["id2label", "label2id"].contains(&field.as_str()));
    }
    replace_changed(&mut fields, own, &same);
    // A bare model is part of every class, and leaves the old one.
    if let Some(class) = class_of(model) {
        fields.insert("architectures".into(), json!([class]));
    }
    // transformers loads in the dtype that the config names; before 4.56 it had another name.
    if let Some((_, dtype)) = stored_dtype(words.val().dtype()) {
        fields.insert("dtype".into(), dtype.into());
        fields.entry("torch_dtype").and_modify(|old| *old = dtype.into());
    }

    // With what adapters add.
    let model = &model.clone().materialize();
    let (params, copies) = params_of(model, &keys);
    check_built_by_config(model, &params, &keys)?;
    // What of the old file starts with one of these is replaced, and also removed where this model has no such part.
    let own = params.iter().map(|param| param.namespace.clone());
    let namespaces: BTreeSet<String> = keys.namespaces().chain(own).collect();
    // Keys of a bare model, or with another prefix, get this one, so that its other tensors, such as the pooler, stay readable.
    let old_prefix = old_prefix.filter(|old| *old != prefix);
    directory.replace(fields, model.files_beside(dir)?, params, |key| {
        let of_model = old_prefix.and_then(|old| key.strip_prefix(old));
        let of_model = of_model.filter(|name| spec.is_of_model(name));
        let name = of_model.map_or_else(|| key.to_string(), |name| keys.named(name));
        let is_replaced = old_keys.as_ref().is_some_and(|old| old.is_of_layer(key, true))
            || keys.is_of_layer(&name, true)
            || namespaces.iter().any(|namespace| name.starts_with(namespace))
            || copies.keys.contains(&name);
        (!is_replaced).then_some(name)
    })
}

fn class_of<M: Stored>(model: &M) -> Option<String> {
    let family = model.bert().embeddings.family().spec();
    M::CLASS.map(|class| format!("{}{class}", family.class))
}

fn own_fields<M: Stored>(model: &M) -> Map<String, Value> {
    let fields = model.bert().config().encoder_fields().into_iter();
    fields.map(|(field, value)| (field.to_string(), value)).chain(model.head_fields()).collect()
}

/// How many labels a `config.json` has; transformers' default is two.
fn num_labels(fields: &Map<String, Value>) -> u64 {
    let names = fields.get("id2label").and_then(Value::as_object).map(|names| names.len() as u64);
    names.or_else(|| fields.get("num_labels")?.as_u64()).unwrap_or(2)
}
