//! Rows of a table by their ids, and the scatter of their gradients.

use super::slice;
use crate::engine::inputs::inputs;
use crate::engine::operator::{Gradients, Operator, Output, Spec, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::DropoutOps;
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::prelude::*;
use burn::tensor::{DType, IntDType};

inputs! {
    /// A table, [V, H], and ids, [B, S].
    Lookup of LookupOp, operands: 1, statistics: 0 {
        floats { table, }
        ints { ids, }
        plain { padding_idx: Option<usize>, }
    }
}

#[cfg(feature = "flex")]
impl crate::engine::operator::Kernels<burn::backend::Flex> for LookupOp {}

/// `table[ids]`, [B, S] → [B, S, H]: the lookup of [`embed_layer_norm`](crate::embed_layer_norm) alone. An id outside the table reads
/// the nearest row, and the row `padding_idx` has no gradient.
///
/// # Panics
///
/// If there is no row `padding_idx`.
pub fn lookup(table: Tensor<2>, ids: Tensor<2, Int>, padding_idx: Option<usize>) -> Tensor<3> {
    let [rows, _] = table.dims();
    if let Some(pad) = padding_idx {
        assert!(pad < rows, "the padding index is {pad}, but there are {rows} rows");
    }
    let (table, ids) = (table.dequantize().into_dispatch(), ids.into_dispatch());
    Tensor::from_dispatch(run::<LookupOp, _>(Lookup { table, ids, padding_idx }))
}

impl Operator for LookupOp {
    fn specs<B: Backend>(inputs: &Lookup<B>) -> Vec<Spec> {
        let ([batch, seq], hidden) = (inputs.ids.shape().dims(), inputs.table.shape()[1]);
        vec![Spec { shape: Shape::new([batch, seq, hidden]), dtype: inputs.table.dtype() }]
    }

    fn reference<B: DropoutOps>(inputs: Lookup<B>) -> Output<Self, B> {
        (looked_up::<B>(&inputs.table, &inputs.ids, inputs.padding_idx), [])
    }

    fn reference_backward<B: DropoutOps>(inputs: Lookup<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        vec![Some(scattered::<B>(&inputs.table, &inputs.ids, inputs.padding_idx, upstream.grad))]
    }
}

/// `table[ids]`, [B, S, H], without a gradient for the padding row.
pub(super) fn looked_up<B: Backend>(
    table: &FloatTensor<B>,
    ids: &IntTensor<B>,
    padding_idx: Option<usize>,
) -> FloatTensor<B> {
    let ids = in_range::<B>(ids, table);
    let found = B::embedding(table.clone(), ids.clone());
    // On devices without operators of this crate Burn's autodiff differentiates the reference.
    let Some(pad) = padding_idx.filter(|_| B::ad_enabled(&table.device())) else {
        return found;
    };
    // The same values, but where the id is the padding index they come from a detached copy of its row: the mask
    // stops the gradient there, and what Burn's backward adds to the row is 0.0.
    let shape = found.shape();
    let pad_row = slice::<B>(&B::float_detach(table.clone()), pad, [1, 1]);
    B::float_mask_where(found, is_pad::<B>(ids, pad, shape.clone()), B::float_expand(pad_row, shape))
}

/// The gradient of `table`, given that of [`looked_up`]. The padding row's is 0.
pub(super) fn scattered<B: Backend>(
    table: &FloatTensor<B>,
    ids: &IntTensor<B>,
    padding_idx: Option<usize>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let ids = in_range::<B>(ids, table);
    let grad = match padding_idx {
        Some(pad) => {
            let mask = is_pad::<B>(ids.clone(), pad, grad.shape());
            B::float_mask_fill(grad, mask, 0.0.into())
        }
        None => grad,
    };
    B::embedding_backward(table.clone(), grad, ids)
}

/// The ids, each moved to the nearest row of `table`: no lookup leaves it, whatever the backend checks.
fn in_range<B: Backend>(ids: &IntTensor<B>, table: &FloatTensor<B>) -> IntTensor<B> {
    let last = table.shape()[0].saturating_sub(1) as i64;
    let ids = match ids.dtype() {
        // 8 and 16 bits do not count to the end of every table.
        DType::I8 | DType::U8 | DType::I16 | DType::U16 => B::int_cast(ids.clone(), IntDType::I32),
        _ => ids.clone(),
    };
    B::int_clamp(ids, 0i64.into(), last.into())
}

/// True where an id is `pad`, expanded to `shape` [B, S, H].
fn is_pad<B: Backend>(ids: IntTensor<B>, pad: usize, shape: Shape) -> BoolTensor<B> {
    let [rows, seq] = ids.shape().dims();
    let dtype = get_or_init_device_settings::<B>(&ids.device()).bool_dtype;
    let mask = B::int_equal_elem(ids, (pad as i64).into(), dtype);
    B::bool_expand(B::bool_reshape(mask, Shape::new([rows, seq, 1])), shape)
}

/// CubeCL's devices: what Burn's backward does by one loop over all ids for each row and column.
#[cfg(feature = "_cubecl")]
mod cube {
    use super::*;
    use crate::cube::launch::RowLaunch;
    use crate::engine::operator::Kernels;
    use crate::ops::embed_layer_norm::cube::scatter;
    use burn_cubecl::CubeBackend;
    use burn_cubecl::kernel::{cast, into_contiguous};

    /// The most buffers of the kernels that scatter.
    const BUFFERS: usize = 4;

    impl Kernels<CubeBackend> for LookupOp {
        fn backward(
            input: Lookup<CubeBackend>,
            upstream: Upstream<Self, CubeBackend>,
        ) -> Gradients<CubeBackend> {
            let Lookup { table, ids, padding_idx } = &input;
            let ([rows, hidden], tokens) = (table.meta.shape().dims(), ids.meta.shape().num_elements());
            let on = RowLaunch::for_rows(&[table], [tokens, hidden], BUFFERS);
            // A table without rows has none that is nearest to an id.
            let Some(on) = on.filter(|_| rows > 0) else { return Self::reference_backward(input, upstream) };
            let grad = into_contiguous(cast(upstream.grad, on.wide));
            vec![Some(scatter(&on, grad, table, ids, *padding_idx))]
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::backend::ops::{FloatTensorOps, IntTensorOps};
    use burn::backend::{Autodiff, AutodiffBackend, Flex};

    #[test]
    fn burns_autodiff_of_the_reference_gives_the_padding_row_no_gradient() {
        type B = Autodiff<Flex>;
        let table = B::float_from_data(TensorData::from([[1.0f32], [2.0]]), &Default::default());
        let table = B::float_set_require_grad(table, true);
        let ids = B::int_from_data(TensorData::from([[0i64, 1, 1]]), &Default::default());
        let y = looked_up::<B>(&table, &ids, Some(0));
        let gradient = B::grad(&table, &B::backward(B::float_sum(y))).expect("a gradient");
        let gradient = burn::backend::try_read_sync(Flex::float_into_data(gradient)).unwrap().unwrap();
        assert_eq!(gradient, TensorData::from([[0.0f32], [2.0]]));
    }
}
