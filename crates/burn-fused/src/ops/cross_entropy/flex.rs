//! Flex, Burn's CPU backend: one pass over the logits forward, one backward that turns them into their gradient.

use super::{CrossEntropy, CrossEntropyOp};
use crate::engine::operator::Output;
use crate::flex::for_each;
use crate::flex::functions::Functions;
use crate::flex::scalar::{Scalar, Wide};
use crate::flex::sums::{max_of, sum_of};
use crate::flex::{HostKernels, slice, tensor};
use burn::backend::Flex;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::Shape;
use pulp::{Arch, Simd, WithSimd};

/// Logits that are widened in one go: two kilobytes in f64.
const PIECE: usize = 256;

impl HostKernels for CrossEntropyOp {
    fn forward<T: Scalar>(input: CrossEntropy<Flex>) -> Output<Self, Flex> {
        let CrossEntropy { logits, labels, .. } = input;
        let [rows, classes] = logits.layout().shape().dims();
        let labels = checked_labels(labels, classes);
        let logits = logits.to_contiguous();
        let values = slice::<T>(&logits);
        let mut statistics = vec![[T::Wide::ZERO; 2]; rows];
        let tasks = values.chunks_exact(classes).zip(&mut statistics);
        for_each(values.len(), tasks, |(row, statistics)| {
            *statistics = Arch::new().dispatch(Statistics(row));
        });
        let losses = values.chunks_exact(classes).zip(&labels).zip(&statistics);
        let losses = losses
            .map(|((row, &label), [largest, log_sum])| (*log_sum - (row[label].widen() - *largest)).to_f64());
        let loss = T::Wide::from_f64(losses.sum::<f64>() / rows as f64);
        let column = |i: usize| {
            tensor(statistics.iter().map(|statistics| statistics[i]).collect(), Shape::new([rows, 1]))
        };
        (tensor(vec![T::narrow(loss)], Shape::new([1])), [column(0), column(1)])
    }

    /// The logits become their gradient.
    fn backward<T: Scalar>(
        input: CrossEntropy<Flex>,
        statistics: [FloatTensor<Flex>; 2],
        grad: FloatTensor<Flex>,
        [needed]: [bool; 1],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        if !needed {
            return vec![None];
        }
        let CrossEntropy { logits, labels, .. } = input;
        let [rows, classes] = logits.layout().shape().dims();
        let labels = checked_labels(labels, classes);
        let grad = grad.to_contiguous();
        let scale = T::Wide::from_f64(slice::<T>(&grad)[0].widen().to_f64() / rows as f64);
        let [largest, log_sums] = statistics.map(|statistic| statistic.to_contiguous());
        let statistics = slice::<T::Wide>(&largest).iter().zip(slice::<T::Wide>(&log_sums));
        let mut gradient = logits.into_data(); // the logits' own memory, or a copy if something else holds them
        let values = gradient.as_mut_slice::<T>().expect("logits of the kernel's dtype");
        let tasks = values.chunks_exact_mut(classes).zip(&labels).zip(statistics);
        for_each(rows * classes, tasks, |((row, &label), (&largest, &log_sum))| {
            Arch::new().dispatch(Gradient { row, label, largest, log_sum, scale });
        });
        vec![Some(Flex::float_from_data(gradient, &Default::default()))]
    }
}

/// The labels, every one of them below `classes`.
fn checked_labels(labels: IntTensor<Flex>, classes: usize) -> Vec<usize> {
    let check = |(row, label): (usize, i64)| match usize::try_from(label) {
        Ok(label) if label < classes => label,
        _ => panic!(
            "labels[{row}] is {label}, but there are {classes} classes (valid labels: 0..={})",
            classes - 1
        ),
    };
    labels.into_data().iter::<i64>().enumerate().map(check).collect()
}

/// The largest logit m of one row, and log Σ exp(x − m).
struct Statistics<'a, T>(&'a [T]);

impl<T: Scalar> WithSimd for Statistics<'_, T> {
    type Output = [T::Wide; 2];

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> [T::Wide; 2] {
        let mut wide = [T::Wide::ZERO; PIECE];
        let mut most = T::Wide::from_f64(f64::NEG_INFINITY);
        for piece in self.0.chunks(PIECE) {
            let of_piece = max_of(widen(piece, &mut wide));
            most = if of_piece > most { of_piece } else { most };
        }
        // A second pass, for exponents at most 0: nothing overflows.
        let mut sum = T::Wide::ZERO;
        for piece in self.0.chunks(PIECE) {
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

/// One row of logits, to become its gradient.
struct Gradient<'a, T: Scalar> {
    row: &'a mut [T],
    label: usize,
    largest: T::Wide,
    log_sum: T::Wide,
    scale: T::Wide,
}

impl<T: Scalar> WithSimd for Gradient<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { row, label, largest, log_sum, scale } = self;
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
