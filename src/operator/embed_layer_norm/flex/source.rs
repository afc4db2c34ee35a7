//! The summands as the kernels read them.

use crate::operator::embed_layer_norm::check::{assert_fits, summands};
use crate::operator::embed_layer_norm::input::{EmbedLayerNorm, Rows};
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::{slice, tensor};
use burn::backend::Flex;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::DType;
use std::fmt::Display;

/// A summand whose tensors are contiguous and whose ids all have a row.
pub(super) struct Source {
    values: FloatTensor<Flex>,
    index: Index,
    padding_idx: Option<usize>,
}

/// Which row a token reads.
enum Index {
    /// By id, one for each token, or one for each place of a sequence.
    Lookup(Vec<u32>),
    Range {
        first: usize,
        seq: usize,
    },
    Row(usize),
    Values,
}

impl Source {
    /// `None` where nothing is added. The shapes must fit.
    ///
    /// # Panics
    ///
    /// If an id has no row in its table.
    fn new(name: &str, rows: &Rows<Flex>, seq: usize) -> Option<Self> {
        let mut padding = None;
        let (values, index) = match rows {
            Rows::Absent => return None,
            Rows::Lookup { table, ids, padding_idx } => {
                padding = *padding_idx;
                (table, Index::Lookup(checked_ids(name, ids, table.layout().shape()[0])))
            }
            Rows::Range { table, first } => (table, Index::Range { first: *first, seq }),
            Rows::Row { table, row } => (table, Index::Row(*row)),
            Rows::Values(values) => (values, Index::Values),
        };
        Some(Self { values: values.to_contiguous(), index, padding_idx: padding })
    }

    /// All values, row after row.
    fn values<T: Scalar>(&self) -> &[T] {
        slice(&self.values)
    }

    /// The row that `token`, counted over the batch, reads.
    #[inline(always)]
    pub(super) fn row(&self, token: usize) -> usize {
        match &self.index {
            Index::Lookup(ids) => ids[token % ids.len()] as usize,
            Index::Range { first, seq } => first + token % seq,
            Index::Row(row) => *row,
            Index::Values => token,
        }
    }

    /// The row that `token` reads, unless it is the padding row.
    pub(super) fn trained_row(&self, token: usize) -> Option<usize> {
        Some(self.row(token)).filter(|&row| Some(row) != self.padding_idx)
    }

    /// Whether the rows of a sequence are consecutive and those of all sequences alike.
    pub(super) fn is_range(&self) -> bool {
        matches!(self.index, Index::Range { .. })
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
///
/// # Panics
///
/// If shapes do not fit, or an id has no row in its table.
pub(super) fn sources(input: &EmbedLayerNorm<Flex>) -> [Option<Source>; 3] {
    assert_fits(input);
    summands(input).map(|(name, rows)| Source::new(name, rows, input.shape[1]))
}

/// A summand and its values, row after row.
pub(super) type Summand<'a, T> = Option<(&'a Source, &'a [T])>;

pub(super) fn summands_of<T: Scalar>(sources: &[Option<Source>; 3]) -> [Summand<'_, T>; 3] {
    sources.each_ref().map(|source| source.as_ref().map(|source| (source, source.values())))
}

/// The row of each summand that `token` reads.
#[inline(always)]
pub(super) fn rows<'a, T>(
    summands: &[Summand<'a, T>; 3],
    token: usize,
    hidden: usize,
) -> [Option<&'a [T]>; 3] {
    std::array::from_fn(|i| {
        let (source, values) = summands[i]?;
        Some(&values[source.row(token) * hidden..][..hidden])
    })
}

/// The ids, row-major. Every one of them is below `rows`.
fn checked_ids(name: &str, ids: &IntTensor<Flex>, rows: usize) -> Vec<u32> {
    let [_, columns] = ids.layout().shape().dims();
    let ids = ids.to_contiguous();
    match ids.dtype() {
        DType::I32 => checked(name, ids.storage::<i32>(), columns, rows),
        DType::I64 => checked(name, ids.storage::<i64>(), columns, rows),
        DType::U64 => checked(name, ids.storage::<u64>(), columns, rows),
        _ => checked(name, &ids.into_data().iter::<i64>().collect::<Vec<_>>(), columns, rows),
    }
}

fn checked<I>(name: &str, ids: &[I], columns: usize, rows: usize) -> Vec<u32>
where
    I: Copy + Display + TryInto<u32>,
{
    let check = |(place, &id): (usize, &I)| match id.try_into() {
        Ok(id) if (id as usize) < rows => id,
        _ => panic!(
            "{name}[{}][{}] is {id}, but the table has {rows} rows (valid ids: 0..={})",
            place / columns,
            place % columns,
            rows as i64 - 1
        ),
    };
    ids.iter().enumerate().map(check).collect()
}
