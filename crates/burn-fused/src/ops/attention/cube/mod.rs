//! CubeCL's devices: Burn's autotuned matmuls, with operands in the dtype of Q and logits in f32 or f64, and kernels around
//! them: rows to heads, softmax, heads to rows.
//!
//! Softmax is computed in place, so one [B, A, L, L] lives at a time in the forward and two in the backward; in 16 bits
//! the weights, and in the backward the logits' gradient, take half as much again.

mod kernels;

use super::reference::{folded, folded_backward};
use super::{Attention, AttentionOp};
use crate::cube::launch::{RowLaunch, buffer, int_tensor, output, product};
use crate::cube::row::Split;
use crate::engine::deferred::array;
use crate::engine::operator::{Fields, Gradients, Kernels, Operator, Output, Upstream};
use burn::backend::ops::FloatTensorOps;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::tensor::CubeTensor;
use kernels::HeadsLaunch;

type Input = Attention<CubeBackend>;

const BINDINGS: u32 = 11;

/// The launches for one input.
struct Setup<'a> {
    input: &'a Input,
    /// On the rows of logits [B · A · L, L].
    on: RowLaunch,
    /// [B, A, L, d].
    dims: [usize; 4],
}

impl<'a> Setup<'a> {
    /// `None` for inputs that the kernels do not take, or that the device has too few bindings for.
    fn new(input: &'a Input) -> Option<Self> {
        let (batch, heads, longest) = (input.lengths.len(), input.heads, input.longest);
        let [_, hidden] = input.query.meta.shape().dims();
        let dims = [batch, heads, longest, hidden / heads];
        let operands: Vec<_> = AttentionOp::operands::<CubeBackend>(input).into_iter().flatten().collect();
        let mut on = RowLaunch::of(&operands, [batch * heads * longest, longest], BINDINGS)?;
        // A power of two: a kernel is compiled for each split, and lengths vary from batch to batch.
        let units = on.max_units.min((16 * longest.div_ceil(64)).next_power_of_two());
        on.split = Split::new(longest, units);
        // `fill` writes up to four tensors to one buffer.
        on.address_type = on.address_type.max(AddressType::from_len(4 * dims.iter().product::<usize>()));
        Some(Self { input, on, dims })
    }

    /// The heads [B, A, L, d] of rows [N, H].
    fn fill<const N: usize>(&self, rows: [&CubeTensor; N]) -> [CubeTensor; N] {
        array(self.moved(rows.into_iter().cloned().collect(), Shape::new(self.dims), true, 0))
    }

    /// The rows [N, H] of heads [B, A, L, d], the first `scaled` times the scale.
    fn empty(&self, heads: Vec<CubeTensor>, scaled: usize) -> Vec<CubeTensor> {
        if heads.is_empty() {
            return heads;
        }
        self.moved(heads, self.input.query.meta.shape().clone(), false, scaled)
    }

    fn moved(&self, from: Vec<CubeTensor>, shape: Shape, to_heads: bool, scaled: usize) -> Vec<CubeTensor> {
        let on = &self.on;
        let count = self.dims.iter().product::<usize>();
        let (all, stride, views) = on.parts(from.len(), shape);
        kernels::move_heads::launch(
            &on.client,
            on.cubes(count.div_ceil(on.max_units)),
            CubeDim::new_1d(on.max_units as u32),
            on.address_type,
            from.into_iter().map(buffer).collect(),
            self.heads(&None),
            all.into_buffer_arg(),
            count,
            stride,
            to_heads,
            scaled,
            on.floats(),
        );
        views
    }

    fn heads<T: Float>(&self, bias: &Option<CubeTensor>) -> HeadsLaunch<T> {
        let [_, heads, longest, columns] = self.dims;
        let (starts, scale) = (int_tensor(self.input.starts.clone()), self.on.scalar(self.input.scale));
        let bias = bias.clone().map(buffer);
        HeadsLaunch::new(starts, heads, longest, columns, self.input.window, scale, bias.into())
    }

    /// Where 16-bit results [B, A, L, L] are written; `None` if they take the place of what they are made from.
    fn narrow(&self) -> Option<CubeTensor> {
        let [batch, heads, longest, _] = self.dims;
        let on = &self.on;
        (on.float != on.wide).then(|| on.empty([batch, heads, longest, longest], on.float))
    }
}

fn transposed(tensor: CubeTensor) -> CubeTensor {
    CubeBackend::float_swap_dims(tensor, 2, 3)
}

impl Kernels<CubeBackend> for AttentionOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let input = folded::<CubeBackend>(input);
        let Some(setup) = Setup::new(&input) else { return Self::reference(input) };
        let on = &setup.on;
        let Input { query, key, value, .. } = &input;
        let [query, key, value] = setup.fill([query, key, value]);
        let products = product(query, transposed(key), on.wide);
        let weights = setup.narrow();
        let [batch, heads, longest, _] = setup.dims;
        let [maxima, inverse_sums] = [(); 2].map(|()| on.empty([batch, heads, longest, 1], on.wide));
        kernels::softmax::launch(
            &on.client,
            on.cubes(on.rows),
            on.cube_dim(),
            on.address_type,
            products.clone().into_buffer_arg(),
            setup.heads(&input.bias),
            on.mask(&input.dropout).into(),
            output(&weights).into(),
            maxima.clone().into_buffer_arg(),
            inverse_sums.clone().into_buffer_arg(),
            on.rows,
            on.split,
            on.floats(),
        );
        // In f32 the weights have taken the place of the logits.
        let context = product(weights.unwrap_or(products), value, on.float);
        let output = setup.empty(vec![context], 0).remove(0);
        (output, [maxima, inverse_sums])
    }

    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        folded_backward(input, upstream, backward)
    }
}

/// The gradients of query, key, value and bias, without vectors of distances.
fn backward(input: Input, upstream: Upstream<AttentionOp, CubeBackend>) -> Gradients<CubeBackend> {
    let Some(setup) = Setup::new(&input) else { return AttentionOp::reference_backward(input, upstream) };
    let Upstream { statistics, grad, needs: [of_query, of_key, of_value, of_bias, ..] } = upstream;
    let on = &setup.on;
    let Input { query, key, value, .. } = &input;
    let [query, key, value, grad] = setup.fill([query, key, value, &grad]);
    let products = product(query.clone(), transposed(key.clone()), on.wide);
    let scores_grad = product(grad.clone(), transposed(value), on.wide);
    let (weights, narrow_grad) = (setup.narrow(), setup.narrow());
    let [maxima, inverse_sums] = statistics.map(buffer);
    kernels::backward::launch(
        &on.client,
        on.cubes(on.rows),
        on.cube_dim(),
        on.address_type,
        products.clone().into_buffer_arg(),
        scores_grad.clone().into_buffer_arg(),
        setup.heads(&input.bias),
        on.mask(&input.dropout).into(),
        maxima,
        inverse_sums,
        output(&weights).into(),
        output(&narrow_grad).into(),
        on.rows,
        on.split,
        on.floats(),
    );
    let weights = weights.unwrap_or(products);
    let scores_grad = narrow_grad.unwrap_or(scores_grad);
    let value = of_value.then(|| product(transposed(weights), grad, on.float));
    let query_grad = of_query.then(|| product(scores_grad.clone(), key, on.float));
    let key_grad = of_key.then(|| product(transposed(scores_grad.clone()), query, on.float));
    let scaled = usize::from(of_query) + usize::from(of_key);
    let heads: Vec<_> = [query_grad, key_grad, value].into_iter().flatten().collect();
    let mut rows = setup.empty(heads, scaled).into_iter();
    let [query, key, value] =
        [of_query, of_key, of_value].map(|needed| if needed { rows.next() } else { None });
    vec![query, key, value, (of_bias && input.bias.is_some()).then_some(scores_grad)]
}
