//! Flex, Burn's CPU backend: one pass over the logits forward, one backward that turns them into their gradient.

use super::{CrossEntropy, CrossEntropyOp};
use crate::engine::operator::{Gradients, Output, Upstream};
use crate::flex::row::{max_of, sum_of};
use crate::flex::scalar::Functions;
use crate::flex::{
    HostKernels, Scalar, Wide, for_each, indices, row_statistics, simd_fn, slice, statistics, tensor,
};
use burn::backend::Flex;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::IntTensor;
use burn::tensor::Shape;

/// Logits that are widened in one go: two kilobytes in f64, a part of the first cache. Not tuned.
const PIECE: usize = 256;

impl HostKernels for CrossEntropyOp {
    fn forward<T: Scalar>(input: CrossEntropy<Flex>) -> Output<Self, Flex> {
        let CrossEntropy { logits, labels } = input;
        let [rows, classes] = logits.layout().shape().dims();
        let labels = checked_labels(&labels, classes);
        let logits = logits.to_contiguous();
        let values = slice::<T>(&logits);
        let mut found = vec![[T::Wide::ZERO; 2]; rows];
        let tasks = values.chunks_exact(classes).zip(&mut found);
        for_each(values.len(), tasks, |(row, found)| *found = largest_and_log_sum(row));
        let losses = values.chunks_exact(classes).zip(&labels).zip(&found);
        let losses = losses.map(|((row, &label), [largest, log_sum])| {
            (*log_sum - (row[label as usize].widen() - *largest)).to_f64()
        });
        // In f64: in f32 the sum over thousands of rows would lose digits.
        let loss = T::Wide::from_f64(losses.sum::<f64>() / rows as f64);
        (tensor(vec![T::narrow(loss)], Shape::new([1])), statistics(&found, Shape::new([rows, 1])))
    }

    /// The logits become their gradient.
    fn backward<T: Scalar>(input: CrossEntropy<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        let Upstream { statistics, grad, .. } = upstream;
        let CrossEntropy { logits, labels } = input;
        let [rows, classes] = logits.layout().shape().dims();
        let labels = checked_labels(&labels, classes);
        let grad = grad.to_contiguous();
        let scale = T::Wide::from_f64(slice::<T>(&grad)[0].widen().to_f64() / rows as f64);
        let statistics = row_statistics(statistics);
        let mut gradient = logits.into_data(); // the logits' own memory, or a copy if something else holds them
        let values = gradient.as_mut_slice::<T>().expect("logits of the kernel's dtype");
        let tasks = values.chunks_exact_mut(classes).zip(&labels).zip(&statistics);
        for_each(rows * classes, tasks, |((row, &label), &statistics)| {
            into_gradient(row, label as usize, statistics, scale);
        });
        vec![Some(Flex::float_from_data(gradient, &Default::default()))]
    }
}

/// The labels, every one of them below `classes`.
fn checked_labels(labels: &IntTensor<Flex>, classes: usize) -> Vec<u32> {
    indices(labels, classes, |row, label| {
        let last = classes - 1;
        format!("labels[{row}] is {label}, but there are {classes} classes (valid labels: 0..={last})")
    })
}

simd_fn! {
    /// The largest logit m of one row, and log Σ exp(x − m).
    fn largest_and_log_sum<S, T: Scalar>(simd, row: &'a [T]) -> [T::Wide; 2] {
        let mut wide = [T::Wide::ZERO; PIECE];
        let mut most = T::Wide::from_f64(f64::NEG_INFINITY);
        for piece in row.chunks(PIECE) {
            let of_piece = max_of(widen(piece, &mut wide));
            most = if of_piece > most { of_piece } else { most };
        }
        // A second pass, for exponents at most 0: nothing overflows.
        let mut sum = T::Wide::ZERO;
        for piece in row.chunks(PIECE) {
            sum += sum_of(widen(piece, &mut wide), |x| Functions::exp::<S>(x - most));
        }
        [most, T::Wide::from_f64(sum.to_f64().ln())]
    }
}

#[inline(always)]
fn widen<'a, T: Scalar>(piece: &[T], wide: &'a mut [T::Wide; PIECE]) -> &'a [T::Wide] {
    let wide = &mut wide[..piece.len()];
    wide.iter_mut().zip(piece).for_each(|(wide, value)| *wide = value.widen());
    wide
}

simd_fn! {
    /// Turns one row of logits into its gradient.
    fn into_gradient<S, T: Scalar>(
        simd,
        row: &'a mut [T],
        label: usize,
        statistics: [T::Wide; 2],
        scale: T::Wide,
    ) {
        let [largest, log_sum] = statistics;
        let softmax = |logit: T| Functions::exp::<S>(logit.widen() - largest - log_sum);
        // Before the loop overwrites it.
        let of_label = softmax(row[label]);
        for logit in &mut *row {
            *logit = T::narrow(softmax(*logit) * scale);
        }
        let one = T::Wide::from_f64(1.0);
        row[label] = T::narrow((of_label - one) * scale);
    }
}
