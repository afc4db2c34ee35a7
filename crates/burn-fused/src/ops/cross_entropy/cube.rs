//! CubeCL's devices: a forward that reads each row once and one that adds up the losses; one backward.

use super::{CrossEntropy, CrossEntropyOp};
use crate::cube::launch::{RowLaunch, buffer, int_tensor};
use crate::cube::row::{cube_max, cube_sum, nearest_row, scratch_values};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::kernel::into_contiguous;

type Input = CrossEntropy<CubeBackend>;

/// The most buffers of a kernel, the backward's: logits, labels, two statistics, the loss's gradient and the logits'.
const BUFFERS: usize = 6;

fn launch(input: &Input) -> Option<RowLaunch> {
    let shape = input.logits.meta.shape().dims();
    RowLaunch::for_rows(&[&input.logits], shape, BUFFERS)
}

impl Kernels<CubeBackend> for CrossEntropyOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference(input) };
        let [largest, log_sums, losses] = [(); 3].map(|()| on.empty([on.rows, 1], on.wide));
        forward_kernel::launch(
            &on.client,
            on.cubes(on.rows),
            CubeDim::new_1d(on.max_units as u32),
            on.address_type,
            buffer(input.logits),
            int_tensor(input.labels),
            largest.clone().into_buffer_arg(),
            log_sums.clone().into_buffer_arg(),
            losses.clone().into_buffer_arg(),
            on.rows,
            on.hidden,
            on.max_units,
            on.floats(),
        );
        let loss = on.sum(losses, 1.0 / on.rows as f64, on.float);
        (loss, [largest, log_sums])
    }

    /// The gradient takes the memory of the logits, if nothing else holds them.
    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference_backward(input, upstream) };
        let [largest, log_sums] = upstream.statistics.map(buffer);
        let labels = int_tensor(input.labels);
        let logits = into_contiguous(input.logits);
        let (output, output_arg) = if logits.can_mut() {
            // Each value is read and written by one unit.
            (logits.clone(), logits.as_tensor_alias(0).into_buffer_arg())
        } else {
            let output = on.empty([on.rows, on.hidden], on.float);
            (output.clone(), output.into_buffer_arg())
        };
        backward_kernel::launch(
            &on.client,
            on.cubes((on.rows * on.hidden).div_ceil(on.max_units)),
            CubeDim::new_1d(on.max_units as u32),
            on.address_type,
            logits.into_buffer_arg(),
            labels,
            largest,
            log_sums,
            buffer(upstream.grad),
            output_arg,
            on.scalar(1.0 / on.rows as f64),
            on.rows,
            on.hidden,
            on.floats(),
        );
        vec![Some(output)]
    }
}

/// Each unit keeps the largest logit so far and the sum of exponentials relative to it.
#[cube(launch, address_type = "dynamic")]
fn forward_kernel<T: Float, W: Float>(
    logits: &[T],
    labels: &OwnedTensor<i32>,
    largest: &mut [W],
    log_sums: &mut [W],
    losses: &mut [W],
    rows: usize,
    classes: usize,
    #[comptime] units: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut scratch = Shared::<[W]>::new_slice(comptime!(scratch_values(units)));
    let mut most = W::min_value();
    let mut sum = W::new(0.0);
    let mut class = UNIT_POS as usize;
    while class < classes {
        let x = W::cast_from(logits[row * classes + class]);
        // A larger logit: the sum so far is relative to the one before.
        if x > most {
            sum = sum * (most - x).exp() + W::new(1.0);
            most = x;
        } else {
            sum += (x - most).exp();
        }
        class += units;
    }
    let of_row = cube_max::<W>(most, &mut scratch, units);
    let sum = cube_sum::<W>(sum * (most - of_row).exp(), &mut scratch, units);
    if UNIT_POS == 0 {
        let label = nearest_row(labels, row, classes as u32 - 1) as usize;
        let log_sum = sum.ln();
        largest[row] = of_row;
        log_sums[row] = log_sum;
        losses[row] = log_sum - (W::cast_from(logits[row * classes + label]) - of_row);
    }
}

#[cube(launch, address_type = "dynamic")]
fn backward_kernel<T: Float, W: Float>(
    logits: &[T],
    labels: &OwnedTensor<i32>,
    largest: &[W],
    log_sums: &[W],
    grad: &[T],
    output: &mut [T],
    share: InputScalar,
    rows: usize,
    classes: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let row = ABSOLUTE_POS / classes;
    if row >= rows {
        terminate!();
    }
    let x = W::cast_from(logits[ABSOLUTE_POS]);
    let mut difference = (x - largest[row] - log_sums[row]).exp();
    if ABSOLUTE_POS % classes == nearest_row(labels, row, classes as u32 - 1) as usize {
        difference -= W::new(1.0);
    }
    output[ABSOLUTE_POS] = T::cast_from(difference * (W::cast_from(grad[0]) * share.get::<W>()));
}
