//! The summands as the kernels read them, and rows of a table's gradient, handed out so that no two tokens write to the
//! same one.

use crate::flex::row::accumulate;
use crate::flex::{Scalar, Wide, for_each, slice, tensor};
use crate::ops::embed_layer_norm::{EmbedLayerNorm, Index, Summand, summands};
use burn::backend::Flex;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::DType;

/// A summand whose tensors are contiguous.
pub(super) struct Source {
    values: FloatTensor<Flex>,
    /// The row by id, one for each token, or one for each place of a sequence.
    ids: Option<Vec<u32>>,
    /// Without ids: the row of token 0, and the number of tokens after which the rows repeat.
    rows: [usize; 2],
    padding_idx: Option<usize>,
}

impl Source {
    /// `None` where nothing is added.
    fn new(summand: &Summand<Flex>) -> Option<Self> {
        let values = summand.table.as_ref()?.to_contiguous();
        Some(match &summand.rows {
            Index::Ids { ids, padding_idx } => {
                Self { values, ids: Some(row_ids(ids)), rows: [0, 1], padding_idx: *padding_idx }
            }
            Index::Cyclic { first, period } => {
                Self { values, ids: None, rows: [*first, *period], padding_idx: None }
            }
        })
    }

    /// Tokens by the row that they read, and those of a row in their order, so that its sum has one order.
    pub(super) fn order(&self, tokens: usize) -> Vec<u32> {
        let [_, period] = self.rows;
        if self.ids.is_none() {
            return (0..period).flat_map(|i| (i..tokens).step_by(period)).map(|token| token as u32).collect();
        }
        let mut order: Vec<u32> = (0..tokens as u32).collect();
        order.sort_by_key(|&token| self.row(token as usize)); // a stable sort
        order
    }

    /// All values, row after row.
    fn values<T: Scalar>(&self) -> &[T] {
        slice(&self.values)
    }

    /// The row that `token`, counted over the batch, reads.
    #[inline(always)]
    pub(super) fn row(&self, token: usize) -> usize {
        let [first, period] = self.rows;
        match &self.ids {
            Some(ids) => ids[token % ids.len()] as usize,
            None => first + token % period,
        }
    }

    /// The row that `token` reads, unless it is the padding row.
    pub(super) fn trained_row(&self, token: usize) -> Option<usize> {
        Some(self.row(token)).filter(|&row| Some(row) != self.padding_idx)
    }

    /// The gradient with as many zeros as there are values.
    pub(super) fn zeros<W: Wide>(&self) -> Vec<W> {
        vec![W::ZERO; self.values.layout().num_elements()]
    }

    /// A gradient as a tensor of the summand's shape and dtype.
    pub(super) fn tensor<T: Scalar>(&self, gradient: Vec<T::Wide>) -> FloatTensor<Flex> {
        tensor(T::narrow_all(gradient), self.values.layout().shape().clone())
    }
}

/// words, token_types and positions.
pub(super) fn sources(input: &EmbedLayerNorm<Flex>) -> [Option<Source>; 3] {
    summands(input).map(Source::new)
}

/// A summand and its values, row after row.
pub(super) type Values<'a, T> = Option<(&'a Source, &'a [T])>;

pub(super) fn summands_of<T: Scalar>(sources: &[Option<Source>; 3]) -> [Values<'_, T>; 3] {
    sources.each_ref().map(|source| source.as_ref().map(|source| (source, source.values())))
}

/// The row of each summand that `token` reads.
#[inline(always)]
pub(super) fn rows<'a, T>(
    summands: &[Values<'a, T>; 3],
    token: usize,
    hidden: usize,
) -> [Option<&'a [T]>; 3] {
    std::array::from_fn(|i| {
        let (source, values) = summands[i]?;
        Some(&values[source.row(token) * hidden..][..hidden])
    })
}

/// Panics, naming the id, unless every one has a row in its table. The forward does so; the backward gets the same ids.
pub(super) fn assert_in_range(input: &EmbedLayerNorm<Flex>, sources: &[Option<Source>; 3]) {
    let names = ["input_ids", "token_type_ids", "position_ids"];
    for ((name, summand), source) in names.into_iter().zip(summands(input)).zip(sources) {
        let Some(Source { ids: Some(found), .. }) = source else { continue };
        let Summand { table: Some(table), rows: Index::Ids { ids, .. } } = summand else { continue };
        let rows = table.layout().shape()[0];
        let Some(place) = found.iter().position(|&id| id as usize >= rows) else { continue };
        let [_, columns] = ids.layout().shape().dims();
        // Read again: what no row has may be u32::MAX by now.
        let data = ids.clone().into_data();
        let id = match data.dtype() {
            DType::U64 => data.iter::<u64>().nth(place).map(i128::from),
            _ => data.iter::<i64>().nth(place).map(i128::from),
        };
        panic!(
            "{name}[{}][{}] is {}, but the table has {rows} rows (valid ids: 0..={})",
            place / columns,
            place % columns,
            id.expect("a place among the ids"),
            rows - 1
        );
    }
}

/// The ids, row-major. One that no table has a row for is [`u32::MAX`].
fn row_ids(ids: &IntTensor<Flex>) -> Vec<u32> {
    fn narrow<I: Copy + TryInto<u32>>(ids: &[I]) -> Vec<u32> {
        ids.iter().map(|&id| id.try_into().unwrap_or(u32::MAX)).collect()
    }
    let ids = ids.to_contiguous();
    match ids.dtype() {
        DType::I32 => narrow(ids.storage::<i32>()),
        DType::I64 => narrow(ids.storage::<i64>()),
        DType::U64 => narrow(ids.storage::<u64>()),
        _ => narrow(&ids.into_data().iter::<i64>().collect::<Vec<_>>()),
    }
}

/// Above this many tokens in one row, its columns are summed in parallel.
const LONG_RUN: usize = 64;

/// Which token, by its place in the order of work, stores its gradient where.
///
/// The first token of each row stores into the table itself. Further ones store into rows of a buffer of
/// duplicates, which [`merge`](Self::merge) adds in the order of work.
pub(super) struct Scatter {
    /// Row (upper half) and place (lower half), sorted.
    keys: Vec<u64>,
}

impl Scatter {
    /// From the row of each place; `None` stores nothing.
    pub(super) fn new(rows: impl Iterator<Item = Option<usize>>) -> Self {
        // Sorted by row and then by place: a run is one row's tokens in the order of work.
        let mut keys: Vec<u64> =
            rows.zip(0u64..).filter_map(|(row, place)| Some((row? as u64) << 32 | place)).collect();
        keys.sort_unstable();
        Self { keys }
    }

    /// Rows that the buffer of duplicates needs.
    pub(super) fn duplicates(&self) -> usize {
        self.keys.len() - self.runs().count()
    }

    /// For each of `places` places, the row that it stores into.
    pub(super) fn targets<'a, W>(
        &self,
        places: usize,
        hidden: usize,
        table: &'a mut [W],
        duplicates: &'a mut [W],
    ) -> Vec<Option<&'a mut [W]>> {
        let mut targets = Vec::new();
        targets.resize_with(places, || None);
        let mut firsts = rows_mut(table, hidden, self.runs().map(|run| row(run[0])));
        let mut others = duplicates.chunks_exact_mut(hidden);
        for run in self.runs() {
            for (i, key) in run.iter().enumerate() {
                // Most rows of a batch are read once, so most gradients are written once, to where they belong.
                let target = if i == 0 { firsts.next() } else { others.next() };
                targets[*key as u32 as usize] = Some(target.expect("a row for every token"));
            }
        }
        targets
    }

    /// Adds the duplicates to their rows.
    pub(super) fn merge<W: Wide>(&self, hidden: usize, table: &mut [W], mut duplicates: &[W]) {
        let repeated = || self.runs().filter(|run| run.len() > 1);
        let values = duplicates.len();
        let mut work = Vec::new();
        for (row, run) in rows_mut(table, hidden, repeated().map(|run| row(run[0]))).zip(repeated()) {
            let (own, rest) = duplicates.split_at((run.len() - 1) * hidden);
            duplicates = rest;
            // One long run would keep a single thread busy.
            let columns = if run.len() > LONG_RUN { LONG_RUN } else { hidden };
            work.extend(row.chunks_mut(columns).enumerate().map(|(i, row)| (row, i * columns, own)));
        }
        for_each(values, work.into_iter(), |(row, column, duplicates)| {
            for duplicate in duplicates.chunks_exact(hidden) {
                accumulate(row, &duplicate[column..]);
            }
        });
    }

    fn runs(&self) -> impl Iterator<Item = &[u64]> {
        self.keys.chunk_by(|&a, &b| row(a) == row(b))
    }
}

fn row(key: u64) -> usize {
    (key >> 32) as usize
}

/// The `rows` of `table` [V, H], which must ascend.
fn rows_mut<W>(
    mut table: &mut [W],
    hidden: usize,
    rows: impl Iterator<Item = usize>,
) -> impl Iterator<Item = &mut [W]> {
    let mut start = 0;
    rows.map(move |row| {
        let rest = std::mem::take(&mut table).split_at_mut((row - start) * hidden).1;
        let (found, rest) = rest.split_at_mut(hidden);
        (table, start) = (rest, row + 1);
        found
    })
}
