//! CubeCL's devices: one launch forward and two backward, which read packed rows and write packed rows, and one more for the gradients
//! of vectors of distances.

mod distances;
mod heads;
mod kernels;
mod tile;

use super::reference::bias_gradient;
use super::{Attention, AttentionOp};
use crate::cube::launch::{RowLaunch, UNITS, buffer, int_tensor, output};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use crate::numerics::precision::narrow;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use distances::DistancesLaunch;
use heads::HeadsLaunch;
use tile::{SHARED, TILE};

type Input = Attention<CubeBackend>;

/// The most columns of a head: units have all of a row in registers.
const COLUMNS: usize = 256;

/// The launches for one input.
struct Setup<'a> {
    input: &'a Input,
    on: RowLaunch,
}

impl<'a> Setup<'a> {
    /// `None` for what the kernels do not take, or the device has too little for. Backward and forward decide alike: of a row past
    /// its sequence's end the kernels write no statistics, which the reference would read.
    fn new(input: &'a Input) -> Option<Self> {
        let operands: Vec<_> = input.operands().into_iter().flatten().collect();
        let [has_mask, has_bias, by_query, by_key] = [
            input.dropout.0.is_some(),
            input.bias.is_some(),
            input.by_query.is_some(),
            input.by_key.is_some(),
        ]
        .map(usize::from);
        // The backward's ten, of the mask its seeds, of the bias its values and their gradient, and vectors of distances.
        let buffers = 10 + has_mask + 2 * has_bias + by_query + by_key;
        let mut on = RowLaunch::for_rows(&operands, input.query.meta.shape().dims(), buffers)?;
        let logits = input.lengths.len() * input.heads * input.longest;
        let of_bias = if input.bias.is_some() { logits * input.longest } else { logits };
        let of_distances =
            if input.has_distances() { 2 * input.longest * input.lengths.len() * on.hidden } else { 0 };
        let largest = of_bias.max(of_distances);
        on.address_type = on.address_type.max(AddressType::from_len(largest));
        let has_room = SHARED * on.wide.size() <= on.client.properties().hardware.max_shared_memory_size;
        let takes = has_room && on.max_units == UNITS && on.hidden / input.heads <= COLUMNS;
        takes.then_some(Self { input, on })
    }

    fn cubes(&self) -> CubeCount {
        let Input { lengths, heads, longest, .. } = self.input;
        self.on.cubes(lengths.len() * heads * longest.div_ceil(TILE))
    }

    fn heads<T: Float>(&self) -> HeadsLaunch<T> {
        let Input { starts, heads, longest, window, scale, bias, by_query, by_key, dropout, .. } = self.input;
        let (starts, scale, mask) =
            (int_tensor(starts.clone()), self.on.scalar(*scale), self.on.mask(dropout));
        let [bias, by_query, by_key] = [bias, by_query, by_key].map(|tensor| tensor.clone().map(buffer));
        let (distances, columns) =
            (DistancesLaunch::new(by_query.into(), by_key.into()), self.on.hidden / heads);
        HeadsLaunch::new(
            starts,
            *heads,
            *longest,
            *window,
            scale,
            bias.into(),
            distances,
            mask.into(),
            columns,
        )
    }

    /// Rows [N, H] that are still to be written.
    fn rows(&self) -> CubeTensor {
        self.on.empty([self.on.rows, self.on.hidden], self.on.float)
    }

    /// The shares of sequences in the gradient of vectors of distances, [B, 2L − 1, H], still to be written.
    fn shares(&self) -> CubeTensor {
        let Input { lengths, longest, .. } = self.input;
        self.on.empty([lengths.len(), 2 * longest - 1, self.on.hidden], self.on.wide)
    }

    fn sum(&self, shares: CubeTensor) -> CubeTensor {
        let [_, distances, hidden] = shares.meta.shape().dims();
        let sum =
            CubeBackend::float_reshape(CubeBackend::float_sum_dim(shares, 0), [distances, hidden].into());
        narrow::<CubeBackend>(sum, self.on.float)
    }

    /// A number for each row of logits, [B, A, L, 1], still to be written.
    fn statistic(&self) -> CubeTensor {
        let Input { lengths, heads, longest, .. } = self.input;
        self.on.empty([lengths.len(), *heads, *longest, 1], self.on.wide)
    }

    /// The gradients, those of queries, keys and values in tensors that are still to be written.
    fn backward(
        &self,
        upstream: Upstream<AttentionOp, CubeBackend>,
        [query_grad, key_grad, value_grad]: [CubeTensor; 3],
    ) -> Gradients<CubeBackend> {
        let Upstream { statistics: [maxima, inverse_sums, context], grad, needs } = upstream;
        let Self { input, on } = self;
        let (Input { query, key, value, bias, .. }, grad) = (input, into_contiguous(grad));
        // Zeros where there are no pairs. Of a bias that sequences share, each has its own, so that no order of sums is left to the device.
        let bias = bias.as_ref().filter(|_| needs[3]);
        let pairs = Shape::new([input.lengths.len(), input.heads, input.longest, input.longest]);
        let bias_grad = bias.map(|_| on.zeros(pairs, on.float));
        let dots = self.statistic();
        let launch =
            |rows: [&CubeTensor; 4], of_queries: Option<[Option<CubeTensor>; 2]>, own_grad: &CubeTensor| {
                let [own, own_beside, others, others_beside] = rows.map(|rows| buffer(rows.clone()));
                let of_keys = of_queries.is_none();
                let [output_rows, bias_grad] = of_queries.unwrap_or_default();
                kernels::backward::launch(
                    &on.client,
                    self.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    on.address_type,
                    own,
                    own_beside,
                    others,
                    others_beside,
                    output_rows.map(buffer).into(),
                    self.heads(),
                    buffer(maxima.clone()),
                    buffer(inverse_sums.clone()),
                    dots.clone().into_buffer_arg(),
                    own_grad.clone().into_buffer_arg(),
                    output(&Some(value_grad.clone()).filter(|_| of_keys)).into(),
                    output(&bias_grad).into(),
                    of_keys,
                    on.floats(),
                );
            };
        launch([query, &grad, key, value], Some([Some(context), bias_grad.clone()]), &query_grad);
        if needs[1] || needs[2] {
            launch([key, value, query, &grad], None, &key_grad);
        }
        let bias_grad = bias.zip(bias_grad).map(|(bias, grad)| bias_gradient::<CubeBackend>(grad, bias));
        let distances = [4, 5].map(|operand| needs[operand].then(|| self.shares()));
        if needs[4] || needs[5] {
            let [by_query, by_key] = &distances;
            kernels::distances::launch(
                &on.client,
                on.cubes(input.lengths.len() * input.heads * 2 * input.longest.div_ceil(TILE)),
                CubeDim::new_1d(UNITS as u32),
                on.address_type,
                buffer(query.clone()),
                buffer(key.clone()),
                buffer(value.clone()),
                buffer(grad),
                self.heads(),
                buffer(maxima),
                buffer(inverse_sums),
                buffer(dots),
                output(by_query).into(),
                output(by_key).into(),
                on.floats(),
            );
        }
        let [by_query, by_key] = distances.map(|shares| shares.map(|shares| self.sum(shares)));
        let gradients = [Some(query_grad), Some(key_grad), Some(value_grad), bias_grad, by_query, by_key];
        gradients.into_iter().zip(needs).map(|(gradient, needed)| gradient.filter(|_| needed)).collect()
    }
}

impl Kernels<CubeBackend> for AttentionOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let input = plain(input);
        let Some(setup) = Setup::new(&input) else { return Self::reference(input) };
        let (on, output) = (&setup.on, setup.rows());
        let [query, key, value] = [&input.query, &input.key, &input.value];
        let [maxima, inverse_sums] = [(); 2].map(|()| setup.statistic());
        kernels::forward::launch(
            &on.client,
            setup.cubes(),
            CubeDim::new_1d(UNITS as u32),
            on.address_type,
            buffer(query.clone()),
            buffer(key.clone()),
            buffer(value.clone()),
            setup.heads(),
            output.clone().into_buffer_arg(),
            maxima.clone().into_buffer_arg(),
            inverse_sums.clone().into_buffer_arg(),
            on.floats(),
        );
        (output.clone(), [maxima, inverse_sums, output])
    }

    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        let input = plain(input);
        match Setup::new(&input) {
            Some(setup) => setup.backward(upstream, [(); 3].map(|()| setup.rows())),
            None => Self::reference_backward(input, upstream),
        }
    }
}

/// Whether the kernels compute attention of these inputs.
pub(crate) fn takes(input: &Input) -> bool {
    Setup::new(input).is_some()
}

/// The backward of what the kernels [take](takes): the gradients of queries, keys and values are written to `to`.
pub(crate) fn backward_to(
    to: [CubeTensor; 3],
    input: Input,
    upstream: Upstream<AttentionOp, CubeBackend>,
) -> Gradients<CubeBackend> {
    let input = plain(input);
    Setup::new(&input).expect("what forward took").backward(upstream, to)
}

/// The inputs without gaps between values, made so once for all launches.
fn plain(input: Input) -> Input {
    let Input { query, key, value, bias, by_query, by_key, .. } = input;
    let [query, key, value] = [query, key, value].map(into_contiguous);
    let [bias, by_query, by_key] = [bias, by_query, by_key].map(|tensor| tensor.map(into_contiguous));
    Input { query, key, value, bias, by_query, by_key, ..input }
}
