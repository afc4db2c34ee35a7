//! Dropout, and the sum with a residual, for what no other operator drops or adds in its own pass.

use crate::engine::inputs::{OperatorInputs, inputs};
use crate::engine::operator::{Gradients, Operator, Output, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::{Dropout, DropoutOps};
use crate::numerics::precision::{narrow, wide};
use burn::backend::{Dispatch, TensorMetadata};
use burn::prelude::*;

inputs! {
    /// The inputs of [`add_drop_out`]; without a residual, of [`drop_out`].
    DropOut of DropOutOp, operands: 2, statistics: 0 {
        nested { dropout: Dropout, }
        floats { x, }
        optional { residual, }
    }
}

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
    compute(x, None, prob)
}

/// `residual + mask · x` in one pass, with the mask of [`drop_out`]: the end of a block whose LayerNorm comes first.
///
/// The sum is computed in f32 for f16 and bf16, otherwise in the dtype of x, and rounded to it once.
///
/// # Panics
///
/// If the shapes differ, or `prob` is not in [0, 1).
pub fn add_drop_out(x: Tensor<2>, residual: Tensor<2>, prob: f64) -> Tensor<2> {
    let [x, residual] = [x, residual].map(Tensor::dequantize);
    assert_eq!(residual.dims(), x.dims(), "residual must have the shape of x");
    compute(x, Some(residual), prob)
}

fn compute(x: Tensor<2>, residual: Option<Tensor<2>>, prob: f64) -> Tensor<2> {
    let residual = residual.map(|residual| residual.into_dispatch());
    let mut input = DropOut { dropout: Dropout(None), x: x.into_dispatch(), residual };
    input.dropout = Dropout::choose(prob, DropOutOp::operands::<Dispatch>(&input));
    Tensor::from_dispatch(run::<DropOutOp, _>(input))
}

impl Operator for DropOutOp {
    fn reference<B: DropoutOps>(inputs: DropOut<B>) -> Output<Self, B> {
        let DropOut { dropout, x, residual } = inputs;
        let y = match (residual, &dropout.0) {
            (None, _) => dropout.apply(x),
            (Some(residual), None) => B::float_add(x, residual),
            (Some(residual), Some(_)) => {
                // Rounded once.
                let dtype = x.dtype();
                let sum = B::float_add(dropout.apply(wide::<B>(x)), wide::<B>(residual));
                narrow::<B>(sum, dtype)
            }
        };
        (y, [])
    }

    fn reference_backward<B: DropoutOps>(inputs: DropOut<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        let Upstream { grad, needs: [x, residual], .. } = upstream;
        let residual = inputs.residual.filter(|_| residual);
        let residual = residual.map(|residual| narrow::<B>(grad.clone(), residual.dtype()));
        vec![x.then(|| inputs.dropout.apply(grad)), residual]
    }
}

/// Flex, Burn's CPU backend: rows in parallel, in place where nobody else holds them.
#[cfg(feature = "flex")]
mod flex {
    use super::*;
    use crate::flex::mask::factors;
    use crate::flex::{HostKernels, Rows, Scalar, Wide, for_each, rows_per_task, simd_fn, slice};
    use crate::numerics::philox::Mask;
    use burn::backend::Flex;
    use burn::backend::ops::FloatTensorOps;
    use burn::backend::tensor::FloatTensor;

    impl HostKernels for DropOutOp {
        fn forward<T: Scalar>(input: DropOut<Flex>) -> Output<Self, Flex> {
            (dropped::<T>(input.dropout.mask(), input.x, input.residual), [])
        }

        fn backward<T: Scalar>(input: DropOut<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
            let Upstream { grad, needs: [x, residual], .. } = upstream;
            let residual = (residual && input.residual.is_some()).then(|| grad.clone());
            let x = x.then(|| match input.dropout.mask() {
                None => grad,
                mask => dropped::<T>(mask, grad, None),
            });
            vec![x, residual]
        }

        /// Tensors of the same shape with one value: no gradient reads any.
        fn saved(inputs: &DropOut<Flex>) -> DropOut<Flex> {
            let seen = |tensor: &FloatTensor<Flex>| {
                let value = Flex::float_zeros(Shape::new([1, 1]), &Default::default(), tensor.dtype().into());
                Flex::float_expand(value, tensor.shape())
            };
            let DropOut { dropout, x, residual } = inputs;
            DropOut { dropout: dropout.clone(), x: seen(x), residual: residual.as_ref().map(seen) }
        }
    }

    /// mask · x + residual.
    fn dropped<T: Scalar>(
        mask: Option<Mask>,
        x: FloatTensor<Flex>,
        residual: Option<FloatTensor<Flex>>,
    ) -> FloatTensor<Flex> {
        let ([_, columns], count) = (x.shape().dims(), x.shape().num_elements());
        let size = rows_per_task(columns) * columns;
        let residual = residual.map(|residual| residual.to_contiguous());
        let residual = residual.as_ref().map(|residual| slice::<T>(residual));
        let mut rows = Rows::new(x);
        for_each(count, rows.tasks::<T>(size).enumerate(), |(task, rows)| {
            let y = rows();
            let residual = residual.map(|residual| &residual[task * size..][..y.len()]);
            drop_rows(mask.as_ref(), task * size / columns, columns, residual, y);
        });
        rows.output
    }

    simd_fn! {
        /// Rows of x from row `first` on, in the place of y.
        fn drop_rows<S, T: Scalar>(
            simd,
            mask: Option<&'a Mask>,
            first: usize,
            columns: usize,
            residual: Option<&'a [T]>,
            y: &'a mut [T],
        ) {
            // Without a mask all are 1.
            let mut factor = vec![T::Wide::from_f64(1.0); columns];
            for (row, y) in y.chunks_exact_mut(columns).enumerate() {
                if let Some(mask) = mask {
                    factors(simd, mask, (first + row) as u64, 0, &mut factor);
                }
                let values = y.iter_mut().zip(&factor);
                match residual {
                    Some(residual) => for ((y, &factor), r) in values.zip(&residual[row * columns..]) {
                        *y = T::narrow(y.widen() * factor + r.widen());
                    }
                    None => values.for_each(|(y, &factor)| *y = T::narrow(y.widen() * factor)),
                }
            }
        }
    }
}
