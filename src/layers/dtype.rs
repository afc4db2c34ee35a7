use crate::error::{Error, Result};
use burn::module::{ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::quantization::{QuantScheme, QuantValue, ScaleDtype};
use burn::tensor::{DType, FloatDType};
use burn_fused::prepared;

/// Whether a parameter holds quantised values. Does not initialise it.
pub(crate) fn is_quantized<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    param.is_initialized() && matches!(param.base().dtype(), DType::QFloat(_))
}

/// Casts every float parameter of `module` to `dtype`, as `module.to(dtype)` does in PyTorch.
///
/// Parameters keep their ids, their device and whether they are trained. Lazy ones are initialised, quantised ones stay,
/// and one that several fields share becomes one leaf for each. Returns [`Error::Data`] if a parameter's device does not
/// compute in `dtype` ([`Device::supports_dtype`]), as WebGPU does not in bf16.
///
/// ```
/// use burn::prelude::*;
/// use burn::tensor::{DType, FloatDType};
///
/// let linear = burn::nn::LinearConfig::new(10, 4).init(&Device::default());
/// let linear = burn_bert::cast_module(linear, FloatDType::F64)?;
/// assert_eq!(linear.weight.val().dtype(), DType::F64);
/// # Ok::<(), burn_bert::Error>(())
/// ```
pub fn cast_module<M: Module>(module: M, dtype: FloatDType) -> Result<M> {
    let mut cast = Cast { dtype, refused_by: None };
    let module = module.map(&mut cast);
    let problem = format!("does not compute in {dtype:?}: keep f32 there");
    cast.refused_by.map_or(Ok(module), |device| Err(Error::data(format!("{device:?}"), problem)))
}

struct Cast {
    dtype: FloatDType,
    refused_by: Option<Device>,
}

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let dtype = self.dtype;
        param.map(|tensor| {
            if !tensor.dtype().is_float() {
                return tensor; // quantised
            }
            let (device, require_grad) = (tensor.device(), tensor.is_require_grad());
            // A mapper cannot fail: the caller reports it.
            if !device.supports_dtype(dtype) {
                self.refused_by = Some(device);
                return tensor;
            }
            // A parameter is a leaf of autodiff; the cast would make it a result.
            tensor.cast(dtype).detach().set_require_grad(require_grad)
        })
    }
}

/// Quantises the weights of all linear layers of `module` to int8 for inference, each output with a scale for each block of
/// inputs: 192, 128 or 64, or else the largest number of 16 to 255 that divides them. Weights without such a number stay as they are,
/// and, on devices that store four values in a word, those whose number of outputs 4 does not divide. So do weights with a NaN or an
/// infinite value, which int8 does not have: what is computed with them is not finite either, and inference reports that.
///
/// A layer is then multiplied in integers on Flex, its input quantised row by row as it comes; on other devices, or under autodiff,
/// Burn dequantises the weight for each call. Everything else, such as embeddings, attention and LayerNorm, is computed as before. The
/// quantised weights get no gradient, [`save_pretrained`](crate::model::PretrainedModel::save_pretrained) refuses them, and Burn's records
/// hold them: a record is loaded into a module that was quantised the same way. The weights are [prepared](prepare_linear_layers); those of a
/// record are when the loaded module is prepared.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::{BertEmbeddingsInput, quantize_linear_layers};
/// use burn_bert::model::BertModelConfig;
///
/// let device = Device::default();
/// let model = BertModelConfig::bert_base_uncased().with_num_hidden_layers(1).init(&device);
/// let input = BertEmbeddingsInput::from_rows(&[[1, 5, 2]], &device)?;
/// let hidden = quantize_linear_layers(model).forward(&input, None).last_hidden_state;
/// # Ok::<(), burn_bert::Error>(())
/// ```
pub fn quantize_linear_layers<M: Module>(module: M) -> M {
    module.map(&mut PrepareLinear { quantizes: true, modules: Vec::new() })
}

/// Keeps the weights of all linear layers of `module` as matmuls on Flex read them, for inference: in f32 and bf16 as in 8 bits, for each
/// layer as [`prepared`](burn_fused::prepared) says. A `Pipeline` does it by itself.
///
/// Results have the same bits, and memory is that of the weights, if no clone of the module holds them too. What reads a weight in
/// another way, such as saving, training, autocast or another device, lays its values out as before; inference is then as fast as
/// without, until the model is prepared again.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::{BertEmbeddingsInput, prepare_linear_layers};
/// use burn_bert::model::BertModelConfig;
///
/// let device = Device::default();
/// let model = BertModelConfig::bert_base_uncased().with_num_hidden_layers(1).init(&device);
/// let input = BertEmbeddingsInput::from_rows(&[[1, 5, 2]], &device)?;
/// let hidden = prepare_linear_layers(model).forward(&input, None).last_hidden_state;
/// # Ok::<(), burn_bert::Error>(())
/// ```
pub fn prepare_linear_layers<M: Module>(module: M) -> M {
    module.map(&mut PrepareLinear { quantizes: false, modules: Vec::new() })
}

struct PrepareLinear {
    /// Whether weights in floats are quantised first.
    quantizes: bool,
    /// Kinds of the modules that enclose a parameter.
    modules: Vec<String>,
}

impl ModuleMapper for PrepareLinear {
    fn enter_module(&mut self, _name: &str, container_type: &str) {
        self.modules.push(container_type.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.modules.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        // D is 2 where this is called.
        let prepared = |weight: Tensor<D>| {
            Tensor::from_dispatch(prepared(Tensor::from_dispatch(weight.into_dispatch())).into_dispatch())
        };
        let is_weight = D == 2 && self.modules.last().is_some_and(|kind| kind == "Struct:Linear");
        if !is_weight {
            return param;
        }
        if !self.quantizes || is_quantized(&param) {
            return param.map(prepared);
        }
        let [inputs, outputs] = param.lazy_shape().dims();
        let scheme = QuantScheme::default()
            .with_value(QuantValue::Q8S)
            .with_store(param.lazy_device().settings().quantization.scheme.store);
        // Integers are multiplied 64 rows at a time where the CPU has matrix instructions.
        let mut blocks = [192, 128, 64].into_iter().chain((16..=u8::MAX).rev());
        let block = blocks.find(|&block| inputs.is_multiple_of(block.into()));
        match block {
            // A word may have several outputs.
            Some(block) if outputs.is_multiple_of(scheme.num_quants()) => {
                let scheme = scheme.per_block([block, 1], ScaleDtype::F32);
                param.map(|weight| {
                    // Integers have no NaN and no infinity: what is computed would no longer show that it is damaged.
                    let is_finite = weight.clone().is_finite().all().into_scalar::<bool>();
                    if is_finite { prepared(weight.detach().quantize_dynamic(&scheme)) } else { weight }
                })
            }
            _ => param,
        }
    }
}

/// The dtype that a parameter is read in. Does not initialise it.
pub(crate) fn dtype<const D: usize>(param: &Param<Tensor<D>>) -> DType {
    // What is not initialised will be drawn, and what is quantised dequantises, to the device's own dtype.
    if !param.is_initialized() || is_quantized(param) {
        return param.lazy_device().settings().float_dtype.into();
    }
    param.base().dtype()
}
