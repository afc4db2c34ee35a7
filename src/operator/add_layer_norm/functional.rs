//! The operator on tensors.

use super::input::AddLayerNorm;
use super::ops::AddLayerNormOps;
use super::reference;
use crate::operator::device::is_listed;
use crate::operator::dropout::Dropout;
use crate::operator::embed_layer_norm::functional::Norm;
use burn::backend::Dispatch;
use burn::nn::DropoutConfig;
use burn::prelude::*;

/// `LayerNorm(residual + Dropout(x + bias))` in one pass, with a backward of its own: the end of a transformer
/// block.
///
/// The arithmetic, and its gradient, are those of [`AddLayerNormOps`]. Dropout is active as Burn's is: on an
/// autodiff device, with `dropout` > 0. Its mask comes from the device's seed stream; it is computed again in the
/// backward and never stored.
///
/// Source: `BertSelfOutput` and `BertOutput` of transformers 5.23, without their `dense`.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::functional::{Norm, add_layer_norm};
///
/// let device = Device::default();
/// let x = Tensor::from_floats([[1.0, 2.0]], &device);
/// let bias = Tensor::from_floats([0.0, 1.0], &device);
/// let residual = Tensor::from_floats([[1.0, 1.0]], &device);
/// let norm = Norm { gamma: Tensor::ones([2], &device), beta: None, epsilon: 1e-12 };
/// let y = add_layer_norm(x, Some(bias), residual, norm, 0.0); // LayerNorm of [2, 4]
/// let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
/// assert_eq!(y, [-1.0, 1.0]);
/// ```
///
/// # Shapes
///
/// - `x`, `residual`: [N, H]
/// - `bias`: `[H]`; `None` is zero
/// - output: [N, H]
///
/// # Devices
///
/// A remote device runs what its worker's device does.
///
/// Flex has a kernel. NdArray and the CubeCL devices run the reference with a backward that saves as little; every
/// other device runs it with Burn's backward. On devices that are not named here, dropout's mask is
/// Burn's own. [`on_reference_path`](crate::functional::on_reference_path) runs the reference everywhere.
///
/// # Panics
///
/// If shapes do not fit, or `dropout` is not in [0, 1).
pub fn add_layer_norm(
    x: Tensor<2>,
    bias: Option<Tensor<1>>,
    residual: Tensor<2>,
    norm: Norm,
    dropout: f64,
) -> Tensor<2> {
    let Norm { gamma, beta, epsilon } = norm;
    let [x, residual] = [x, residual].map(Tensor::dequantize);
    let gamma = gamma.dequantize();
    let [bias, beta] =
        [bias, beta].map(|vector| vector.map_or_else(|| Tensor::zeros_like(&gamma), Tensor::dequantize));
    let [_, hidden] = x.dims();
    assert_eq!(residual.dims(), x.dims(), "residual must have the shape of x");
    for (name, vector) in [("bias", &bias), ("gamma", &gamma), ("beta", &beta)] {
        assert_eq!(vector.dims(), [hidden], "{name} must be as long as a row of x");
    }
    let summands = [x.into_dispatch(), bias.into_dispatch(), residual.into_dispatch()];
    let input = AddLayerNorm::new(summands, gamma.into_dispatch(), beta.into_dispatch(), epsilon);
    let input = match Dropout::choose(dropout, input.operands()) {
        Some(dropout) => AddLayerNorm { dropout, ..input },
        None => {
            let x = Tensor::<2>::from_dispatch(input.x) + Tensor::<1>::from_dispatch(input.bias).unsqueeze();
            let bias = Tensor::<1>::zeros([hidden], (&x.device(), x.dtype())).into_dispatch();
            AddLayerNorm { x: DropoutConfig::new(dropout).init().forward(x).into_dispatch(), bias, ..input }
        }
    };
    Tensor::from_dispatch(if is_listed(&input.x.kind) {
        Dispatch::add_layer_norm(input)
    } else {
        reference::with_statistics::<Dispatch>(input).0
    })
}
