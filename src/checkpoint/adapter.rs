//! Low-rank adapters of PEFT: what one makes of the tensors of its base model.

use super::formats::{StoredTensor, ValueReader, WeightFile};
use super::params::StoredParam;
use super::{Checkpoint, GAMMA_BETA, float_dtype};
use crate::error::{Error, Result, shown};
use crate::family::FAMILIES;
use crate::files::{ADAPTER_NAMES, read_json, regular_file};
use crate::layers::dtype;
use burn::module::{LoraAdapter, Param, ParamGroup, ParamId, Reparameterizer};
use burn::prelude::*;
use burn::tensor::{DType, TensorData};
use regex::Regex;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::mem::take;
use std::path::PathBuf;

/// `scale · B·A`, which is added to a weight [O, I]: A is [r, I], and B [O, r].
pub(crate) struct LowRank {
    /// The index of the adapter's file.
    file: usize,
    a: StoredTensor,
    b: StoredTensor,
    scale: f64,
}

/// Settings that change what an adapter computes, and the values with which it is `scale · B·A`.
const UNSUPPORTED: [&str; 11] = [
    "use_dora",
    "lora_bias",
    "use_qalora",
    "alora_invocation_tokens",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "use_bdlora",
];

/// Ways to initialise an adapter that leave the base model's weights as they were.
const INITIALISERS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

impl Checkpoint {
    /// Adds the adapter that lies beside a model or names it. Its tensors that are not low-rank, of the modules that were trained
    /// whole and of biases, take the place of the model's.
    pub(super) fn with_adapter(mut self, config: PathBuf) -> Result<Self> {
        let fields: Map<String, Value> = read_json(&config)?;
        let refused = |problem: String| Err(Error::file(&config, problem));
        let kind = fields.get("peft_type").and_then(Value::as_str).unwrap_or_default();
        if kind != "LORA" {
            return refused(format!("is of peft_type {}, but only LORA can be read", shown(kind)));
        }
        let is_off = |value: &Value| match value {
            Value::Array(values) => values.is_empty(),
            Value::Object(values) => values.is_empty(),
            value => value.is_null() || value == false,
        };
        if let Some(field) = UNSUPPORTED.iter().find(|field| fields.get(**field).is_some_and(|v| !is_off(v)))
        {
            return refused(format!(
                "sets {field}, which is not supported; merge it in Python (`merge_and_unload`)"
            ));
        }
        let initialiser = fields.get("init_lora_weights").and_then(Value::as_str).unwrap_or("gaussian");
        if !INITIALISERS.contains(&initialiser) {
            let problem =
                "which changes the base model's weights too; merge it in Python (`merge_and_unload`)";
            return refused(format!("has init_lora_weights {}, {problem}", shown(initialiser)));
        }
        let path = ADAPTER_NAMES
            .iter()
            .map(|name| config.with_file_name(name))
            .find(|path| regular_file::exists(path));
        let Some(path) = path else {
            return refused(format!("is there without its weights, {}", ADAPTER_NAMES.join(" or ")));
        };
        let (file, tensors) = WeightFile::open(&path)?;
        // As for the model's own: views in PyTorch's files can repeat what they see.
        if tensors.values().fold(0, |total: u64, tensor| total.saturating_add(tensor.size())) / 2
            > file.length
        {
            return Err(Error::not_a_checkpoint(&path, "its tensors claim more bytes than it has"));
        }
        let index = self.files.len();
        self.files.push(file);
        let mut pairs: BTreeMap<String, [Option<StoredTensor>; 2]> = BTreeMap::new();
        for (key, tensor) in tensors {
            let name = key.strip_prefix("base_model.model.").unwrap_or(&key);
            let name =
                name.replace(".modules_to_save.", ".").replace(".base_layer.", ".").replace(".default", "");
            if name.contains(".original_module.") {
                continue;
            }
            let half = [".lora_A.weight", ".lora_B.weight"].iter().position(|end| name.ends_with(end));
            match half {
                Some(half) => pairs.entry(name[..name.len() - 14].into()).or_default()[half] = Some(tensor),
                None if name.contains("lora_") || name.contains("trainable_tokens_") => {
                    let problem =
                        format!("has {}, which is no part of a LoRA of a linear layer", shown(&key));
                    return Err(Error::file(&path, problem));
                }
                None => {
                    let name = self.own_key(&name).unwrap_or(name);
                    self.tensors.insert(name, (index, tensor));
                }
            }
        }
        let mut low_rank = BTreeMap::new();
        for (module, pair) in pairs {
            let own = self.own_key(&format!("{module}.weight")).filter(|key| !low_rank.contains_key(key));
            let Some(key) = own else {
                let problem =
                    format!("adapts {}, which {} does not have", shown(&module), self.path.display());
                return Err(Error::file(&path, problem));
            };
            let [Some(a), Some(b)] = pair else {
                return Err(Error::missing_key(&path, module, "an adapter has both lora_A and lora_B"));
            };
            let weight = &self.float_tensor(&key)?.0.shape;
            let (rank, expected) =
                (a.shape[0], format!("{module}: lora_A [r, I] and lora_B [O, r] of a weight {weight:?}"));
            if a.shape.len() != 2 || b.shape != [weight[0], rank] || weight[..] != [b.shape[0], a.shape[1]] {
                let problem = format!("has shapes {:?} and {:?}, but must have {expected}", a.shape, b.shape);
                return Err(Error::file(&path, problem));
            }
            let scale = scale(&fields, &module, rank).map_err(|problem| Error::file(&config, problem))?;
            low_rank.insert(key, LowRank { file: index, a, b, scale });
        }
        (self.low_rank, self.adapter) = (low_rank, Some(config));
        Ok(self)
    }

    /// The model's own name of an adapter's key, which may have another prefix or older names of γ and β.
    fn own_key(&self, name: &str) -> Option<String> {
        let bare = name.split_once('.').map_or(name, |(_, rest)| rest);
        let bases = FAMILIES.iter().flat_map(|spec| [Some(spec.base), spec.old_base]).flatten();
        let mut names: Vec<String> = bases.map(|base| format!("{base}.{name}")).collect();
        names.splice(0..0, [name.into(), bare.into()]);
        let [new, old] = GAMMA_BETA;
        for (new, old) in new.iter().zip(old) {
            let of_norm = name.strip_suffix(&format!("LayerNorm.{new}"));
            names.extend(of_norm.map(|norm| format!("{norm}LayerNorm.{old}")));
        }
        names.into_iter().find(|name| self.tensors.contains_key(name))
    }

    /// Takes the low-rank changes out of the weights, which are then read as the base has them.
    pub(crate) fn take_low_rank(&mut self) -> BTreeMap<String, LowRank> {
        take(&mut self.low_rank)
    }

    /// The module with adapters of its own, each frozen weight W computing W + scale · A·B. What else the adapter's file holds
    /// is trained, and modules that no file has.
    pub(crate) fn with_low_rank<M: Module>(
        &self,
        module: M,
        params: &[StoredParam],
        low_rank: &BTreeMap<String, LowRank>,
    ) -> Result<M> {
        let is_linear = |key: &str| {
            params.iter().any(|param| param.key == key && param.visited().all(|own| own.is_transposed()))
        };
        if let Some(key) = low_rank.keys().find(|key| !is_linear(key)) {
            let problem =
                "has an adapter, but is none of the model's linear layers; from_pretrained merges it";
            return Err(Error::data(key, problem));
        }
        let (mut adapters, mut trained) = (HashMap::new(), Vec::new());
        for param in params {
            let ids = || param.visited().filter_map(|own| own.id);
            if let Some(LowRank { file, a, b, scale }) = low_rank.get(&param.key) {
                let file = &self.files[*file];
                let dtypes = [float_dtype(a, file, &param.key)?, float_dtype(b, file, &param.key)?];
                // A stack's parts read the same A, and each has its rows of B.
                let shape = [b.shape[0] / param.visited().count(), b.shape[1]];
                let a = file.values(&param.key, a)?.read(&a.shape, dtypes[0], true)?;
                let mut rows = file.values(&param.key, b)?;
                for id in ids() {
                    adapters.insert(id, (a.clone(), rows.read(&shape, dtypes[1], true)?, *scale));
                }
            }
            let is_of_base =
                self.tensors.get(&param.key).is_some_and(|(file, _)| file + 1 < self.files.len());
            if !is_of_base && param.folder.is_none() {
                trained.extend(ids());
            }
        }
        let module = module.apply_reparameterization(Attach(adapters));
        Ok(module.set_require_grad_group(ParamGroup::from_ids(trained), true))
    }

    /// A tensor's values with an adapter's share, in f64, and the dtype that they have then.
    pub(super) fn adapted<'a>(
        &self,
        key: &str,
        shape: &[usize],
        dtype: DType,
        mut values: ValueReader<'a>,
    ) -> Result<(ValueReader<'a>, DType)> {
        let Some(LowRank { file, a, b, scale }) = self.low_rank.get(key) else { return Ok((values, dtype)) };
        let file = &self.files[*file];
        let read = |tensor: &StoredTensor| -> Result<Vec<f64>> {
            let dtype = float_dtype(tensor, file, key)?;
            Ok(file.values(key, tensor)?.read(&tensor.shape, dtype, false)?.iter().collect())
        };
        let [rank, inputs] = [a.shape[0], a.shape[1]];
        let (a, b) = (read(a)?, read(b)?);
        let mut sum: Vec<f64> = values.read(shape, dtype, false)?.iter().collect();
        for (row, b) in sum.chunks_mut(inputs.max(1)).zip(b.chunks(rank.max(1))) {
            for (factor, a) in b.iter().zip(a.chunks(inputs.max(1))) {
                row.iter_mut().zip(a).for_each(|(sum, a)| *sum += scale * factor * a);
            }
        }
        let bytes = sum.into_iter().flat_map(f64::to_le_bytes).collect();
        Ok((ValueReader::from_memory(bytes), DType::F64))
    }
}

/// Attaches adapters, each of a parameter by its id: A, B and the scale.
struct Attach(HashMap<ParamId, (TensorData, TensorData, f64)>);

impl Reparameterizer for Attach {
    type Reparam = LoraAdapter;

    fn reparameterize<const D: usize>(
        &mut self,
        _path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<LoraAdapter>) {
        let adapter = self.0.remove(&param.id).map(|(a, b, scale)| {
            let place = (&param.lazy_device(), dtype(&param));
            let [a, b] = [a, b].map(|values| Param::from_tensor(Tensor::from_data(values, place)));
            LoraAdapter { a, b, scale }
        });
        (param.set_require_grad(false), adapter)
    }
}

/// What a module's `B·A` is multiplied by: α / r, or α / √r with `use_rslora`; α is that of the pattern of the module's name, or
/// else `lora_alpha`.
fn scale(fields: &Map<String, Value>, module: &str, rank: usize) -> Result<f64, String> {
    let mut alpha = fields.get("lora_alpha").and_then(Value::as_f64);
    let mut matching: Option<&str> = None;
    for (pattern, value) in fields.get("alpha_pattern").and_then(Value::as_object).into_iter().flatten() {
        let regex = Regex::new(&format!("^(.*\\.)?({pattern})$"));
        let regex = regex.map_err(|error| format!("has the alpha_pattern {}: {error}", shown(pattern)))?;
        if !regex.is_match(module) {
            continue;
        }
        // PEFT takes the first one in the file, whose order is not kept here.
        if let Some(other) = matching.replace(pattern).filter(|_| alpha != value.as_f64()) {
            let [other, pattern, module] = [other, pattern, module].map(shown);
            return Err(format!(
                "has two patterns of alpha_pattern for {module}, {other} and {pattern}; leave one"
            ));
        }
        alpha = value.as_f64();
    }
    let alpha = alpha.filter(|alpha| alpha.is_finite()).ok_or("has no lora_alpha that is a number")?;
    let is_rslora = fields.get("use_rslora").and_then(Value::as_bool).unwrap_or(false);
    let rank = rank.max(1) as f64;
    Ok(alpha / if is_rslora { rank.sqrt() } else { rank })
}
