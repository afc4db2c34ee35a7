//! Flex, Burn's CPU backend: one pass over the tokens, forward and backward, in parallel. The backward then adds up each
//! table's gradient, row by row.

use super::{EmbedLayerNorm, EmbedLayerNormOp, Index, summands};
use crate::engine::operator::{Gradients, Output, Upstream};
use crate::flex::mask::factors;
use crate::flex::row::{RowNorm, accumulate};
use crate::flex::{
    HostKernels, Scalar, Wide, for_each, indices, row_statistics, simd_fn, slice, statistics, tensor,
    total_of_each, vector_gradient,
};
use crate::numerics::precision::wide;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;

/// Tokens of a task: 64 rows of BERT-base are 192 KiB. Not tuned.
const TASK: usize = 64;

impl HostKernels for EmbedLayerNormOp {
    fn forward<T: Scalar>(input: EmbedLayerNorm<Flex>) -> Output<Self, Flex> {
        let [batch, seq] = input.shape;
        let norm = RowNorm::new::<T>([&input.gamma, &input.beta], input.epsilon, &input.dropout);
        let (tokens, hidden) = (batch * seq, norm.gamma.len());
        let tables = tables::<T>(&input);
        let sources = sources(&input, &tables);
        let mut y = vec![T::default(); tokens * hidden];
        let mut found = vec![[T::Wide::ZERO; 2]; tokens];
        let tasks = y.chunks_mut(TASK * hidden).zip(found.chunks_mut(TASK));
        for_each(tokens * hidden, tasks.enumerate(), |(task, (y, found))| {
            forward(task * TASK, &sources, &norm, y, found);
        });
        (tensor(y, Shape::new([batch, seq, hidden])), statistics(&found, Shape::new([batch, seq, 1])))
    }

    fn backward<T: Scalar>(input: EmbedLayerNorm<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        let Upstream { statistics, grad, needs: [words, types, positions, gamma, beta] } = upstream;
        let tokens = input.shape[0] * input.shape[1];
        let norm = RowNorm::new::<T>([&input.gamma, &input.beta], input.epsilon, &input.dropout);
        let hidden = norm.gamma.len();
        let tables = tables::<T>(&input);
        let sources = sources::<T>(&input, &tables);
        let statistics = row_statistics(statistics);
        let mut data = wide::<Flex>(grad).into_data(); // the gradient's own memory, or a copy if something else holds it
        let d = data.as_mut_slice::<T::Wide>().expect("a gradient of the kernel's dtype");
        let tasks = d.chunks_mut(TASK * hidden).zip(statistics.chunks(TASK)).enumerate();
        let totals = total_of_each(tokens * hidden, tasks, 2 * hidden, |(task, (d, statistics)), partial| {
            backward(task * TASK, &sources, &norm, statistics, d, partial);
        });

        let d = &*d;
        let table_gradient = |i: usize, needed: bool| {
            needed.then(|| tensor(table_gradient(&sources[i], d, hidden), tables[i].shape()))
        };
        vec![
            table_gradient(0, words),
            table_gradient(1, types),
            table_gradient(2, positions),
            gamma.then(|| vector_gradient(totals[..hidden].to_vec(), &input.gamma)),
            beta.then(|| vector_gradient(totals[hidden..].to_vec(), &input.beta)),
        ]
    }
}

/// The tables; where nothing is added, one row of −0: unlike 0, it leaves every sum as it is, one of −0 too.
fn tables<T: Scalar>(input: &EmbedLayerNorm<Flex>) -> [FloatTensor<Flex>; 3] {
    let hidden = input.gamma.shape()[0];
    let nothing = || tensor(vec![T::narrow(T::Wide::from_f64(-0.0)); hidden], Shape::new([1, hidden]));
    summands(input).map(|summand| summand.table.as_ref().map_or_else(nothing, |table| table.to_contiguous()))
}

/// A table, and which of its rows tokens read.
struct Source<'a, T> {
    /// The values of the table, row-major.
    values: &'a [T],
    /// The row that each token reads.
    rows: Vec<u32>,
    padding_idx: Option<usize>,
}

fn sources<'a, T: Scalar>(
    input: &EmbedLayerNorm<Flex>,
    tables: &'a [FloatTensor<Flex>; 3],
) -> [Source<'a, T>; 3] {
    let (tokens, summands) = (input.shape[0] * input.shape[1], summands(input));
    let names = ["input_ids", "token_type_ids", "position_ids"];
    std::array::from_fn(|i| {
        let table = &tables[i];
        let (rows, padding_idx) = match &summands[i].rows {
            Index::Ids { ids, padding_idx } => {
                let ([_, columns], count) = (ids.shape().dims(), table.shape()[0]);
                let ids = indices(ids, count, |index, id| {
                    let (name, row, column, last) = (names[i], index / columns, index % columns, count - 1);
                    format!(
                        "{name}[{row}][{column}] is {id}, but the table has {count} rows (valid ids: 0..={last})"
                    )
                });
                // Those of one sequence are for all.
                (ids.into_iter().cycle().take(tokens).collect(), *padding_idx)
            }
            Index::Cyclic { first, period } => {
                ((*first as u32..(first + period) as u32).cycle().take(tokens).collect(), None)
            }
        };
        Source { values: slice(table), rows, padding_idx }
    })
}

/// `sum` = the rows that `token` reads, added up, each addition rounded to `T`.
#[inline(always)]
fn add_rows<T: Scalar>(sources: &[Source<T>; 3], token: usize, sum: &mut [T::Wide]) {
    // As Burn's additions round: the reference adds tensors.
    let round = |wide: T::Wide| T::narrow(wide).widen();
    let (hidden, sources) = (sum.len(), sources.each_ref());
    let [a, b, c] = sources.map(|source| &source.values[source.rows[token] as usize * hidden..][..hidden]);
    for (((x, a), b), c) in sum.iter_mut().zip(a).zip(b).zip(c) {
        *x = round(round(a.widen() + b.widen()) + c.widen());
    }
}

simd_fn! {
    /// Tokens from `first` on.
    fn forward<S, T: Scalar>(
        simd,
        first: usize,
        sources: &'a [Source<'a, T>; 3],
        norm: &'a RowNorm<T::Wide>,
        y: &'a mut [T],
        statistics: &'a mut [[T::Wide; 2]],
    ) {
        let hidden = norm.gamma.len();
        let [mut sum, mut scaled, mut factor] = [(); 3].map(|()| vec![T::Wide::ZERO; hidden]);
        for (token, (y, statistics)) in (first..).zip(y.chunks_exact_mut(hidden).zip(statistics)) {
            add_rows(sources, token, &mut sum);
            *statistics = match &norm.mask {
                None => norm.forward(&sum, y),
                Some(mask) => {
                    // Wide: rounded once.
                    let statistics = norm.forward(&sum, &mut scaled);
                    factors(simd, mask, token as u64, 0, &mut factor);
                    for ((y, &x), &factor) in y.iter_mut().zip(&scaled).zip(&factor) {
                        *y = T::narrow(x * factor);
                    }
                    statistics
                }
            };
        }
    }
}

simd_fn! {
    /// Tokens from `first` on with the gradients of their y, which become those of their sums; adds to those of γ and β.
    fn backward<S, T: Scalar>(
        simd,
        first: usize,
        sources: &'a [Source<'a, T>; 3],
        norm: &'a RowNorm<T::Wide>,
        statistics: &'a [[T::Wide; 2]],
        d: &'a mut [T::Wide],
        partial: &'a mut [T::Wide],
    ) {
        let hidden = norm.gamma.len();
        let (gamma, beta) = partial.split_at_mut(hidden);
        let [mut sum, mut factor] = [(); 2].map(|()| vec![T::Wide::ZERO; hidden]);
        for (token, (d, &statistics)) in (first..).zip(d.chunks_exact_mut(hidden).zip(statistics)) {
            add_rows(sources, token, &mut sum);
            if let Some(mask) = &norm.mask {
                factors(simd, mask, token as u64, 0, &mut factor);
                d.iter_mut().zip(&factor).for_each(|(d, &factor)| *d = *d * factor);
            }
            norm.backward(&mut sum, statistics, d, [&mut *gamma, &mut *beta]);
        }
    }
}

/// The most tokens that share a row whose gradient one thread adds up; of more, columns are added up in parallel. Not tuned.
const LONG_RUN: usize = 64;

/// A table's gradient: for each row the sum of `d` over the tokens that read it, in their order; 0 for the padding row.
fn table_gradient<T: Scalar>(source: &Source<T>, d: &[T::Wide], hidden: usize) -> Vec<T> {
    // Sorted by row and then by token: a run is one row's tokens in their order.
    let rows = source.rows.iter().map(|&row| row as usize);
    let mut keys: Vec<(usize, usize)> =
        rows.zip(0..).filter(|&(row, _)| Some(row) != source.padding_idx).collect();
    keys.sort_unstable();
    let mut gradient = vec![T::Wide::ZERO; source.values.len()];
    let (mut rest, mut start) = (&mut gradient[..], 0);
    let mut work = Vec::new();
    for run in keys.chunk_by(|a, b| a.0 == b.0) {
        let (row, _) = run[0];
        let (own, behind) = std::mem::take(&mut rest)[(row - start) * hidden..].split_at_mut(hidden);
        (rest, start) = (behind, row + 1);
        // One long run would keep a single thread busy.
        let columns = if run.len() > LONG_RUN { LONG_RUN } else { hidden };
        work.extend(own.chunks_mut(columns).enumerate().map(|(i, own)| (own, i * columns, run)));
    }
    for_each(keys.len() * hidden, work.into_iter(), |(to, column, run)| {
        let add_up = |to: &mut [T::Wide], tokens: &[(usize, usize)]| {
            for &(_, token) in tokens {
                accumulate(to, &d[token * hidden + column..]);
            }
        };
        // If many tokens read one row, the sum of partial sums rounds less.
        let (first, further) = run.split_at(run.len().min(TASK));
        add_up(to, first);
        for tokens in further.chunks(TASK) {
            let mut sum = vec![T::Wide::ZERO; to.len()];
            add_up(&mut sum, tokens);
            accumulate(to, &sum);
        }
    });
    T::narrow_all(gradient)
}
