//! CubeCL's devices: one launch forward and two backward, which read packed rows and write packed rows.

mod kernels;

use super::reference::{folded, folded_backward};
use super::{Attention, AttentionOp};
use crate::cube::launch::{RowLaunch, buffer, int_tensor, output};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use crate::numerics::precision::{narrow, wide};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::tensor::CubeTensor;
use kernels::{HeadsLaunch, SHARED, TILE, UNITS};

type Input = Attention<CubeBackend>;

const BINDINGS: u32 = 14;

/// Columns of a head, at most: a unit keeps a part of each in registers.
const COLUMNS: usize = 256;

/// The launches for one input.
struct Setup<'a> {
    input: &'a Input,
    on: RowLaunch,
}

impl<'a> Setup<'a> {
    /// `None` for inputs that the kernels do not take, or devices that have too little for them.
    fn new(input: &'a Input) -> Option<Self> {
        let Input { query, key, value, heads, longest, .. } = input;
        let rows = query.meta.shape().dims();
        let mut on = RowLaunch::of(&[query, key, value], rows, BINDINGS)?;
        let logits = input.lengths.len() * heads * longest;
        // Of the bias, the largest tensor.
        on.address_type = on.address_type.max(AddressType::from_len(logits * longest));
        let shared = on.client.properties().hardware.max_shared_memory_size;
        let has_room = on.max_units >= UNITS && SHARED * on.wide.size() <= shared;
        (has_room && rows[1] / heads <= COLUMNS).then_some(Self { input, on })
    }

    fn cubes(&self) -> usize {
        self.input.lengths.len() * self.input.heads * self.input.longest.div_ceil(TILE)
    }

    /// Of each row of logits, [B, A, L, 1].
    fn of_logits(&self) -> CubeTensor {
        let Input { lengths, heads, longest, .. } = self.input;
        self.on.empty([lengths.len(), *heads, *longest, 1], self.on.wide)
    }

    fn heads<W: Float>(&self) -> HeadsLaunch<W> {
        let Input { starts, heads, longest, window, scale, bias, dropout, .. } = self.input;
        let columns = self.on.hidden / heads;
        let bias = bias.clone().map(|bias| buffer(wide::<CubeBackend>(bias)));
        let (starts, scale, mask) =
            (int_tensor(starts.clone()), self.on.scalar(*scale), self.on.mask(dropout));
        HeadsLaunch::new(starts, *heads, *longest, *window, scale, bias.into(), mask.into(), columns)
    }
}

impl Kernels<CubeBackend> for AttentionOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let input = folded::<CubeBackend>(input);
        let Some(setup) = Setup::new(&input) else { return Self::reference(input) };
        let on = &setup.on;
        let output = on.empty([on.rows, on.hidden], on.float);
        let [maxima, inverse_sums] = [(); 2].map(|()| setup.of_logits());
        kernels::forward::launch(
            &on.client,
            on.cubes(setup.cubes()),
            CubeDim::new_1d(UNITS as u32),
            on.address_type,
            buffer(input.query.clone()),
            buffer(input.key.clone()),
            buffer(input.value.clone()),
            setup.heads(),
            output.clone().into_buffer_arg(),
            maxima.clone().into_buffer_arg(),
            inverse_sums.clone().into_buffer_arg(),
            setup.cubes(),
            on.floats(),
        );
        (output.clone(), [maxima, inverse_sums, output])
    }

    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        folded_backward(input, upstream, backward)
    }
}

/// The gradients of query, key, value and bias, without vectors of distances.
fn backward(input: Input, upstream: Upstream<AttentionOp, CubeBackend>) -> Gradients<CubeBackend> {
    let Some(setup) = Setup::new(&input) else { return AttentionOp::reference_backward(input, upstream) };
    let Upstream { statistics: [maxima, inverse_sums, context], grad, needs } = upstream;
    let on = &setup.on;
    let Input { query, key, value, bias, .. } = &input;
    let [query_grad, key_grad, value_grad] = [(); 3].map(|()| on.empty([on.rows, on.hidden], on.float));
    let along = setup.of_logits();
    // Zeros where there are no tokens.
    let bias_grad =
        bias.as_ref().filter(|_| needs[3]).map(|bias| on.zeros(bias.meta.shape().clone(), on.wide));
    kernels::backward_of_queries::launch(
        &on.client,
        on.cubes(setup.cubes()),
        CubeDim::new_1d(UNITS as u32),
        on.address_type,
        buffer(query.clone()),
        buffer(key.clone()),
        buffer(value.clone()),
        buffer(context),
        buffer(grad.clone()),
        setup.heads(),
        buffer(maxima.clone()),
        buffer(inverse_sums.clone()),
        query_grad.clone().into_buffer_arg(),
        output(&bias_grad).into(),
        along.clone().into_buffer_arg(),
        setup.cubes(),
        on.floats(),
    );
    kernels::backward_of_keys::launch(
        &on.client,
        on.cubes(setup.cubes()),
        CubeDim::new_1d(UNITS as u32),
        on.address_type,
        buffer(query.clone()),
        buffer(key.clone()),
        buffer(value.clone()),
        buffer(grad),
        setup.heads(),
        buffer(maxima),
        buffer(inverse_sums),
        buffer(along),
        key_grad.clone().into_buffer_arg(),
        value_grad.clone().into_buffer_arg(),
        setup.cubes(),
        on.floats(),
    );
    let bias_grad = bias_grad.zip(bias.as_ref());
    let bias_grad = bias_grad.map(|(grad, bias)| narrow::<CubeBackend>(grad, bias.dtype));
    let rows = [Some(query_grad), Some(key_grad), Some(value_grad), bias_grad];
    rows.into_iter().zip(needs).map(|(gradient, needed)| gradient.filter(|_| needed)).collect()
}
