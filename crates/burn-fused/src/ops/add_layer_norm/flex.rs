//! Flex, Burn's CPU backend: one pass over the rows, forward and backward, in parallel.

use super::{AddLayerNorm, AddLayerNormOp};
use crate::engine::operator::{Gradients, Output, Upstream};
use crate::flex::mask::factors;
use crate::flex::row::{Norm, accumulate};
use crate::flex::{
    HostKernels, Rows, Scalar, Wide, for_each, of_rows, rows_per_task, simd_fn, slice, statistics, tensor,
    total_of_each, widened,
};
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use pulp::Simd;

impl HostKernels for AddLayerNormOp {
    fn forward<T: Scalar>(input: AddLayerNorm<Flex>) -> Output<Self, Flex> {
        let norm = Norm::new::<T>([&input.gamma, &input.beta], input.epsilon, &input.dropout);
        let bias = widened::<T>(&input.bias);
        let [rows, hidden] = input.x.shape().dims();
        let (mut x, residual) = (Rows::new(input.x), input.residual.to_contiguous());
        let residual = slice::<T>(&residual);
        let step = rows_per_task(hidden);
        let mut found = vec![[T::Wide::ZERO; 2]; rows];
        let tasks =
            x.tasks::<T>(step * hidden).zip(residual.chunks(step * hidden)).zip(found.chunks_mut(step));
        for_each(residual.len(), tasks.enumerate(), |(task, ((rows, residual), found))| {
            forward(task * step, &norm, &bias, residual, rows(), found);
        });
        (x.output, statistics(&found, Shape::new([rows, 1])))
    }

    fn backward<T: Scalar>(input: AddLayerNorm<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        let Upstream { statistics, grad, needs } = upstream;
        let [needs_x, needs_bias, needs_residual, needs_gamma, needs_beta] = needs;
        let norm = Norm::new::<T>([&input.gamma, &input.beta], input.epsilon, &input.dropout);
        let bias = widened::<T>(&input.bias);
        let hidden = bias.len();
        let step = rows_per_task(hidden);
        let size = step * hidden;
        let [x, residual, grad] = [&input.x, &input.residual, &grad].map(|rows| rows.to_contiguous());
        let [x, residual, grad] = [&x, &residual, &grad].map(slice::<T>);
        let statistics = of_rows(statistics);
        // Without dropout the two gradients are one.
        let shared = norm.mask.is_none();
        let buffer = |needed: bool| vec![T::default(); if needed { x.len() } else { 0 }];
        let mut residual_grad = buffer(needs_residual || (shared && needs_x));
        let mut x_grad = buffer(needs_x && !shared);

        let (mut residual_grads, mut x_grads) = (residual_grad.chunks_mut(size), x_grad.chunks_mut(size));
        let rows =
            x.chunks(size).zip(residual.chunks(size)).zip(grad.chunks(size)).zip(statistics.chunks(step));
        // Those that are not needed have no chunks.
        let tasks = rows.map(|rows| (rows, [x_grads.next(), residual_grads.next()])).enumerate();
        let totals = total_of_each(x.len(), tasks, 3 * hidden, |(task, (rows, grads)), partial| {
            let (((x, residual), grad), statistics) = rows;
            backward(task * step, &norm, &bias, [x, residual, grad], statistics, grads, partial);
        });

        let vector = |i: usize, needed: bool| {
            let values = totals[i * hidden..][..hidden].to_vec();
            needed.then(|| tensor(T::narrow_all(values), input.gamma.shape()))
        };
        let rows = |values: Vec<T>| (!values.is_empty()).then(|| tensor(values, input.x.shape()));
        let residual = rows(residual_grad);
        let x = if shared { residual.clone() } else { rows(x_grad) };
        vec![
            x.filter(|_| needs_x),
            vector(0, needs_bias),
            residual.filter(|_| needs_residual),
            vector(1, needs_gamma),
            vector(2, needs_beta),
        ]
    }
}

/// `sum` = residual + mask · (x + bias) of one row; without dropout the mask's `factor`s are 1 and stay so.
#[inline(always)]
fn add<S: Simd, T: Scalar>(
    simd: S,
    row: usize,
    norm: &Norm<T::Wide>,
    bias: &[T::Wide],
    [x, residual]: [&[T]; 2],
    sum: &mut [T::Wide],
    factor: &mut [T::Wide],
) {
    if let Some(mask) = &norm.mask {
        factors(simd, mask, row as u64, 0, factor);
    }
    let values = sum.iter_mut().zip(x).zip(bias).zip(residual).zip(&*factor);
    for ((((sum, x), &bias), residual), &factor) in values {
        *sum = (x.widen() + bias) * factor + residual.widen();
    }
}

simd_fn! {
    /// Rows of x from `first` on, in the place of y.
    fn forward<S, T: Scalar>(
        simd,
        first: usize,
        norm: &'a Norm<T::Wide>,
        bias: &'a [T::Wide],
        residual: &'a [T],
        y: &'a mut [T],
        statistics: &'a mut [[T::Wide; 2]],
    ) {
        let hidden = bias.len();
        let [mut sum, mut factor] = [0.0, 1.0].map(|value| vec![T::Wide::from_f64(value); hidden]);
        let rows = y.chunks_exact_mut(hidden).zip(residual.chunks_exact(hidden)).zip(statistics);
        for (row, ((y, residual), statistics)) in (first..).zip(rows) {
            add(simd, row, norm, bias, [y, residual], &mut sum, &mut factor);
            *statistics = norm.forward(&sum, y);
        }
    }
}

simd_fn! {
    /// Rows from `first` on of x, the residual and the gradient of y. Stores the gradients of x and the residual where there
    /// is room for them, and adds to those of the bias, γ and β.
    fn backward<S, T: Scalar>(
        simd,
        first: usize,
        norm: &'a Norm<T::Wide>,
        bias: &'a [T::Wide],
        rows: [&'a [T]; 3],
        statistics: &'a [[T::Wide; 2]],
        grads: [Option<&'a mut [T]>; 2],
        partial: &'a mut [T::Wide],
    ) {
        let ([mut x_grad, mut residual_grad], hidden) = (grads, bias.len());
        let (bias_total, parameters) = partial.split_at_mut(hidden);
        let (gamma_total, beta_total) = parameters.split_at_mut(hidden);
        let [mut sum, mut d, mut factor] = [0.0, 0.0, 1.0].map(|value| vec![T::Wide::from_f64(value); hidden]);
        let [x, residual, grad] = rows.map(|rows| rows.chunks_exact(hidden));
        for (row, (((x, residual), grad), &statistics)) in x.zip(residual).zip(grad).zip(statistics).enumerate() {
            add(simd, first + row, norm, bias, [x, residual], &mut sum, &mut factor);
            d.iter_mut().zip(grad).for_each(|(d, grad)| *d = grad.widen());
            norm.backward(&mut sum, statistics, &mut d, [&mut *gamma_total, &mut *beta_total]);
            let row = row * hidden..(row + 1) * hidden;
            if let Some(out) = &mut residual_grad {
                out[row.clone()].iter_mut().zip(&d).for_each(|(out, &d)| *out = T::narrow(d));
            }
            d.iter_mut().zip(&factor).for_each(|(d, &factor)| *d = *d * factor);
            if let Some(out) = &mut x_grad {
                out[row].iter_mut().zip(&d).for_each(|(out, &d)| *out = T::narrow(d));
            }
            // What is stored is rounded, its total is not.
            accumulate(bias_total, &d);
        }
    }
}
