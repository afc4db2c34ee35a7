//! Parameters and the keys that hold their values.

use super::files::Checkpoint;
use super::formats::entry::StoredDType;
use super::formats::values::transposed;
use super::write::{Payload, Tensors};
use crate::embeddings::{LayerNorm, is_quantized};
use crate::error::{Error, Result};
use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::{DType, TensorData};
use std::collections::HashMap;
use std::path::Path;

/// A parameter of a module and the key that it is stored under.
pub(crate) struct StoredParam<'a> {
    pub(crate) key: String,
    param: Source<'a>,
    /// ε of the LayerNorm that the parameter is γ of.
    epsilon: Option<f64>,
}

enum Source<'a> {
    Vector(&'a Param<Tensor<1>>),
    Table(&'a Param<Tensor<2>>),
    /// A linear layer's weight: [in, out] in Burn, [out, in] in PyTorch.
    Linear(&'a Param<Tensor<2>>),
    /// A bias of this length that the module does not have: stored as zeros and never read.
    NoBias(usize, Device),
}

impl<'a> StoredParam<'a> {
    pub(crate) fn table(key: impl Into<String>, weight: &'a Param<Tensor<2>>) -> Self {
        Self { key: key.into(), param: Source::Table(weight), epsilon: None }
    }

    pub(crate) fn vector(key: impl Into<String>, vector: &'a Param<Tensor<1>>) -> Self {
        Self { key: key.into(), param: Source::Vector(vector), epsilon: None }
    }

    /// γ and β, under the two names given.
    pub(crate) fn norm([gamma, beta]: [String; 2], norm: &'a LayerNorm) -> [Self; 2] {
        let width = norm.gamma.lazy_shape()[0];
        let gamma = Self { epsilon: Some(norm.epsilon()), ..Self::vector(gamma, &norm.gamma) };
        [gamma, Self::bias(beta, norm.beta.as_ref(), width, &norm.gamma)]
    }

    /// Weight and bias of a linear layer called `name`.
    pub(crate) fn linear(name: &str, linear: &'a Linear) -> [Self; 2] {
        let [_, outputs] = linear.weight.lazy_shape().dims();
        [
            Self { key: format!("{name}.weight"), param: Source::Linear(&linear.weight), epsilon: None },
            Self::bias(format!("{name}.bias"), linear.bias.as_ref(), outputs, &linear.weight),
        ]
    }

    fn bias<const D: usize>(
        key: String,
        bias: Option<&'a Param<Tensor<1>>>,
        width: usize,
        beside: &Param<Tensor<D>>,
    ) -> Self {
        match bias {
            Some(bias) => Self::vector(key, bias),
            None => Self { key, param: Source::NoBias(width, beside.lazy_device()), epsilon: None },
        }
    }

    /// The shape in a file.
    fn shape(&self) -> Vec<usize> {
        match &self.param {
            Source::Vector(param) => param.lazy_shape().to_vec(),
            Source::Table(param) => param.lazy_shape().to_vec(),
            Source::Linear(param) => param.lazy_shape().iter().rev().copied().collect(),
            Source::NoBias(width, _) => vec![*width],
        }
    }

    fn id(&self) -> Option<ParamId> {
        match &self.param {
            Source::Vector(param) => Some(param.id),
            Source::Table(param) | Source::Linear(param) => Some(param.id),
            Source::NoBias(..) => None,
        }
    }

    fn is_quantized(&self) -> bool {
        match &self.param {
            Source::Vector(param) => is_quantized(param),
            Source::Table(param) | Source::Linear(param) => is_quantized(param),
            Source::NoBias(..) => false,
        }
    }

    fn has_adapter(&self) -> bool {
        match &self.param {
            Source::Vector(param) => param.adapter().is_some(),
            Source::Table(param) | Source::Linear(param) => param.adapter().is_some(),
            Source::NoBias(..) => false,
        }
    }

    /// Dtype and values; a linear weight is transposed when it is written.
    fn payload(&self) -> (DType, Payload) {
        match &self.param {
            Source::Vector(param) => whole(param.val()),
            Source::Table(param) => whole(param.val().flatten(0, 1)),
            Source::Linear(param) => {
                let weight = param.val();
                (weight.dtype(), Payload::Transposed(Box::new(weight)))
            }
            Source::NoBias(width, device) => whole(Tensor::zeros([*width], device)),
        }
    }
}

fn whole(values: Tensor<1>) -> (DType, Payload) {
    (values.dtype(), Payload::Values(Box::new(values)))
}

/// The module with the listed parameters' values replaced by those of a checkpoint.
///
/// Parameters keep their ids, device, dtype and whether they are trained. Keys, dtypes and shapes are checked
/// before any value is read, and so is that no parameter is quantised.
pub(crate) fn filled<M: Module>(
    module: &M,
    mut checkpoint: Checkpoint,
    params: Vec<StoredParam>,
) -> Result<M> {
    let (mut names, mut slots) = (Vec::new(), Vec::new());
    for param in &params {
        let Some(id) = param.id() else { continue };
        let (entry, path) = checkpoint.entry(&param.key)?;
        let key = param.key.clone();
        if let StoredDType::Other(found) = entry.dtype {
            return Err(Error::CheckpointDType { path, key, found });
        }
        let expected = param.shape();
        if entry.shape != expected {
            return Err(Error::CheckpointShape { path, key, found: entry.shape, expected });
        }
        if param.is_quantized() {
            let problem = "cannot be loaded into a quantised parameter; load the checkpoint first and quantise afterwards";
            return Err(Error::data(key, problem));
        }
        if param.has_adapter() {
            return Err(Error::Data {
                what: key,
                problem: "has a LoRA adapter, which would be added to the loaded values; load before it is added, or \
                          into the materialised module"
                    .into(),
            });
        }
        names.push(key);
        slots.push((id, matches!(param.param, Source::Linear(_))));
    }
    let values = checkpoint.read(&names)?;
    let values = slots
        .into_iter()
        .zip(values)
        .map(|((id, is_linear), values)| (id, if is_linear { transposed(values) } else { values }));
    Ok(module.clone().map(&mut Replace { values: values.collect() }))
}

/// Refuses to store parameters that a model built from the stored config would not read back as they are.
pub(crate) fn check_stored(own: &[StoredParam], built: &[StoredParam]) -> Result<()> {
    let problem = |key: &str, problem: String| Err(Error::Data { what: key.into(), problem });
    for param in own {
        let Some(expected) = built.iter().find(|built| built.key == param.key) else {
            return problem(
                &param.key,
                "is no parameter of the model that the module's config builds".into(),
            );
        };
        if param.shape() != expected.shape() {
            let (found, expected) = (param.shape(), expected.shape());
            return problem(
                &param.key,
                format!(
                    "has shape {found:?}, but the model that the module's config builds has {expected:?}"
                ),
            );
        }
        if let (Some(own), Some(stored)) = (param.epsilon, expected.epsilon)
            && own != stored
        {
            let says = "a config.json states one ε of all, that of the embeddings";
            return problem(
                &param.key,
                format!("belongs to a LayerNorm with ε {own:e} and not {stored:e}; {says}"),
            );
        }
    }
    match built.iter().find(|built| own.iter().all(|param| param.key != built.key)) {
        Some(missing) => {
            problem(&missing.key, "is missing, but the model that the module's config builds has it".into())
        }
        None => Ok(()),
    }
}

/// The parameters as tensors of the file `path`.
pub(crate) fn tensors(params: Vec<StoredParam>, path: &Path) -> Result<Tensors> {
    let mut tensors = Tensors::default();
    for param in params {
        let (dtype, payload) = param.payload();
        let stored = stored_dtype(dtype).ok_or_else(|| Error::CheckpointDType {
            path: path.to_path_buf(),
            key: param.key.clone(),
            found: format!("{dtype:?}"),
        })?;
        tensors.push(&param.key, stored, param.shape(), payload);
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
        let dtype =
            if param.is_initialized() { param.base().dtype() } else { device.settings().float_dtype.into() };
        let id = param.id;
        param.transform_for_load(Tensor::from_data(values, (&device, dtype)), id)
    }
}

/// PyTorch's name for a dtype that weights can have.
pub(crate) fn torch_name(dtype: DType) -> Option<&'static str> {
    Some(match stored_dtype(dtype)? {
        safetensors::Dtype::F64 => "float64",
        safetensors::Dtype::F16 => "float16",
        safetensors::Dtype::BF16 => "bfloat16",
        _ => "float32",
    })
}

fn stored_dtype(dtype: DType) -> Option<safetensors::Dtype> {
    match dtype {
        DType::F64 => Some(safetensors::Dtype::F64),
        DType::F32 | DType::Flex32 => Some(safetensors::Dtype::F32),
        DType::F16 => Some(safetensors::Dtype::F16),
        DType::BF16 => Some(safetensors::Dtype::BF16),
        _ => None,
    }
}
