//! The backward pass.

use super::Block;
use crate::operator::add_layer_norm::AddLayerNorm;
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::sums::accumulate;
use crate::operator::flex::{layer_norm, rows_per_task, slice, tensor};
use crate::operator::parallel;
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use pulp::{Arch, Simd, WithSimd};

/// The gradients of x, bias, residual, gamma and beta that `needs` asks for.
pub(super) fn backward<T: Scalar>(
    input: &AddLayerNorm<Flex>,
    mean: &FloatTensor<Flex>,
    rstd: &FloatTensor<Flex>,
    grad: &FloatTensor<Flex>,
    needs: [bool; 5],
) -> Vec<Option<FloatTensor<Flex>>> {
    let [needs_x, needs_bias, needs_residual, needs_gamma, needs_beta] = needs;
    let block = Block::new::<T>(input);
    let hidden = block.gamma.len();
    let step = rows_per_task(hidden);
    let [x, residual, grad] = [&input.x, &input.residual, grad].map(|rows| rows.to_contiguous());
    let [x, residual, grad] = [&x, &residual, &grad].map(|rows| slice::<T>(rows));
    let [mean, rstd] = [mean, rstd].map(|values| values.to_contiguous());
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
    let tasks: Vec<_> = partials
        .iter_mut()
        .enumerate()
        .map(|(task, partial)| Task {
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
        })
        .collect();
    parallel::for_each(x.len(), tasks.into_iter(), |task| Arch::new().dispatch(task));

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

/// The values of a task.
fn rows_of<V>(values: &[V], task: usize, size: usize) -> &[V] {
    &values[task * size..values.len().min((task + 1) * size)]
}

/// Consecutive rows.
struct Task<'a, T: Scalar> {
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

impl<T: Scalar> WithSimd for Task<'_, T> {
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
            layer_norm::parameters_backward(&d, &normalized, gamma_total, beta_total);
            if !self.inputs {
                continue;
            }
            layer_norm::backward(&mut d, &normalized, gamma, rstd);
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
