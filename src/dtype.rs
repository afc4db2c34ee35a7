//! Casting a whole module to another float dtype.

use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};

/// Casts every float parameter of `module` to `dtype`, as `module.to(dtype)` does in PyTorch.
///
/// Parameters keep their ids, their device and whether they are trained. Lazy parameters are initialised,
/// quantised ones stay as they are, and one that several fields share becomes one leaf for each.
/// Whether a device can compute in a dtype is asked of [`Device::supports_dtype`].
///
/// ```
/// use burn::prelude::*;
/// use burn::tensor::{DType, FloatDType};
/// use burn_bert::{BertEmbeddingsConfig, cast_module};
///
/// let device = Device::default();
/// let module = BertEmbeddingsConfig::new().with_vocab_size(10).with_hidden_size(4).init(&device);
/// let module = cast_module(module, FloatDType::F64);
/// assert_eq!(module.word_embeddings.weight.val().dtype(), DType::F64);
/// ```
pub fn cast_module<M: Module>(module: M, dtype: FloatDType) -> M {
    module.map(&mut Cast { dtype })
}

/// Whether a parameter holds quantised values. Does not initialise it.
pub(crate) fn is_quantized<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    param.is_initialized() && matches!(param.base().dtype(), DType::QFloat(_))
}

struct Cast {
    dtype: FloatDType,
}

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let dtype = self.dtype;
        param.map(|tensor| {
            let require_grad = tensor.is_require_grad();
            match tensor.dtype().is_float() {
                true => tensor.cast(dtype).detach().set_require_grad(require_grad),
                false => tensor, // quantised
            }
        })
    }
}
