//! Flex, Burn's CPU backend: one pass over the tokens, forward and backward, in parallel.
//!
//! The backward takes tokens in the order of their position rows. Each task owns the position rows that begin in it and
//! adds to them as it goes; the words' rows are handed out by [`Scatter`]; what is left (γ, β, the few
//! token types, a position row that began in an earlier task) is summed per task and merged in order.

mod tables;

use crate::engine::operator::{Gradients, Output, Upstream};
use crate::flex::mask::for_groups;
use crate::flex::row::{Norm, accumulate, parameters_backward};
use crate::flex::{HostKernels, Scalar, Wide, for_each, of_rows, simd_fn, slice, statistics, tensor};
use crate::ops::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp};
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use tables::{Scatter, Source, Values, assert_in_range, rows, sources, summands_of};

impl HostKernels for EmbedLayerNormOp {
    fn forward<T: Scalar>(input: EmbedLayerNorm<Flex>) -> Output<Self, Flex> {
        let [batch, seq] = input.shape;
        let norm = Norm::new::<T>([&input.gamma, &input.beta], input.epsilon, &input.dropout);
        let sources = sources(&input);
        assert_in_range(&input, &sources);
        let (tokens, hidden) = (batch * seq, norm.gamma.len());
        let summands = summands_of(&sources);
        let mut y = vec![T::default(); tokens * hidden];
        let mut found = vec![[T::Wide::ZERO; 2]; tokens];
        let tasks = y.chunks_mut(TASK * hidden).zip(found.chunks_mut(TASK));
        for_each(tokens * hidden, tasks.enumerate(), |(task, (y, found))| {
            forward(task * TASK, summands, &norm, y, found);
        });
        (tensor(y, Shape::new([batch, seq, hidden])), statistics(&found, Shape::new([batch, seq, 1])))
    }

    fn backward<T: Scalar>(input: EmbedLayerNorm<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        backward::<T>(&input, upstream)
    }
}

simd_fn! {
    /// Tokens from `first` on.
    fn forward<S, T: Scalar>(
        simd,
        first: usize,
        summands: [Values<'a, T>; 3],
        norm: &'a Norm<T::Wide>,
        y: &'a mut [T],
        statistics: &'a mut [[T::Wide; 2]],
    ) {
        let hidden = norm.gamma.len();
        let [mut sum, mut scaled] = [(); 2].map(|()| vec![T::Wide::ZERO; hidden]);
        for (token, (y, statistics)) in (first..).zip(y.chunks_exact_mut(hidden).zip(statistics)) {
            add_rows(rows(&summands, token, hidden), &mut sum);
            *statistics = match &norm.mask {
                None => norm.forward(&sum, y),
                Some(mask) => {
                    // Wide, for the mask's loop to read: it draws words for whole groups.
                    let statistics = norm.forward(&sum, &mut scaled);
                    for_groups(simd, mask, token as u64, y, &scaled, |factor, y, x| *y = T::narrow(x * factor));
                    statistics
                }
            };
        }
    }
}

/// Tokens that are worked on in one go.
const TASK: usize = 64;

/// `sum` = the rows added up, each addition rounded to `T`.
#[inline(always)]
fn add_rows<T: Scalar>(rows: [Option<&[T]>; 3], sum: &mut [T::Wide]) {
    // As Burn's additions round: the reference adds tensors.
    let round = |wide: T::Wide| T::narrow(wide).widen();
    let mut present = rows.into_iter().flatten();
    match (present.next(), present.next(), present.next()) {
        (Some(a), Some(b), Some(c)) => {
            for (((x, a), b), c) in sum.iter_mut().zip(a).zip(b).zip(c) {
                *x = round(round(a.widen() + b.widen()) + c.widen());
            }
        }
        (Some(a), Some(b), None) => {
            sum.iter_mut().zip(a).zip(b).for_each(|((x, a), b)| *x = round(a.widen() + b.widen()));
        }
        (Some(a), None, None) => sum.iter_mut().zip(a).for_each(|(x, a)| *x = a.widen()),
        _ => sum.fill(T::Wide::ZERO),
    }
}

/// The gradients that are needed.
fn backward<T: Scalar>(
    input: &EmbedLayerNorm<Flex>,
    upstream: Upstream<EmbedLayerNormOp, Flex>,
) -> Gradients<Flex> {
    let Upstream { statistics, grad, needs: [words, types, positions, gamma, beta] } = upstream;
    let [batch, seq] = input.shape;
    let tokens = batch * seq;
    let norm = Norm::new::<T>([&input.gamma, &input.beta], input.epsilon, &input.dropout);
    let hidden = norm.gamma.len();
    let sources = sources(input);
    let needed = |needed: bool, source: usize| sources[source].as_ref().filter(|_| needed);
    let (words, types, positions) = (needed(words, 0), needed(types, 1), needed(positions, 2));
    // By position row where positions are trained, so that a row's tokens are neighbours.
    let order = positions.map_or_else(|| (0..tokens as u32).collect(), |source| source.order(tokens));

    let mut position_grad = positions.map(Source::zeros).unwrap_or_default();
    let mut word_grad = words.map(Source::zeros).unwrap_or_default();
    let scatter = Scatter::new(
        words.into_iter().flat_map(|words| order.iter().map(|&token| words.trained_row(token as usize))),
    );
    let mut duplicates = vec![T::Wide::ZERO; scatter.duplicates() * hidden];

    let (statistics, grad) = (of_rows(statistics), grad.to_contiguous());
    let batch = Batch {
        summands: summands_of::<T>(&sources),
        types,
        positions,
        words: words.is_some(),
        norm: &norm,
        statistics: &statistics,
        grad: slice(&grad),
    };
    let mut targets = scatter.targets(tokens, hidden, &mut word_grad, &mut duplicates);
    let mut partials: Vec<_> = (0..tokens.div_ceil(TASK)).map(|_| Partial::zeros(hidden)).collect();
    let position_rows = position_rows(positions, &order, &mut position_grad, hidden);
    let tasks = order.chunks(TASK).zip(position_rows).zip(targets.chunks_mut(TASK)).zip(&mut partials);
    for_each(tokens * hidden, tasks, |(((tokens, (first, rows)), targets), partial)| {
        backward_tokens(&batch, tokens, targets, first, rows, partial);
    });
    scatter.merge(hidden, &mut word_grad, &duplicates);

    let mut type_grad = types.map(Source::zeros).unwrap_or_default();
    let [mut gamma_grad, mut beta_grad] = [(); 2].map(|()| vec![T::Wide::ZERO; hidden]);
    // In the order of tasks, whatever thread ran them.
    for partial in partials {
        accumulate(&mut gamma_grad, &partial.gamma);
        accumulate(&mut beta_grad, &partial.beta);
        for (row, sum) in partial.types {
            accumulate(&mut type_grad[row * hidden..][..hidden], &sum);
        }
        for (row, sum) in partial.positions {
            accumulate(&mut position_grad[row * hidden..][..hidden], &sum);
        }
    }
    let vector = |values| tensor(T::narrow_all(values), input.gamma.shape());
    vec![
        words.map(|words| words.tensor::<T>(word_grad)),
        types.map(|types| types.tensor::<T>(type_grad)),
        positions.map(|positions| positions.tensor::<T>(position_grad)),
        // Computed in any case: beside the others they cost nothing.
        gamma.then(|| vector(gamma_grad)),
        beta.then(|| vector(beta_grad)),
    ]
}

/// What all tasks read.
struct Batch<'a, T: Scalar> {
    summands: [Values<'a, T>; 3],
    /// Where trained.
    types: Option<&'a Source>,
    positions: Option<&'a Source>,
    words: bool,
    norm: &'a Norm<T::Wide>,
    statistics: &'a [[T::Wide; 2]],
    grad: &'a [T],
}

/// For each task the first position row that begins in it, and the gradients of all that do.
fn position_rows<'a, W>(
    positions: Option<&Source>,
    order: &[u32],
    mut position_grad: &'a mut [W],
    hidden: usize,
) -> Vec<(usize, &'a mut [W])> {
    let position = |place: usize| positions.map(|source| source.row(order[place] as usize));
    let begins = |&place: &usize| place == 0 || position(place) != position(place - 1);
    let mut tasks = Vec::new();
    // From the last task to the first: each takes the position rows from its first beginning on.
    for start in (0..order.len()).step_by(TASK).rev() {
        let first = (start..order.len().min(start + TASK)).find(begins).and_then(position);
        let first = first.unwrap_or(position_grad.len() / hidden);
        let (rest, own) = position_grad.split_at_mut(first * hidden);
        position_grad = rest;
        tasks.push((first, own));
    }
    tasks.reverse();
    tasks
}

/// What a task adds to sums that others add to as well.
struct Partial<W> {
    gamma: Vec<W>,
    beta: Vec<W>,
    /// By row.
    types: Vec<(usize, Vec<W>)>,
    positions: Vec<(usize, Vec<W>)>,
}

impl<W: Wide> Partial<W> {
    fn zeros(hidden: usize) -> Self {
        Self { gamma: vec![W::ZERO; hidden], beta: vec![W::ZERO; hidden], types: vec![], positions: vec![] }
    }
}

simd_fn! {
    /// Some `tokens`, which have a target each where their word's gradient is stored; and the gradients of the position rows
    /// from `first_position` on that begin here.
    fn backward_tokens<S, T: Scalar>(
        simd,
        batch: &'a Batch<'a, T>,
        tokens: &'a [u32],
        targets: &'a mut [Option<&'a mut [T::Wide]>],
        first_position: usize,
        position_grad: &'a mut [T::Wide],
        partial: &'a mut Partial<T::Wide>,
    ) {
        let Batch { types, positions, words, norm, statistics, grad, .. } = *batch;
        let hidden = norm.gamma.len();
        let [mut normalized, mut sum] = [(); 2].map(|()| vec![T::Wide::ZERO; hidden]);
        let trains_rows = words || types.is_some() || positions.is_some();
        for (&token, target) in tokens.iter().zip(targets) {
            let token = token as usize;
            let [mean, rstd] = statistics[token];
            let grad = &grad[token * hidden..][..hidden];
            add_rows(rows(&batch.summands, token, hidden), &mut normalized);
            normalized.iter_mut().for_each(|x| *x = (*x - mean) * rstd);
            match &norm.mask {
                Some(mask) => {
                    let drop = |factor, d: &mut T::Wide, grad: T| *d = grad.widen() * factor;
                    for_groups(simd, mask, token as u64, &mut sum, grad, drop);
                }
                None => sum.iter_mut().zip(grad).for_each(|(d, grad)| *d = grad.widen()),
            }
            parameters_backward(&sum, &normalized, &mut partial.gamma, &mut partial.beta);
            // Only γ and β are trained.
            if !trains_rows {
                continue;
            }
            norm.backward(&mut sum, &normalized, rstd);
            if let Some(target) = target {
                target.copy_from_slice(&sum);
            }
            if let Some(row) = types.and_then(|types| types.trained_row(token)) {
                accumulate(sum_at(&mut partial.types, row, hidden), &sum);
            }
            if let Some(row) = positions.and_then(|positions| positions.trained_row(token)) {
                match row.checked_sub(first_position) {
                    Some(own) => accumulate(&mut position_grad[own * hidden..][..hidden], &sum),
                    // Another task owns the row: its sum there and the one here are added up in the order of tasks.
                    None => accumulate(sum_at(&mut partial.positions, row, hidden), &sum),
                }
            }
        }
    }
}

/// The sum of `row`, begun if need be.
fn sum_at<W: Wide>(sums: &mut Vec<(usize, Vec<W>)>, row: usize, hidden: usize) -> &mut [W] {
    // From the end: the row before is the likeliest.
    let place = sums.iter().rposition(|&(found, _)| found == row).unwrap_or_else(|| {
        sums.push((row, vec![W::ZERO; hidden]));
        sums.len() - 1
    });
    &mut sums[place].1
}
