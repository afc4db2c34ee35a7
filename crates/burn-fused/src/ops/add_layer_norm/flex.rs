//! Flex, Burn's CPU backend: one pass over the rows, forward and backward, in parallel.

use super::{AddLayerNorm, AddLayerNormOp};
use crate::engine::operator::{Gradients, Output, Upstream};
use crate::flex::mask::factors;
use crate::flex::row::{RowNorm, accumulate};
use crate::flex::{
    HostKernels, Rows, Scalar, Wide, for_each, row_statistics, rows_per_task, simd_fn, slice, statistics,
    tensor, total_of_each, vector_gradient, widened,
};
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use pulp::Simd;

impl HostKernels for AddLayerNormOp {
    fn forward<T: Scalar>(input: AddLayerNorm<Flex>) -> Output<Self, Flex> {
        let norm = RowNorm::new::<T>([&input.gamma, &input.beta], input.epsilon, &input.dropout);
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
        let norm = RowNorm::new::<T>([&input.gamma, &input.beta], input.epsilon, &input.dropout);
        let bias = widened::<T>(&input.bias);
        let hidden = bias.len();
        let step = rows_per_task(hidden);
        let size = step * hidden;
        let [x, residual] = [&input.x, &input.residual].map(|rows| rows.to_contiguous());
        let [x, residual] = [&x, &residual].map(slice::<T>);
        let statistics = row_statistics(statistics);
        // Becomes that of the residual, which without dropout is x's, too.
        let mut grad = Rows::new(grad);
        let is_apart = needs_x && norm.mask.is_some();
        let mut x_grad = vec![T::default(); if is_apart { x.len() } else { 0 }];

        let mut x_grads = x_grad.chunks_mut(size);
        let rows = x.chunks(size).zip(residual.chunks(size)).zip(statistics.chunks(step));
        let tasks = rows.zip(grad.tasks::<T>(size)).map(|rows| (rows, x_grads.next())).enumerate();
        let totals = total_of_each(x.len(), tasks, 3 * hidden, |(task, (rows, x_grad)), partial| {
            let (((x, residual), statistics), grad) = rows;
            backward(task * step, &norm, &bias, [x, residual], statistics, (grad(), x_grad), partial);
        });

        let vector = |i: usize, needed: bool, of| {
            needed.then(|| vector_gradient(totals[i * hidden..][..hidden].to_vec(), of))
        };
        let residual = grad.output;
        let x = if is_apart { tensor(x_grad, input.x.shape()) } else { residual.clone() };
        vec![
            needs_x.then_some(x),
            vector(0, needs_bias, &input.bias),
            needs_residual.then_some(residual),
            vector(1, needs_gamma, &input.gamma),
            vector(2, needs_beta, &input.beta),
        ]
    }
}

/// `sum` = residual + mask · (x + bias) of one row; without dropout the mask's `factor`s are 1 and stay so.
#[inline(always)]
fn add<S: Simd, T: Scalar>(
    simd: S,
    row: usize,
    norm: &RowNorm<T::Wide>,
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
        norm: &'a RowNorm<T::Wide>,
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
    /// Rows of x and the residual from `first` on, and the gradients of y, which become those of the residual. Stores those of x
    /// if there is room for them, and adds to those of the bias, γ and β.
    fn backward<S, T: Scalar>(
        simd,
        first: usize,
        norm: &'a RowNorm<T::Wide>,
        bias: &'a [T::Wide],
        rows: [&'a [T]; 2],
        statistics: &'a [[T::Wide; 2]],
        grads: (&'a mut [T], Option<&'a mut [T]>),
        partial: &'a mut [T::Wide],
    ) {
        let ((grads, mut x_grads), hidden) = (grads, bias.len());
        let (bias_total, parameters) = partial.split_at_mut(hidden);
        let (gamma_total, beta_total) = parameters.split_at_mut(hidden);
        let [mut sum, mut d, mut factor] = [0.0, 0.0, 1.0].map(|value| vec![T::Wide::from_f64(value); hidden]);
        let [x, residual] = rows.map(|rows| rows.chunks_exact(hidden));
        let rows = x.zip(residual).zip(grads.chunks_exact_mut(hidden)).zip(statistics);
        for (row, (((x, residual), grad), &statistics)) in rows.enumerate() {
            add(simd, first + row, norm, bias, [x, residual], &mut sum, &mut factor);
            d.iter_mut().zip(&*grad).for_each(|(d, grad)| *d = grad.widen());
            norm.backward(&mut sum, statistics, &mut d, [&mut *gamma_total, &mut *beta_total]);
            grad.iter_mut().zip(&d).for_each(|(grad, &d)| *grad = T::narrow(d));
            d.iter_mut().zip(&factor).for_each(|(d, &factor)| *d = *d * factor);
            if let Some(x_grads) = &mut x_grads {
                let x_grad = x_grads[row * hidden..].iter_mut().zip(&d);
                x_grad.for_each(|(x_grad, &d)| *x_grad = T::narrow(d));
            }
            // What is stored is rounded, its total is not.
            accumulate(bias_total, &d);
        }
    }
}
