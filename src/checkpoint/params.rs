//! Parameters and the keys that hold their values.

use super::Checkpoint;
use super::formats::safetensors::{Tensors, WriteTensor, write_values};
use super::formats::{FLOATS, transposed};
use crate::error::{Error, Result};
use crate::layers::{LayerNorm, is_quantized};
use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::{DType, TensorData};
use std::collections::HashMap;
use std::path::Path;

pub(crate) struct StoredParam<'a> {
    pub(crate) key: String,
    /// Those that it holds, one below the other; none for a bias that the module does not have, stored as zeros and never read.
    ids: Vec<ParamId>,
    shape: Vec<usize>,
    /// A linear layer's weight: [in, out] in Burn, [out, in] in PyTorch.
    is_transposed: bool,
    is_quantized: bool,
    has_adapter: bool,
    /// The dtype of the values, and what writes them.
    // Functions, so that one tensor at a time is copied to the host while a model is written.
    values: Box<dyn Fn() -> (DType, WriteTensor<'a>) + 'a>,
    /// ε of the LayerNorm that the parameter is γ of.
    epsilon: Option<f64>,
}

impl<'a> StoredParam<'a> {
    fn new<const D: usize>(
        key: impl Into<String>,
        param: &'a Param<Tensor<D>>,
        to_host: impl Fn(Tensor<D>) -> TensorData + Copy + 'a,
    ) -> Self {
        Self {
            key: key.into(),
            ids: vec![param.id],
            shape: param.lazy_shape().to_vec(),
            is_transposed: false,
            is_quantized: is_quantized(param),
            has_adapter: param.adapter().is_some(),
            values: Box::new(move || {
                let values = param.val();
                (values.dtype(), Box::new(move |out| write_values(to_host(values), out)))
            }),
            epsilon: None,
        }
    }

    pub(crate) fn table(key: impl Into<String>, weight: &'a Param<Tensor<2>>) -> Self {
        Self::new(key, weight, Tensor::into_data)
    }

    pub(crate) fn vector(key: impl Into<String>, vector: &'a Param<Tensor<1>>) -> Self {
        Self::new(key, vector, Tensor::into_data)
    }

    /// γ and β, under the two names given.
    pub(crate) fn norm([gamma, beta]: [String; 2], norm: &'a LayerNorm) -> [Self; 2] {
        let gamma = Self { epsilon: Some(norm.epsilon()), ..Self::vector(gamma, &norm.gamma) };
        let width = gamma.shape[0];
        [gamma, Self::bias(beta, norm.beta.as_ref(), width, &norm.gamma)]
    }

    pub(crate) fn linear(name: &str, linear: &'a Linear) -> [Self; 2] {
        Self::linears(name, &[linear])
    }

    /// Linear layers of one shape as one, the outputs of the first above those of the next.
    pub(crate) fn linears(name: &str, linears: &[&'a Linear]) -> [Self; 2] {
        let weights: Vec<_> = linears.iter().map(|linear| &linear.weight).collect();
        let (first, [inputs, outputs]) = (weights[0], weights[0].lazy_shape().dims());
        let outputs = linears.len() * outputs;
        let biases: Option<Vec<_>> = linears.iter().map(|linear| linear.bias.as_ref()).collect();
        let bias = format!("{name}.bias");
        let bias = match biases {
            Some(biases) => Self::stacked(bias, biases, vec![outputs]),
            // If one lacks it all do: a tensor has no part without values.
            None => Self::bias(bias, None, outputs, first),
        };
        [Self::stacked(format!("{name}.weight"), weights, vec![outputs, inputs]), bias]
    }

    /// Weights (D = 2) or biases (D = 1) of linear layers, one below the other.
    fn stacked<const D: usize>(key: String, params: Vec<&'a Param<Tensor<D>>>, shape: Vec<usize>) -> Self {
        Self {
            key,
            ids: params.iter().map(|param| param.id).collect(),
            shape,
            is_transposed: D == 2,
            is_quantized: params.iter().any(|param| is_quantized(param)),
            has_adapter: params.iter().any(|param| param.adapter().is_some()),
            values: Box::new(move || {
                let values: Vec<_> = params.iter().map(|param| param.val()).collect();
                let mut dtypes = values.iter().map(Tensor::dtype);
                // One that cannot be stored, such as a quantised one, is what the error names.
                let dtype = dtypes.find(|&dtype| stored_dtype(dtype).is_none()).unwrap_or(values[0].dtype());
                let write: WriteTensor = Box::new(move |out| {
                    let mut parts = values.into_iter().map(Tensor::into_data);
                    parts.try_for_each(|part| {
                        let part = if D == 2 { transposed(part) } else { part };
                        write_values(part.convert_dtype(dtype), out)
                    })
                });
                (dtype, write)
            }),
            epsilon: None,
        }
    }

    /// Whether it is of the module, and not a bias that it lacks.
    pub(crate) fn is_of_module(&self) -> bool {
        !self.ids.is_empty()
    }

    fn bias<const D: usize>(
        key: String,
        bias: Option<&'a Param<Tensor<1>>>,
        width: usize,
        beside: &'a Param<Tensor<D>>,
    ) -> Self {
        let Some(bias) = bias else {
            // In the dtype that the header states, which is that of the parameter beside it.
            let zeros = move |beside: Tensor<D>| {
                Tensor::<1>::zeros([width], (&beside.device(), beside.dtype())).into_data()
            };
            return Self { ids: Vec::new(), shape: vec![width], ..Self::new(key, beside, zeros) };
        };
        Self::vector(key, bias)
    }

    /// Whether the checkpoint has the key, but not with the parameter's shape.
    pub(crate) fn is_of_other_shape(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.tensor(&self.key).is_ok_and(|(stored, _)| stored.shape != self.shape)
    }
}

/// The module with the listed parameters' values replaced by those of a checkpoint, all of which are checked before any value
/// is read.
pub(crate) fn filled<M: Module>(module: &M, checkpoint: &Checkpoint, params: Vec<StoredParam>) -> Result<M> {
    // All of them are checked before gigabytes are read.
    let (mut names, mut slots) = (Vec::new(), Vec::new());
    for param in &params {
        // A bias that the module lacks: transformers' layers have one, of zeros.
        if !param.is_of_module() {
            continue;
        }
        let (stored, file) = checkpoint.float_tensor(&param.key)?;
        let key = param.key.clone();
        if stored.shape != param.shape {
            let (path, found) = (file.path.clone(), stored.shape.clone());
            return Err(Error::CheckpointShape { path, key, found, expected: param.shape.clone() });
        }
        // The quantised values' scale would not be that of the new ones.
        if param.is_quantized {
            let problem = "cannot be loaded into a quantised parameter; load the checkpoint first and quantise afterwards";
            return Err(Error::data(key, problem));
        }
        if param.has_adapter {
            let problem = "has a LoRA adapter, which would be added to the loaded values; load before it is added, or into \
                           the materialised module";
            return Err(Error::data(key, problem));
        }
        names.push(key);
        slots.push((&param.ids, param.is_transposed));
    }
    let values = checkpoint.read(&names)?;
    let values = slots.into_iter().zip(values).flat_map(|((ids, is_transposed), values)| {
        let parts = parts(values, ids.len()).into_iter();
        let parts = parts.map(move |values| if is_transposed { transposed(values) } else { values });
        ids.iter().copied().zip(parts)
    });
    Ok(module.clone().map(&mut Replace { values: values.collect() }))
}

/// A tensor cut along its first axis into parts of one size.
fn parts(values: TensorData, count: usize) -> Vec<TensorData> {
    if count == 1 {
        return vec![values];
    }
    let (dtype, mut shape) = (values.dtype(), values.shape().to_vec());
    shape[0] /= count;
    let bytes = values.as_bytes();
    let parts = bytes.chunks(bytes.len() / count);
    parts.map(|bytes| TensorData::from_bytes_vec(bytes.to_vec(), shape.clone(), dtype)).collect()
}

/// Refuses to store parameters that a model built from the stored config would not read back as they are.
pub(crate) fn check_stored(own: &[StoredParam], built: &[StoredParam]) -> Result<()> {
    for param in own {
        let invalid = |problem: String| Err(Error::data(&param.key, problem));
        // By key, as optional parameters shift the others in the list.
        let Some(expected) = built.iter().find(|built| built.key == param.key) else {
            return invalid("is no parameter of the model that the module's config builds".into());
        };
        if param.shape != expected.shape {
            let (found, expected) = (&param.shape, &expected.shape);
            return invalid(format!(
                "has shape {found:?}, but the model that the module's config builds has {expected:?}"
            ));
        }
        if let (Some(own), Some(stored)) = (param.epsilon, expected.epsilon)
            && own != stored
        {
            let says = "a config.json states one ε of all, that of the embeddings";
            return invalid(format!("belongs to a LayerNorm with ε {own:e} and not {stored:e}; {says}"));
        }
    }
    match built.iter().find(|built| own.iter().all(|param| param.key != built.key)) {
        Some(missing) => {
            let problem = "is missing, but the model that the module's config builds has it";
            Err(Error::data(&missing.key, problem))
        }
        None => Ok(()),
    }
}

pub(super) fn tensors<'a>(params: Vec<StoredParam<'a>>, path: &Path) -> Result<Tensors<'a>> {
    let mut tensors = Tensors::default();
    for StoredParam { key, shape, values, .. } in params {
        let (dtype, write) = values();
        let Some((stored, _)) = stored_dtype(dtype) else {
            return Err(Error::CheckpointDType {
                path: path.to_path_buf(),
                key,
                found: format!("{dtype:?}"),
            });
        };
        tensors.push(key, stored, shape, write);
    }
    Ok(tensors)
}

/// Replaces the values of parameters by id; parameters without values here, such as LoRA's, do not change.
struct Replace {
    values: HashMap<ParamId, TensorData>,
}

impl ModuleMapper for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(values) = self.values.remove(&param.id) else { return param };
        let device = param.lazy_device();
        // A lazy parameter has no dtype yet, and asking for one would initialise it.
        let dtype =
            if param.is_initialized() { param.base().dtype() } else { device.settings().float_dtype.into() };
        // The same id, to which an optimizer's state belongs.
        let id = param.id;
        param.transform_for_load(Tensor::from_data(values, (&device, dtype)), id)
    }
}

/// PyTorch's name for a dtype that weights can have.
pub(crate) fn torch_name(dtype: DType) -> Option<&'static str> {
    stored_dtype(dtype).map(|(_, name)| name)
}

fn stored_dtype(dtype: DType) -> Option<(safetensors::Dtype, &'static str)> {
    // Flex32 is f32 in memory.
    let dtype = if dtype == DType::Flex32 { DType::F32 } else { dtype };
    FLOATS.into_iter().find(|(_, own, _)| *own == dtype).map(|(stored, _, name)| (stored, name))
}
