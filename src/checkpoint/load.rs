//! A module's parameters, filled with the values of a checkpoint.

use super::Checkpoint;
use super::params::{StoredParam, Visited};
use crate::error::{Error, Result};
use crate::layers::dtype;
use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::prelude::*;
use burn::tensor::TensorData;
use std::collections::HashMap;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

/// The module with the listed parameters' values replaced by those of a checkpoint, all of which are checked before any value
/// is read.
pub(crate) fn filled<'a, M: Module>(
    module: &M,
    checkpoint: &Checkpoint,
    params: impl IntoIterator<Item = &'a StoredParam>,
) -> Result<M> {
    // A bias that the module lacks is not read: transformers' layers have one, of zeros.
    let params: Vec<_> =
        params.into_iter().filter(|param| param.visited().any(|own| own.id.is_some())).collect();
    for param in &params {
        let (stored, file, _) = checkpoint.float_tensor(&param.key)?;
        if stored.shape != param.shape {
            let (path, key) = (file.path.clone(), param.key.clone());
            let (found, expected) = (stored.shape.clone(), param.shape.clone());
            return Err(Error::CheckpointShape { path, key, found, expected });
        }
        let has = |is: fn(&Visited) -> bool| param.visited().any(is);
        let problem = if has(|param| param.is_quantized) {
            // The quantised values' scale would not be that of the new ones.
            "cannot be loaded into a quantised parameter; load the checkpoint first and quantise afterwards"
        } else if has(|param| param.has_adapter) {
            "has a LoRA adapter, which would be added to the loaded values; load before it is added, or into the \
             materialised module"
        } else {
            continue;
        };
        return Err(Error::data(&param.key, problem));
    }
    let sources = params.iter().map(|param| TensorRead {
        key: &param.key,
        params: param.visited().map(|own| (own.id, own.is_transposed())).collect(),
    });
    let sources: Vec<TensorRead> = sources.collect();
    checkpoint.check_size(sources.iter().map(|source| source.key))?;
    let next = AtomicUsize::new(0);
    let read = || -> Result<Vec<(ParamId, TensorData)>> {
        let mut values = Vec::new();
        while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
            source.read(checkpoint, &mut values)?;
        }
        Ok(values)
    };
    // Threads read tensors, and turn the weights of linear layers.
    let workers = available_parallelism().map_or(1, NonZero::get).min(MAX_READERS);
    let values = thread::scope(|scope| {
        // One that does not start is done without.
        let other = |_| thread::Builder::new().spawn_scoped(scope, read).ok();
        let others: Vec<_> = (1..workers).filter_map(other).collect();
        let own = read();
        let others =
            others.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        [own].into_iter().chain(others).collect::<Result<Vec<_>>>()
    })?;
    // A clone shares its tensors, and the caller's module stays as it was if a later file fails.
    Ok(module.clone().map(&mut Replace { values: values.into_iter().flatten().collect() }))
}

/// The most threads that read tensors: more would wait for memory. Not tuned.
const MAX_READERS: usize = 4;

/// A tensor of a checkpoint, and what to make of it.
struct TensorRead<'a> {
    key: &'a str,
    /// The parameters in it, one below the other, and whether they are transposed.
    params: Vec<(Option<ParamId>, bool)>,
}

impl TensorRead<'_> {
    fn read(&self, checkpoint: &Checkpoint, read: &mut Vec<(ParamId, TensorData)>) -> Result<()> {
        let mut shape = checkpoint.float_tensor(self.key)?.0.shape.clone();
        shape[0] /= self.params.len();
        let (mut values, dtype) = checkpoint.values(self.key)?;
        for &(id, is_transposed) in &self.params {
            let values = values.read(&shape, dtype, is_transposed)?;
            read.extend(id.map(|id| (id, values)));
        }
        Ok(())
    }
}

/// Replaces the values of parameters by id; parameters without values here, such as LoRA's, do not change.
struct Replace {
    values: HashMap<ParamId, TensorData>,
}

impl ModuleMapper for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(values) = self.values.remove(&param.id) else { return param };
        let (device, dtype) = (param.lazy_device(), dtype(&param));
        // The same id, to which an optimizer's state belongs.
        let id = param.id;
        param.transform_for_load(Tensor::from_data(values, (&device, dtype)), id)
    }
}
