//! Parameters and the keys that hold their values.

use super::Checkpoint;
use super::formats::safetensors::{Tensors, WriteTensor, write_values};
use super::formats::{FLOATS, transposed};
use crate::error::{Error, Result};
use crate::layers::{LayerNorm, dtype, is_quantized};
use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::{DType, TensorData};
use std::collections::{BTreeMap, HashMap};
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
    /// A table or a vector.
    pub(crate) fn new<const D: usize>(key: impl Into<String>, param: &'a Param<Tensor<D>>) -> Self {
        Self::stacked(key.into(), vec![param], false)
    }

    /// γ and β, under the two names given.
    pub(crate) fn norm([gamma, beta]: [String; 2], norm: &'a LayerNorm) -> [Self; 2] {
        let gamma = Self { epsilon: Some(norm.epsilon()), ..Self::new(gamma, &norm.gamma) };
        let beta = match &norm.beta {
            Some(own) => Self::new(beta, own),
            None => Self::zeros(beta, gamma.shape[0], &norm.gamma),
        };
        [gamma, beta]
    }

    pub(crate) fn linear(name: &str, linear: &'a Linear) -> [Self; 2] {
        Self::linears(name, &[linear])
    }

    /// Linear layers of one shape as one, the outputs of the first above those of the next.
    pub(crate) fn linears(name: &str, linears: &[&'a Linear]) -> [Self; 2] {
        let weights = linears.iter().map(|linear| &linear.weight).collect();
        let weight = Self::stacked(format!("{name}.weight"), weights, true);
        let biases: Option<Vec<_>> = linears.iter().map(|linear| linear.bias.as_ref()).collect();
        let bias = format!("{name}.bias");
        let bias = match biases {
            Some(biases) => Self::stacked(bias, biases, false),
            // If one lacks it all do: a tensor has no part without values.
            None => Self::zeros(bias, weight.shape[0], &linears[0].weight),
        };
        [weight, bias]
    }

    /// Parameters of one shape, one below the other.
    fn stacked<const D: usize>(key: String, params: Vec<&'a Param<Tensor<D>>>, is_transposed: bool) -> Self {
        let mut shape = params[0].lazy_shape().to_vec();
        if is_transposed {
            shape.reverse();
        }
        shape[0] *= params.len();
        Self {
            key,
            ids: params.iter().map(|param| param.id).collect(),
            shape,
            is_transposed,
            is_quantized: params.iter().any(|param| is_quantized(param)),
            has_adapter: params.iter().any(|param| param.adapter().is_some()),
            values: Box::new(move || {
                let values: Vec<_> = params.iter().map(|param| param.val()).collect();
                let mut dtypes = values.iter().map(Tensor::dtype);
                // One that cannot be stored, such as a quantised one, is what the error names.
                let dtype = dtypes.find(|&dtype| stored_dtype(dtype).is_none()).unwrap_or(values[0].dtype());
                let write: WriteTensor = Box::new(move |out| {
                    values.into_iter().map(Tensor::into_data).try_for_each(|part| {
                        let part = if is_transposed { transposed(part) } else { part };
                        write_values(part.convert_dtype(dtype), out)
                    })
                });
                (dtype, write)
            }),
            epsilon: None,
        }
    }

    /// A bias that the module lacks, in the dtype of the parameter `beside` it.
    fn zeros<const D: usize>(key: String, width: usize, beside: &'a Param<Tensor<D>>) -> Self {
        let values = move || {
            let (device, dtype) = (beside.lazy_device(), beside.val().dtype());
            let zeros = move || Tensor::<1>::zeros([width], (&device, dtype)).into_data();
            let write: WriteTensor = Box::new(move |out| write_values(zeros(), out));
            (dtype, write)
        };
        let beside = Self::stacked(key, vec![beside], false);
        Self { ids: Vec::new(), shape: vec![width], values: Box::new(values), ..beside }
    }

    /// Whether it is of the module, and not a bias that it lacks.
    pub(crate) fn is_of_module(&self) -> bool {
        !self.ids.is_empty()
    }

    pub(crate) fn is_of_shape(&self, shape: &[usize]) -> bool {
        self.shape == shape
    }

    /// The dtype in a file, and what writes it; [`Error::CheckpointDType`] if a file cannot have the parameter's.
    pub(crate) fn writer(&self, path: &Path) -> Result<(safetensors::Dtype, WriteTensor<'a>)> {
        let (dtype, write) = (self.values)();
        let Some((stored, _)) = stored_dtype(dtype) else {
            let (path, key, found) = (path.to_path_buf(), self.key.clone(), format!("{dtype:?}"));
            return Err(Error::CheckpointDType { path, key, found });
        };
        Ok((stored, write))
    }

    /// Whether the checkpoint has the key, but not with the parameter's shape.
    pub(crate) fn is_of_other_shape(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.tensor(&self.key).is_ok_and(|(stored, _)| stored.shape != self.shape)
    }
}

/// The module with the listed parameters' values replaced by those of a checkpoint, all of which are checked before any value
/// is read.
pub(crate) fn filled<M: Module>(module: &M, checkpoint: &Checkpoint, params: Vec<StoredParam>) -> Result<M> {
    // A bias that the module lacks is not read: transformers' layers have one, of zeros.
    let params: Vec<_> = params.into_iter().filter(StoredParam::is_of_module).collect();
    for param in &params {
        let (stored, file, _) = checkpoint.float_tensor(&param.key)?;
        if stored.shape != param.shape {
            let (path, key) = (file.path.clone(), param.key.clone());
            let (found, expected) = (stored.shape.clone(), param.shape.clone());
            return Err(Error::CheckpointShape { path, key, found, expected });
        }
        let problem = match param {
            // The quantised values' scale would not be that of the new ones.
            StoredParam { is_quantized: true, .. } => {
                "cannot be loaded into a quantised parameter; load the checkpoint first and quantise afterwards"
            }
            StoredParam { has_adapter: true, .. } => {
                "has a LoRA adapter, which would be added to the loaded values; load before it is added, or into the \
                 materialised module"
            }
            _ => continue,
        };
        return Err(Error::data(&param.key, problem));
    }
    let keys: Vec<&str> = params.iter().map(|param| param.key.as_str()).collect();
    let mut values = HashMap::new();
    for (param, stacked) in params.iter().zip(checkpoint.read(&keys)?) {
        for (id, part) in param.ids.iter().zip(parts(stacked, param.ids.len())) {
            values.insert(*id, if param.is_transposed { transposed(part) } else { part });
        }
    }
    // A clone shares its tensors, and the caller's module stays as it was if a later file fails.
    Ok(module.clone().map(&mut Replace { values }))
}

/// A tensor cut along its first axis into parts of one size.
fn parts(values: TensorData, count: usize) -> Vec<TensorData> {
    if count == 1 {
        return vec![values];
    }
    let (dtype, mut shape) = (values.dtype(), values.shape().to_vec());
    shape[0] /= count;
    let bytes = values.as_bytes();
    // Row by row in memory, so that a part is one run of bytes.
    let parts = bytes.chunks(bytes.len() / count);
    parts.map(|bytes| TensorData::from_bytes_vec(bytes.to_vec(), shape.clone(), dtype)).collect()
}

/// Refuses to store parameters that a model built from the stored config would not read back as they are.
pub(crate) fn check_stored(own: &[StoredParam], built: &[StoredParam]) -> Result<()> {
    for param in own {
        let invalid = |problem: String| Err(Error::data(&param.key, problem));
        // By key, as optional parameters shift the others in the list.
        let Some(expected) = built.iter().find(|built| built.key == param.key) else {
            return invalid("is not a parameter of the model that the module's config builds".into());
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
    let missing = built.iter().find(|built| own.iter().all(|param| param.key != built.key));
    let problem = "is missing, but the model that the module's config builds has it";
    missing.map_or(Ok(()), |missing| Err(Error::data(&missing.key, problem)))
}

pub(super) fn tensors<'a>(params: Vec<StoredParam<'a>>, path: &Path) -> Result<Tensors<'a>> {
    let tensors = params.into_iter().map(|param| {
        let (stored, write) = param.writer(path)?;
        Ok((param.key, stored, param.shape, write))
    });
    Ok(Tensors { tensors: tensors.collect::<Result<_>>()?, metadata: BTreeMap::new() })
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

/// The dtype in files, and PyTorch's name, of one that weights can have.
pub(crate) fn stored_dtype(dtype: DType) -> Option<(safetensors::Dtype, &'static str)> {
    // Flex32 is f32 in memory.
    let dtype = if dtype == DType::Flex32 { DType::F32 } else { dtype };
    FLOATS.into_iter().find(|(_, own, _)| *own == dtype).map(|(stored, _, name)| (stored, name))
}
