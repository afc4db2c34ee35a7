//! The backward pass.
//!
//! Tokens are taken in the order of their position rows. Each task owns the position rows that begin in it and
//! adds to them as it goes; the words' rows are handed out by [`Scatter`]; what is left (γ, β, the few
//! token types, a position row that began in an earlier task) is summed per task and merged in order.

use super::scatter::Scatter;
use super::source::{Source, Values, rows, sources, summands_of};
use super::{TASK, add_rows};
use crate::engine::operator::{Gradients, Upstream};
use crate::flex::layer_norm::{Norm, parameters_backward};
use crate::flex::mask::for_groups;
use crate::flex::sums::accumulate;
use crate::flex::{Scalar, Wide, for_each, of_rows, simd_fn, slice, tensor};
use crate::ops::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp, Summand};
use burn::backend::{Flex, TensorMetadata};
use std::ops::Range;

/// The gradients that are needed.
pub(super) fn backward<T: Scalar>(
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
    let is_range = matches!(input.positions, Summand::Range { .. });
    let order = Order::new(positions, is_range, input.shape);

    let mut position_grad = positions.map(Source::zeros).unwrap_or_default();
    let mut word_grad = words.map(Source::zeros).unwrap_or_default();
    let scatter = Scatter::new(
        words.into_iter().flat_map(|words| (0..tokens).map(|place| words.trained_row(order.token(place)))),
    );
    let mut duplicates = vec![T::Wide::ZERO; scatter.duplicates() * hidden];

    let (statistics, grad) = (of_rows(statistics), grad.to_contiguous());
    let batch = Batch {
        summands: summands_of::<T>(&sources),
        types,
        positions,
        words: words.is_some(),
        norm: &norm,
        order: &order,
        statistics: &statistics,
        grad: slice(&grad),
    };
    let mut targets = scatter.targets(tokens, hidden, &mut word_grad, &mut duplicates);
    let mut partials: Vec<_> = (0..tokens.div_ceil(TASK)).map(|_| Partial::zeros(hidden)).collect();
    let position_rows = batch.position_rows(tokens, &mut position_grad);
    let tasks = position_rows.into_iter().zip(targets.chunks_mut(TASK)).zip(&mut partials);
    for_each(tokens * hidden, tasks.enumerate(), |(task, (((first, rows), targets), partial))| {
        let places = task * TASK..tokens.min((task + 1) * TASK);
        backward_tokens(&batch, places, targets, first, rows, partial);
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
        gamma.then(|| vector(gamma_grad)),
        beta.then(|| vector(beta_grad)),
    ]
}

/// The order of work: by position row where positions are trained, so that a row's tokens are neighbours.
enum Order {
    Given,
    /// Token s of every sequence, then token s + 1.
    Columns {
        batch: usize,
        seq: usize,
    },
    Sorted(Vec<u32>),
}

impl Order {
    fn new(positions: Option<&Source>, is_range: bool, [batch, seq]: [usize; 2]) -> Self {
        let Some(positions) = positions else { return Order::Given };
        if is_range {
            return Order::Columns { batch, seq };
        }
        let mut tokens: Vec<u32> = (0..(batch * seq) as u32).collect();
        // Stable: tokens of a row stay in their order, and so does their sum.
        tokens.sort_by_key(|&token| positions.row(token as usize));
        Order::Sorted(tokens)
    }

    /// The token at a place.
    #[inline(always)]
    fn token(&self, place: usize) -> usize {
        match self {
            Order::Given => place,
            Order::Columns { batch, seq } => place % batch * seq + place / batch,
            Order::Sorted(tokens) => tokens[place] as usize,
        }
    }
}

/// What all tasks read.
struct Batch<'a, T: Scalar> {
    summands: [Values<'a, T>; 3],
    /// Where trained.
    types: Option<&'a Source>,
    positions: Option<&'a Source>,
    words: bool,
    norm: &'a Norm<T::Wide>,
    order: &'a Order,
    statistics: &'a [[T::Wide; 2]],
    grad: &'a [T],
}

impl<T: Scalar> Batch<'_, T> {
    /// For each task the first position row that begins in it, and the gradients of all that do.
    fn position_rows<'a>(
        &self,
        tokens: usize,
        mut position_grad: &'a mut [T::Wide],
    ) -> Vec<(usize, &'a mut [T::Wide])> {
        let hidden = self.norm.gamma.len();
        let position = |place| self.positions.map(|source| source.row(self.order.token(place)));
        let begins = |&place: &usize| place == 0 || position(place) != position(place - 1);
        let mut tasks = Vec::new();
        // From the last task to the first: each takes the position rows from its first beginning on.
        for start in (0..tokens).step_by(TASK).rev() {
            let first = (start..tokens.min(start + TASK)).find(begins).and_then(position);
            let first = first.unwrap_or(position_grad.len() / hidden);
            let (rest, own) = position_grad.split_at_mut(first * hidden);
            position_grad = rest;
            tasks.push((first, own));
        }
        tasks.reverse();
        tasks
    }
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
    /// The tokens at some `places`, which have a target each where their word's gradient is stored; and the gradients of the
    /// position rows from `first_position` on that begin here.
    fn backward_tokens<S, T: Scalar>(
        simd,
        batch: &'a Batch<'a, T>,
        places: Range<usize>,
        targets: &'a mut [Option<&'a mut [T::Wide]>],
        first_position: usize,
        position_grad: &'a mut [T::Wide],
        partial: &'a mut Partial<T::Wide>,
    ) {
        let Batch { types, positions, words, norm, order, statistics, grad, .. } = *batch;
        let hidden = norm.gamma.len();
        let [mut normalized, mut sum] = [(); 2].map(|()| vec![T::Wide::ZERO; hidden]);
        let trains_rows = words || types.is_some() || positions.is_some();
        for (place, target) in places.zip(targets) {
            let token = order.token(place);
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
    let place = sums.iter().rposition(|&(found, _)| found == row).unwrap_or_else(|| {
        sums.push((row, vec![W::ZERO; hidden]));
        sums.len() - 1
    });
    &mut sums[place].1
}
