//! Flex, Burn's CPU backend: one pass over the rows, forward and backward, in parallel.

use super::{AddLayerNorm, AddLayerNormOp};
use crate::engine::operator::Output;
use crate::flex::mask::factors;
use crate::flex::scalar::{Scalar, Wide};
use crate::flex::sums::accumulate;
use crate::flex::{HostKernels, Rows, for_each, rows_per_task, slice, sums, tensor, widened};
use crate::numerics::philox::Mask;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use pulp::{Arch, Simd, WithSimd};

impl HostKernels for AddLayerNormOp {
    fn forward<T: Scalar>(input: AddLayerNorm<Flex>) -> Output<Self, Flex> {
        let block = Block::new::<T>(&input);
        let [rows, hidden] = input.x.shape().dims();
        let (mut x, residual) = (Rows::new(input.x), input.residual.to_contiguous());
        let residual = slice::<T>(&residual);
        let step = rows_per_task(hidden);
        let [mut mean, mut rstd] = [(); 2].map(|()| vec![T::Wide::ZERO; rows]);
        let values = x.tasks::<T>(step * hidden).zip(residual.chunks(step * hidden));
        let statistics = mean.chunks_mut(step).zip(rstd.chunks_mut(step));
        let tasks = values.zip(statistics).enumerate().map(|(task, (((x, y), residual), (mean, rstd)))| {
            ForwardTask { first: task * step, block: &block, x, residual, y, mean, rstd }
        });
        for_each(residual.len(), tasks, |task| Arch::new().dispatch(task));
        (x.output(), [mean, rstd].map(|values| tensor(values, Shape::new([rows, 1]))))
    }

    fn backward<T: Scalar>(
        input: AddLayerNorm<Flex>,
        statistics: [FloatTensor<Flex>; 2],
        grad: FloatTensor<Flex>,
        needs: [bool; 5],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        let [needs_x, needs_bias, needs_residual, needs_gamma, needs_beta] = needs;
        let block = Block::new::<T>(&input);
        let hidden = block.gamma.len();
        let step = rows_per_task(hidden);
        let [x, residual, grad] = [&input.x, &input.residual, &grad].map(|rows| rows.to_contiguous());
        let [x, residual, grad] = [&x, &residual, &grad].map(slice::<T>);
        let [mean, rstd] = statistics.map(|values| values.to_contiguous());
        let [mean, rstd] = [&mean, &rstd].map(slice::<T::Wide>);
        // Without dropout the two gradients are one.
        let shared = block.mask.is_none();
        let buffer = |needed: bool| vec![T::default(); if needed { x.len() } else { 0 }];
        let mut residual_grad = buffer(needs_residual || (shared && needs_x));
        let mut x_grad = buffer(needs_x && !shared);

        let zeros = || [(); 3].map(|()| vec![T::Wide::ZERO; hidden]);
        let mut partials: Vec<_> = (0..(x.len() / hidden).div_ceil(step)).map(|_| zeros()).collect();
        let mut residual_tasks = residual_grad.chunks_mut(step * hidden);
        let mut x_tasks = x_grad.chunks_mut(step * hidden);
        let task = |(task, partial)| BackwardTask {
            first: task * step,
            block: &block,
            x: rows_of(x, task, step * hidden),
            residual: rows_of(residual, task, step * hidden),
            grad: rows_of(grad, task, step * hidden),
            mean: rows_of(mean, task, step),
            rstd: rows_of(rstd, task, step),
            x_grad: x_tasks.next(),
            residual_grad: residual_tasks.next(),
            inputs: needs_x || needs_bias || needs_residual,
            partial,
        };
        for_each(x.len(), partials.iter_mut().enumerate().map(task), |task| Arch::new().dispatch(task));

        let mut totals = zeros();
        for partial in &partials {
            totals.iter_mut().zip(partial).for_each(|(total, partial)| accumulate(total, partial));
        }
        let [bias, gamma, beta] = totals.map(|total| tensor(T::narrow_all(total), input.gamma.shape()));
        let rows = |values: Vec<T>| (!values.is_empty()).then(|| tensor(values, input.x.shape()));
        let residual = rows(residual_grad);
        let x = if shared { residual.clone() } else { rows(x_grad) };
        vec![
            x.filter(|_| needs_x),
            needs_bias.then_some(bias),
            residual.filter(|_| needs_residual),
            needs_gamma.then_some(gamma),
            needs_beta.then_some(beta),
        ]
    }
}

/// What is the same for all rows.
struct Block<W> {
    bias: Vec<W>,
    gamma: Vec<W>,
    beta: Vec<W>,
    epsilon: f64,
    mask: Option<Mask>,
}

impl<W: Wide> Block<W> {
    fn new<T: Scalar<Wide = W>>(input: &AddLayerNorm<Flex>) -> Self {
        Self {
            bias: widened::<T>(&input.bias),
            gamma: widened::<T>(&input.gamma),
            beta: widened::<T>(&input.beta),
            epsilon: input.epsilon,
            mask: input.dropout.mask(),
        }
    }

    /// `sum` = residual + mask · (x + bias) of one row, and the mask's `factor`s, which are left alone without dropout.
    #[inline(always)]
    fn add<S: Simd, T: Scalar<Wide = W>>(
        &self,
        simd: S,
        row: usize,
        [x, residual]: [&[T]; 2],
        sum: &mut [W],
        factor: &mut [W],
    ) {
        let summands = sum.iter_mut().zip(x).zip(&self.bias).zip(residual);
        match &self.mask {
            None => summands.for_each(|(((sum, x), &bias), residual)| {
                *sum = x.widen() + bias + residual.widen();
            }),
            Some(mask) => {
                factors(simd, mask, row as u64, factor);
                summands.zip(&*factor).for_each(|((((sum, x), &bias), residual), &factor)| {
                    *sum = (x.widen() + bias) * factor + residual.widen();
                });
            }
        }
    }
}

/// Consecutive rows.
struct ForwardTask<'a, T: Scalar> {
    first: usize,
    block: &'a Block<T::Wide>,
    /// Where not in `y`.
    x: Option<&'a [T]>,
    residual: &'a [T],
    y: &'a mut [T],
    mean: &'a mut [T::Wide],
    rstd: &'a mut [T::Wide],
}

impl<T: Scalar> WithSimd for ForwardTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Block { gamma, beta, epsilon, .. } = self.block;
        let hidden = gamma.len();
        let (mut sum, mut factor) = (vec![T::Wide::ZERO; hidden], vec![T::Wide::ZERO; hidden]);
        if let Some(x) = self.x {
            self.y.copy_from_slice(x);
        }
        let rows = self.y.chunks_exact_mut(hidden).zip(self.residual.chunks_exact(hidden));
        let statistics = self.mean.iter_mut().zip(self.rstd);
        for (row, ((y, residual), (mean, rstd))) in (self.first..).zip(rows.zip(statistics)) {
            self.block.add(simd, row, [y, residual], &mut sum, &mut factor);
            (*mean, *rstd) = sums::layer_norm_statistics(&sum, *epsilon);
            for (((&sum, &gamma), &beta), y) in sum.iter().zip(gamma).zip(beta).zip(y) {
                *y = T::narrow((sum - *mean) * *rstd * gamma + beta);
            }
        }
    }
}

/// The values of a task.
fn rows_of<V>(values: &[V], task: usize, size: usize) -> &[V] {
    &values[task * size..values.len().min((task + 1) * size)]
}

/// Consecutive rows.
struct BackwardTask<'a, T: Scalar> {
    first: usize,
    block: &'a Block<T::Wide>,
    x: &'a [T],
    residual: &'a [T],
    grad: &'a [T],
    mean: &'a [T::Wide],
    rstd: &'a [T::Wide],
    /// Where needed and not that of the residual.
    x_grad: Option<&'a mut [T]>,
    residual_grad: Option<&'a mut [T]>,
    /// Whether more than γ and β is asked for.
    inputs: bool,
    /// What it adds to the gradients of bias, γ and β.
    partial: &'a mut [Vec<T::Wide>; 3],
}

impl<T: Scalar> WithSimd for BackwardTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let gamma = &self.block.gamma;
        let hidden = gamma.len();
        let [bias_total, gamma_total, beta_total] = self.partial;
        let [mut normalized, mut factor, mut d] = [0; 3].map(|_| vec![T::Wide::ZERO; hidden]);
        let inputs = self.x.chunks_exact(hidden).zip(self.residual.chunks_exact(hidden));
        let rows = inputs.zip(self.grad.chunks_exact(hidden)).zip(self.mean.iter().zip(self.rstd));
        for (row, (((x, residual), grad), (&mean, &rstd))) in rows.enumerate() {
            self.block.add(simd, self.first + row, [x, residual], &mut normalized, &mut factor);
            normalized.iter_mut().for_each(|x| *x = (*x - mean) * rstd);
            d.iter_mut().zip(grad).for_each(|(d, grad)| *d = grad.widen());
            sums::layer_norm_parameters_backward(&d, &normalized, gamma_total, beta_total);
            if !self.inputs {
                continue;
            }
            sums::layer_norm_backward(&mut d, &normalized, gamma, rstd);
            let row = row * hidden..(row + 1) * hidden;
            if let Some(out) = &mut self.residual_grad {
                out[row.clone()].iter_mut().zip(&d).for_each(|(out, &d)| *out = T::narrow(d));
            }
            if self.block.mask.is_some() {
                d.iter_mut().zip(&factor).for_each(|(d, &factor)| *d = *d * factor);
            }
            if let Some(out) = &mut self.x_grad {
                out[row].iter_mut().zip(&d).for_each(|(out, &d)| *out = T::narrow(d));
            }
            accumulate(bias_total, &d);
        }
    }
}
