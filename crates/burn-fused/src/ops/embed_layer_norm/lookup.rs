//! Rows of a table by their ids, and the scatter of their gradients.

use crate::engine::inputs::inputs;
use crate::engine::operator::{Gradients, Operator, Output, Spec, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::DropoutOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
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
pub fn lookup(table: Tensor<2>, ids: Tensor<2, Int>, padding_idx: Option<usize>) -> Tensor<3> {
    let (table, ids) = (table.dequantize().into_dispatch(), ids.into_dispatch());
    Tensor::from_dispatch(run::<LookupOp, _>(Lookup { table, ids, padding_idx }))
}

impl Operator for LookupOp {
    fn specs<B: Backend>(inputs: &Lookup<B>) -> Vec<Spec> {
        let ([batch, seq], hidden) = (inputs.ids.shape().dims(), inputs.table.shape()[1]);
        vec![Spec { shape: Shape::new([batch, seq, hidden]), dtype: inputs.table.dtype() }]
    }

    fn reference<B: DropoutOps>(inputs: Lookup<B>) -> Output<Self, B> {
        (looked_up::<B>(&inputs.table, &inputs.ids), [])
    }

    fn reference_backward<B: DropoutOps>(inputs: Lookup<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        vec![Some(scattered::<B>(&inputs.table, &inputs.ids, inputs.padding_idx, upstream.grad))]
    }
}

/// `table[ids]`, [B, S, H].
pub(super) fn looked_up<B: Backend>(table: &FloatTensor<B>, ids: &IntTensor<B>) -> FloatTensor<B> {
    B::embedding(table.clone(), in_range::<B>(ids, table))
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
            let [rows, seq] = ids.shape().dims();
            let dtype = get_or_init_device_settings::<B>(&ids.device()).bool_dtype;
            let is_pad = B::int_equal_elem(ids.clone(), (pad as i64).into(), dtype);
            let is_pad = B::bool_expand(B::bool_reshape(is_pad, Shape::new([rows, seq, 1])), grad.shape());
            B::float_mask_fill(grad, is_pad, 0.0.into())
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
