//! Low-rank adapters of a model, as PEFT saves them.

use super::formats::safetensors::{Tensors, write_values};
use super::keys::ModelKeys;
use super::params::{StoredParam, Visited, stored_dtype};
use crate::error::{Error, Result};
use crate::files::{ADAPTER_CONFIG_NAME, ADAPTER_NAMES, CONFIG_NAME, Replacement, regular_file};
use burn::module::{LoraAdapter, ParamId};
use burn::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::path::Path;

/// The config and the tensors of an adapter of PEFT.
pub(crate) struct SavedAdapter {
    config: Value,
    tensors: Tensors<'static>,
}

impl SavedAdapter {
    /// The adapters of a model's weights, and the whole of its head. Refuses a model without adapters, and one that trains what a
    /// LoRA of PEFT cannot hold.
    pub(crate) fn new(
        params: &[StoredParam],
        keys: &ModelKeys,
        adapters: &HashMap<ParamId, &LoraAdapter>,
        trained: &HashSet<ParamId>,
    ) -> Result<Self> {
        let prefix = keys.model_prefix().unwrap_or_default();
        let file = Path::new(ADAPTER_NAMES[0]);
        let adapter = |own: &Visited| own.id.and_then(|id| adapters.get(&id).copied());
        let (mut tensors, mut saved_whole) = (Vec::new(), BTreeSet::new());
        // The rank and α of each adapted module, and the names of the others' weights, below the model's prefix.
        let (mut adapted, mut others) = (BTreeMap::new(), Vec::new());
        for param in params {
            let refused = |problem: &str| Err(Error::data(&param.key, problem));
            let key = format!("base_model.model.{}", param.key);
            let name = param.key.strip_prefix(prefix).unwrap_or(&param.key);
            let own: Vec<Option<&LoraAdapter>> = param.visited().map(adapter).collect();
            if param.folder.is_some() {
                return refused("lies in a folder of its own, which an adapter of PEFT cannot hold");
            } else if param.visited().zip(&own).any(|(visited, own)| visited.has_adapter && own.is_none()) {
                return refused(
                    "has a LoRA adapter, but only those of the encoder's linear layers are saved",
                );
            } else if let (Some(module), Some(_)) =
                (name.strip_suffix(".weight"), own.iter().flatten().next())
            {
                let (a, b, scale) = stacked(param, &own);
                let [rank, _] = a.dims();
                adapted.insert(module.to_string(), (rank, scale * rank as f64));
                for (half, factor) in [("lora_A", a), ("lora_B", b)] {
                    let key = format!("{}.{half}.weight", key.trim_end_matches(".weight"));
                    let Some((dtype, _)) = stored_dtype(factor.dtype()) else {
                        let found = format!("{:?}", factor.dtype());
                        return Err(Error::CheckpointDType { path: file.into(), key, found });
                    };
                    let shape = factor.dims().to_vec();
                    let write = move |out: &mut dyn Write| write_values(factor.into_data(), out);
                    tensors.push((key, dtype, shape, Box::new(write) as _));
                }
            } else if param.part.is_some() {
                saved_whole.insert(name.split('.').next().unwrap_or(name).to_string());
                let (dtype, write) = param.writer(file)?;
                tensors.push((key, dtype, param.shape.clone(), write));
                others.extend(name.strip_suffix(".weight"));
            } else if param.visited().any(|own| own.id.is_some_and(|id| trained.contains(&id))) {
                return refused(
                    "is trained, but an adapter of PEFT holds low-rank changes of linear layers and whole heads",
                );
            } else {
                others.extend(name.strip_suffix(".weight"));
            }
        }
        let Some(&(rank, alpha)) = adapted.values().next() else {
            return Err(Error::data("the model", "has no LoRA adapters to save"));
        };
        let mut patterns = [Map::new(), Map::new()];
        for (module, &(own_rank, own_alpha)) in adapted.iter().filter(|(_, own)| **own != (rank, alpha)) {
            let values = [json!(own_rank), json!(own_alpha)];
            patterns
                .iter_mut()
                .zip(values)
                .for_each(|(pattern, value)| drop(pattern.insert(module.clone(), value)));
        }
        let [rank_pattern, alpha_pattern] = patterns;
        // PEFT adapts every module whose name is one of the list or ends in one.
        let ends: BTreeSet<&str> = adapted.keys().map(|module| below_layer(module)).collect();
        let is_of_list = |name: &str| {
            ends.iter().any(|end| {
                name.strip_suffix(end).is_some_and(|start| start.is_empty() || start.ends_with('.'))
            })
        };
        let target_modules: Vec<&str> = match others.iter().any(|name| is_of_list(name)) {
            true => adapted.keys().map(String::as_str).collect(),
            false => ends.into_iter().collect(),
        };
        let config = json!({
            "alpha_pattern": alpha_pattern,
            "base_model_name_or_path": null,
            "bias": "none",
            "fan_in_fan_out": false,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": alpha,
            "lora_dropout": 0.0,
            "modules_to_save": saved_whole,
            "peft_type": "LORA",
            "r": rank,
            "rank_pattern": rank_pattern,
            "revision": null,
            "target_modules": target_modules,
            "task_type": null,
            "use_dora": false,
            "use_rslora": false,
        });
        Ok(Self { config, tensors: Tensors { tensors, metadata: BTreeMap::new() } })
    }

    /// Writes both files into a directory, which is created if it does not exist. Refuses one that holds a model.
    pub(crate) fn write(mut self, dir: &Path, base: &str, task_type: Option<&str>) -> Result<()> {
        regular_file::create_directory(dir)?;
        if regular_file::exists(&dir.join(CONFIG_NAME)) {
            let problem = "holds a model, into which the adapter would be merged when that is loaded; save it elsewhere";
            return Err(Error::file(dir, problem));
        }
        // As PEFT has the revision of a name on the Hub.
        let (base, revision) = match base.split_once('@') {
            Some((name, revision)) if !Path::new(base).exists() => (name, Some(revision)),
            _ => (base, None),
        };
        (self.config["base_model_name_or_path"], self.config["revision"]) = (json!(base), json!(revision));
        self.config["task_type"] = json!(task_type);
        let mut files = Replacement::begin(dir)?;
        files.write(&dir.join(ADAPTER_NAMES[0]), |out| self.tensors.write(out))?;
        files.write(&dir.join(ADAPTER_CONFIG_NAME), |out| writeln!(out, "{:#}", self.config))?;
        files.commit()
    }
}

/// `A` [r, I], `B` [O, r] and the scale of the low-rank change of a tensor. In a stack each part has an adapter of its own: `A` is
/// theirs one below the other, and `B` is block-diagonal.
fn stacked(param: &StoredParam, own: &[Option<&LoraAdapter>]) -> (Tensor<2>, Tensor<2>, f64) {
    let all: Vec<&LoraAdapter> = own.iter().copied().flatten().collect();
    let larger = |a: f64, b: f64| if b.abs() > a.abs() { b } else { a };
    let scale = all.iter().map(|adapter| adapter.scale).fold(0.0, larger);
    let a = Tensor::cat(all.iter().map(|adapter| adapter.a.val().transpose()).collect(), 0);
    let rows = param.visited().zip(own).enumerate().map(|(part, (visited, _))| {
        let blocks = own.iter().enumerate().filter_map(|(other, adapter)| {
            let b = (*adapter)?.b.val().transpose();
            let own_scale = (*adapter)?.scale;
            Some(match part == other {
                true if own_scale == scale => b,
                true => b.mul_scalar(own_scale / scale),
                false => Tensor::zeros([visited.shape[1], b.dims()[1]], (&b.device(), b.dtype())),
            })
        });
        Tensor::cat(blocks.collect(), 1)
    });
    (a, Tensor::cat(rows.collect(), 0), scale)
}

/// The end of a module's name after the number of its layer.
fn below_layer(name: &str) -> &str {
    let number = name.split('.').rfind(|part| part.parse::<usize>().is_ok());
    let end = number.and_then(|number| name.rsplit_once(&format!(".{number}.")));
    end.map_or(name, |(_, end)| end)
}
