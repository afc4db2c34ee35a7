//! Attention by Burn's autotuned matmuls, with operands in the dtype of Q and logits in f32 or f64, and three kernels
//! around them: rows to heads, softmax, heads to rows.
//!
//! Softmax is computed in place, so one [B, A, L, L] lives at a time in the forward and two in the backward; in 16 bits
//! the weights, and in the backward the logits' gradient, take half as much again.

use super::{Input, Setup, arguments, kernels};
use crate::cube::launch::{buffer, contiguous, output, product, written};
use crate::engine::deferred::array;
use crate::engine::operator::Upstream;
use crate::ops::attention::AttentionOp;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::tensor::CubeTensor;

/// What a kernel reads and writes.
fn in_place(tensor: &CubeTensor) -> BufferArg {
    buffer(tensor.clone());
    written(tensor)
}

/// The last two axes swapped.
fn transposed(tensor: CubeTensor) -> CubeTensor {
    CubeBackend::float_swap_dims(tensor, 2, 3)
}

impl Setup<'_> {
    /// The heads [B, A, L, d] of rows [N, H], the first three with their biases.
    fn fill<const N: usize>(&self, rows: [&CubeTensor; N]) -> [CubeTensor; N] {
        let on = &self.on;
        let count = self.dims.iter().product::<usize>();
        let (all, stride, views) = on.parts(N, Shape::new(self.dims), self.input.operands);
        kernels::fill::launch(
            &on.client,
            on.cubes(count.div_ceil(on.max_units)),
            CubeDim::new_1d(on.max_units as u32),
            on.address_type,
            rows.into_iter().map(|rows| buffer(rows.clone())).collect(),
            self.biases.iter().map(|bias| buffer(bias.clone())).collect(),
            self.heads(),
            written(&all),
            count,
            stride,
            [on.float, self.input.operands, self.of_biases(), on.wide].map(dtype_to_elem_type),
        );
        array(views)
    }

    /// The rows [N, H] of heads [B, A, L, d], the first `scaled` times the scale.
    fn empty(&self, heads: Vec<CubeTensor>, scaled: usize) -> Vec<CubeTensor> {
        let on = &self.on;
        let (parts, count) = (heads.len(), self.dims.iter().product::<usize>());
        if parts == 0 {
            return Vec::new();
        }
        let (all, stride, views) = on.parts(parts, self.input.query.meta.shape().clone(), on.float);
        kernels::empty::launch(
            &on.client,
            on.cubes(count.div_ceil(on.max_units)),
            CubeDim::new_1d(on.max_units as u32),
            on.address_type,
            heads.iter().map(written).collect(),
            self.heads(),
            written(&all),
            on.scalar(self.input.scale),
            count,
            stride,
            scaled,
            [self.input.operands, on.float, on.wide].map(dtype_to_elem_type),
        );
        views
    }

    /// Where 16-bit results [B, A, L, L] are written; `None` if they take the place of what they are made from.
    fn narrow(&self) -> Option<CubeTensor> {
        let [batch, heads, longest, _] = self.dims;
        let (on, operands) = (&self.on, self.input.operands);
        (operands != on.wide).then(|| on.empty([batch, heads, longest, longest], operands))
    }

    /// O and the statistics, by Burn's matmuls.
    pub(super) fn forward_by_matmuls(&self) -> (CubeTensor, [CubeTensor; 2]) {
        let on = &self.on;
        let Input { query, key, value, .. } = self.input;
        let [query, key, value] = self.fill([query, key, value]);
        let products = product(query, transposed(key), on.wide);
        let weights = self.narrow();
        let [batch, heads, longest, _] = self.dims;
        let statistics = [(); 2].map(|()| on.empty([batch, heads, longest, 1], on.wide));
        kernels::softmax::launch(
            &on.client,
            on.cubes(on.rows),
            on.cube_dim(),
            on.address_type,
            in_place(&products),
            self.scores(),
            on.mask(&self.input.dropout).into(),
            output(&weights).into(),
            arguments(statistics.clone()),
            on.rows,
            on.split,
            self.dtypes(self.input.operands),
        );
        // In f32 the weights have taken the place of the logits.
        let context = product(weights.unwrap_or(products), value, self.input.operands);
        let output = self.empty(vec![context], 0).remove(0);
        (output, statistics)
    }

    /// The gradients of the rows that are asked for and of the logits' bias, by Burn's matmuls.
    pub(super) fn backward_by_matmuls(
        &self,
        upstream: Upstream<AttentionOp, CubeBackend>,
        needs: [bool; 3],
        of_bias: bool,
    ) -> ([Option<CubeTensor>; 3], Option<CubeTensor>) {
        let Upstream { statistics: [max, inverse_sum, _], grad, .. } = upstream;
        let [of_query, of_key, of_value] = needs;
        let on = &self.on;
        let Input { query, key, value, .. } = self.input;
        let [query, key, value, grad] = self.fill([query, key, value, &grad]);
        let products = product(query.clone(), transposed(key.clone()), on.wide);
        let scores_grad = product(grad.clone(), transposed(value), on.wide);
        let (weights, narrow_grad) = (self.narrow(), self.narrow());
        kernels::backward::launch(
            &on.client,
            on.cubes(on.rows),
            on.cube_dim(),
            on.address_type,
            in_place(&products),
            in_place(&scores_grad),
            self.scores(),
            on.mask(&self.input.dropout).into(),
            arguments([max, inverse_sum]),
            output(&weights).into(),
            output(&narrow_grad).into(),
            on.rows,
            on.split,
            self.dtypes(self.input.operands),
        );
        let weights = weights.unwrap_or(products);
        let scores_grad = narrow_grad.unwrap_or(scores_grad);
        let value = of_value.then(|| product(transposed(weights), grad, self.input.operands));
        let query_grad = of_query.then(|| product(scores_grad.clone(), key, self.input.operands));
        let key_grad = of_key.then(|| product(transposed(scores_grad.clone()), query, self.input.operands));
        let scaled = usize::from(of_query) + usize::from(of_key);
        let heads: Vec<_> = [query_grad, key_grad, value].into_iter().flatten().collect();
        let mut rows = self.empty(heads, scaled).into_iter();
        let rows = [of_query, of_key, of_value].map(|needed| if needed { rows.next() } else { None });
        let bias = self.bias.as_ref().filter(|_| of_bias);
        let bias = bias.map(|bias| contiguous(scores_grad, bias.dtype));
        (rows, bias)
    }
}
