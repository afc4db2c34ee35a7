//! Dropout alone, for what no other operator drops in its own pass.

use crate::engine::operator::{Gradients, Operator, Output, Upstream, inputs};
use crate::engine::run::run;
use crate::numerics::dropout::{Dropout, DropoutOps};
use burn::prelude::*;

inputs! {
    /// Those of [`drop_out`].
    DropOut of DropOutOp, operands: 1, statistics: 0 {
        nested { dropout: Dropout, }
        floats { x, }
    }
}

#[cfg(feature = "flex")]
impl crate::engine::operator::Kernels<burn::backend::Flex> for DropOutOp {}

#[cfg(feature = "_cubecl")]
impl crate::engine::operator::Kernels<burn_cubecl::CubeBackend> for DropOutOp {}

/// `mask · x`, with a mask that is 0 with the probability `prob` and 1 / (1 − `prob`) otherwise; x outside autodiff.
///
/// The backward draws the mask again, as that of [`embed_layer_norm`](crate::embed_layer_norm) does, and so it can be
/// [recomputed](crate::recomputed), which Burn's own dropout cannot.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::drop_out;
///
/// let device = Device::default().autodiff();
/// let x = Tensor::<2>::ones([8, 64], &device).require_grad();
/// let y = drop_out(x.clone(), 0.5);
/// let gradient = x.grad(&y.clone().sum().backward()).unwrap();
/// assert_eq!(gradient.into_data(), y.inner().into_data()); // of ones, the mask
/// ```
///
/// # Panics
///
/// If `prob` is not in [0, 1).
pub fn drop_out(x: Tensor<2>, prob: f64) -> Tensor<2> {
    if prob == 0.0 || x.dims().contains(&0) {
        return x;
    }
    let mut input = DropOut { dropout: Dropout(None), x: x.into_dispatch() };
    input.dropout = Dropout::choose(prob, vec![Some(&input.x)]);
    Tensor::from_dispatch(run::<DropOutOp, _>(input))
}

impl Operator for DropOutOp {
    fn reference<B: DropoutOps>(inputs: DropOut<B>) -> Output<Self, B> {
        (inputs.dropout.apply(inputs.x), [])
    }

    fn reference_backward<B: DropoutOps>(inputs: DropOut<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        vec![Some(inputs.dropout.apply(upstream.grad))]
    }
}
