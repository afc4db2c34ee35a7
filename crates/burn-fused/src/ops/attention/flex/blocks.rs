//! Heads of sequences and blocks of their logits: which rows and columns of the inputs they read, and how they are scaled.

use super::super::Attention;
use crate::flex::row::accumulate;
use crate::flex::{Scalar, Wide, multiply, slice, tensor, widened};
use crate::numerics::philox::{GROUP, Mask};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType, Shape};
use std::ops::Range;

/// The most keys that a block takes whole: with more it works in parts, and its backward computes the logits twice. Not tuned
/// (`cargo bench --bench encoder_operators` times attention at 128 and 4,096 keys).
const WHOLE: usize = 1024;

/// The most keys of a part of a block with more than [`WHOLE`]: with [`BLOCK`](Head::blocks) queries its logits are the most that
/// [`VALUES`](Head::blocks) allows. Not tuned.
const KEYS: usize = 512;

/// The most keys that are multiplied at a time, of so many: equal parts that begin at groups of random words.
fn part(keys: usize) -> usize {
    if keys <= WHOLE { keys.max(1) } else { keys.div_ceil(keys.div_ceil(KEYS)).next_multiple_of(GROUP) }
}

/// One head of one sequence.
pub(super) struct Head<'a, T> {
    pub(super) input: &'a Attention<Flex>,
    pub(super) mask: Option<Mask>,
    /// [L, L].
    bias: Option<&'a [T]>,
    /// Index of the head among B · A.
    index: usize,
    /// Rows of the sequence in [N, H].
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

/// The heads of a batch: all of the first sequence, then all of the second.
pub(super) fn heads<T: Scalar>(input: &Attention<Flex>) -> Vec<Head<'_, T>> {
    let (mask, biases) = (input.dropout.mask(), input.bias.as_ref().map(|bias| slice::<T>(bias)));
    let pairs = input.longest * input.longest;
    let columns = input.query.shape()[1] / input.heads;
    let mut heads = Vec::with_capacity(input.lengths.len() * input.heads);
    let mut first = 0;
    for &length in &input.lengths {
        for head in 0..input.heads {
            let (rows, columns) = (first..first + length, head * columns..(head + 1) * columns);
            // One for all sequences repeats.
            let bias = biases.map(|biases| &biases[heads.len() * pairs % biases.len()..][..pairs]);
            heads.push(Head { input, mask, bias, index: heads.len(), rows, columns });
        }
        first += length;
    }
    heads
}

impl<T> Head<'_, T> {
    /// The blocks of queries, with the keys that are in their window.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block<'_, T>> {
        /// The most queries of a block: a matmul has rows enough for the packing of its columns to be paid for. Not tuned.
        const BLOCK: usize = 128;
        /// The most logits of a block, or of a part of one: 256 KiB in f32, which stay in a second cache of 512 KiB or more.
        const VALUES: usize = 64 * 1024;
        /// More multiplications than a product of a block has, so that its operands stay in a core's cache. Not tuned:
        /// burn-fused-matmul shares products of 2²⁰ and more with threads that are idle.
        const PRODUCT: usize = 192 * 192 * 192;
        let (length, window) = (self.rows.len(), self.input.window);
        let keys = part(length.min(2 * window.min(length) + BLOCK)); // at most
        let widest = keys + if self.input.has_distances() { BLOCK } else { 0 };
        let fits = (PRODUCT - 1) / (widest * self.columns.len()).max(1);
        // An empty sequence has no logits to divide by.
        let step = BLOCK.min(VALUES / keys.max(1)).min(fits).max(1);
        (0..length).step_by(step).map(move |first| {
            let end = length.min(first + step);
            let keys = first.saturating_sub(window)..length.min(end + window);
            Block { head: self, queries: first..end, keys }
        })
    }
}

/// Some queries of a sequence, and the keys that one of them attends to, or some of these.
#[derive(Clone)]
pub(super) struct Block<'a, T> {
    pub(super) head: &'a Head<'a, T>,
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
}

impl<T: Scalar> Block<'_, T> {
    /// The head's part of some rows of a matrix, for a product: a view, but of f16 a copy that is wide.
    fn rows(&self, matrix: &FloatTensor<Flex>, first: usize, count: usize) -> FloatTensor<Flex> {
        let columns = &self.head.columns;
        let view = matrix.narrow(0, first, count).narrow(1, columns.start, columns.len());
        if T::dtype() != DType::F16 {
            return view;
        }
        // Matmuls take f32 and bf16.
        tensor(widened::<T>(&view), view.shape())
    }

    /// The head's part of some rows of its sequence in [N, H].
    pub(super) fn view(&self, rows: &FloatTensor<Flex>, range: &Range<usize>) -> FloatTensor<Flex> {
        self.rows(rows, self.head.rows.start + range.start, range.len())
    }

    /// The rows of the distances from queries to keys, of vectors [2L − 1, H].
    pub(super) fn vectors(&self, vectors: &FloatTensor<Flex>) -> FloatTensor<Flex> {
        self.rows(vectors, self.first_distance(), self.distances())
    }

    /// The logits before they are scaled, without the bias.
    pub(super) fn products(&self) -> FloatTensor<Flex> {
        let Attention { query, key, by_query, by_key, .. } = self.head.input;
        let (query, all_keys) = (self.view(query, &self.queries), self.view(key, &self.keys));
        let mut logits = multiply(query.clone(), all_keys.transpose(0, 1));
        let [queries, keys] = [self.queries.len(), self.keys.len()];
        if let Some(vectors) = by_query {
            let products = multiply(query, self.vectors(vectors).transpose(0, 1));
            let products = products.storage().chunks_exact(self.distances());
            let rows = logits.storage_mut::<T::Wide>().chunks_exact_mut(keys);
            for (i, (logits, products)) in rows.zip(products).enumerate() {
                accumulate(logits, &products[queries - 1 - i..][..keys]);
            }
        }
        if let Some(vectors) = by_key {
            for part in self.squares() {
                let products = multiply(part.view(key, &part.keys), part.vectors(vectors).transpose(0, 1));
                let products = products.storage::<T::Wide>();
                part.for_each_pair(&self.keys, logits.storage_mut(), |logit, at| *logit += products[at]);
            }
        }
        logits
    }

    /// The same queries, and some of the keys at a time.
    pub(super) fn parts(&self) -> impl ExactSizeIterator<Item = Self> {
        self.steps(part(self.keys.len()))
    }

    /// The same queries, and about as many keys at a time, but at least 32 (not tuned): of more keys, most distances would be those of no
    /// pair.
    pub(super) fn squares(&self) -> impl ExactSizeIterator<Item = Self> {
        self.steps(self.queries.len().max(32))
    }

    fn steps(&self, step: usize) -> impl ExactSizeIterator<Item = Self> {
        let keys = self.keys.clone().step_by(step);
        keys.map(move |first| Self { keys: first..self.keys.end.min(first + step), ..self.clone() })
    }

    /// How many distances from query to key there are.
    fn distances(&self) -> usize {
        self.queries.len() + self.keys.len() - 1
    }

    /// The first of them, of 2L − 1.
    pub(super) fn first_distance(&self) -> usize {
        self.keys.start + self.head.input.longest - self.queries.end
    }

    /// Calls `f` with each value of [queries, `all` keys] that is of these keys, and where its key and distance are in [keys,
    /// distances].
    fn for_each_pair(
        &self,
        all: &Range<usize>,
        values: &mut [T::Wide],
        mut f: impl FnMut(&mut T::Wide, usize),
    ) {
        let ([queries, keys], distances) = ([self.queries.len(), self.keys.len()], self.distances());
        let skipped = self.keys.start - all.start;
        /// Keys at a time: with 128 queries and as many keys, their 16 rows of 255 distances are 16 KiB in f32, which stay in the first
        /// cache while the queries walk along them.
        const NEAR: usize = 16;
        for some in (0..keys).step_by(NEAR).map(|first| first..keys.min(first + NEAR)) {
            for (i, values) in values.chunks_exact_mut(all.len()).enumerate() {
                let first = queries - 1 - i;
                values[skipped..][some.clone()]
                    .iter_mut()
                    .zip(some.clone())
                    .for_each(|(value, j)| f(value, j * distances + j + first));
            }
        }
    }

    /// Gradients of pairs, by query and distance.
    pub(super) fn by_query(&self, pairs: &[T::Wide]) -> FloatTensor<Flex> {
        let ([queries, keys], distances) = ([self.queries.len(), self.keys.len()], self.distances());
        let mut found = vec![T::Wide::ZERO; queries * distances];
        for (i, (found, pairs)) in found.chunks_exact_mut(distances).zip(pairs.chunks_exact(keys)).enumerate()
        {
            found[queries - 1 - i..][..keys].copy_from_slice(pairs);
        }
        tensor(found, Shape::new([queries, distances]))
    }

    /// Gradients of pairs of `all` keys, by these keys and distance.
    pub(super) fn by_key(&self, all: &Range<usize>, pairs: &mut [T::Wide]) -> FloatTensor<Flex> {
        let mut found = vec![T::Wide::ZERO; self.keys.len() * self.distances()];
        self.for_each_pair(all, pairs, |&mut pair, at| found[at] = pair);
        tensor(found, Shape::new([self.keys.len(), self.distances()]))
    }

    /// Which of all B · A · L rows of mask and statistics a row of the block is.
    pub(super) fn row(&self, row: usize) -> usize {
        self.head.index * self.head.input.longest + self.queries.start + row
    }

    /// The keys of a row of the block that are in its window; of a part of a block perhaps none.
    pub(super) fn keys_of(&self, row: usize) -> Range<usize> {
        let query = self.queries.start + row;
        let Range { start, end } = self.keys;
        let window = self.head.input.window;
        let first = query.saturating_sub(window).clamp(start, end);
        first..(query + window + 1).clamp(first, end)
    }

    /// The part of a row of all keys for some of them; the rest becomes zero.
    #[inline(always)]
    pub(super) fn inside<'r>(&self, row: &'r mut [T::Wide], keys: &Range<usize>) -> &'r mut [T::Wide] {
        let (first, end) = (keys.start - self.keys.start, keys.end - self.keys.start);
        row[..first].fill(T::Wide::ZERO);
        row[end..].fill(T::Wide::ZERO);
        &mut row[first..end]
    }

    /// Scales the products of a row and some keys, and adds their bias.
    #[inline(always)]
    pub(super) fn scale(&self, row: usize, keys: &Range<usize>, products: &mut [T::Wide]) {
        let scale = T::Wide::from_f64(self.head.input.scale);
        match self.head.bias {
            Some(bias) => {
                let bias = &bias[(self.queries.start + row) * self.head.input.longest..][keys.clone()];
                products.iter_mut().zip(bias).for_each(|(s, bias)| *s = *s * scale + bias.widen());
            }
            None => products.iter_mut().for_each(|s| *s = *s * scale),
        }
    }

    /// Room for dropout's factors of a row, which are drawn from this group of keys on.
    pub(super) fn factors(&self) -> (u32, Vec<T::Wide>) {
        let Range { start, end } = self.keys;
        let group = start / GROUP;
        let count = if self.head.mask.is_some() { end - group * GROUP } else { 0 };
        (group as u32, vec![T::Wide::ZERO; count])
    }
}

/// The rows of [N, H] cut up: for each head, its part of each row of its sequence.
pub(super) fn parts<'a, T>(heads: &[Head<T>], values: &'a mut [T], count: usize) -> Vec<Vec<&'a mut [T]>> {
    // The columns of a head are apart in memory: a slice for each row, so that threads share nothing.
    let mut parts: Vec<Vec<_>> = heads.iter().map(|head| Vec::with_capacity(head.rows.len())).collect();
    let mut rows = values.chunks_exact_mut(heads[0].columns.len() * count);
    for (sequence, parts) in heads.chunks(count).zip(parts.chunks_mut(count)) {
        for row in rows.by_ref().take(sequence[0].rows.len()) {
            let columns = row.chunks_exact_mut(sequence[0].columns.len());
            parts.iter_mut().zip(columns).for_each(|(part, columns)| part.push(columns));
        }
    }
    parts
}

/// Stores rows of a head, narrowed.
pub(super) fn store<T: Scalar>(parts: &mut [&mut [T]], values: &[T::Wide]) {
    let columns = parts.first().map_or(1, |part| part.len());
    for (part, row) in parts.iter_mut().zip(values.chunks_exact(columns)) {
        part.iter_mut().zip(row).for_each(|(part, &value)| *part = T::narrow(value));
    }
}
