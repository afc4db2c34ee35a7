//! Where each token's vector comes from.

use crate::operator::inputs::Tensors;

/// One of the three summands.
#[derive(Clone, Debug)]
pub(crate) enum Rows<T: Tensors> {
    /// Nothing is added.
    Absent,
    /// Row `ids[b, s]` of `table` [V, H].
    Lookup {
        table: T::Float,
        /// [B, S], or [1, S] for all sequences alike.
        ids: T::Int,
        /// The row that is read like any other and gets no gradient.
        padding_idx: Option<usize>,
    },
    /// Row `first + s` of `table` [V, H]: consecutive positions, the same in every sequence; `first + S` is at most V.
    Range { table: T::Float, first: usize },
    /// One row of `table` [V, H] for every token.
    Row { table: T::Float, row: usize },
    /// Vectors of the caller, [B, S, H].
    Values(T::Float),
}

impl<T: Tensors> Rows<T> {
    /// What the gradient flows to: the table, or the vectors themselves.
    pub(crate) fn source(&self) -> Option<&T::Float> {
        match self {
            Rows::Absent => None,
            Rows::Lookup { table, .. } | Rows::Range { table, .. } | Rows::Row { table, .. } => Some(table),
            Rows::Values(values) => Some(values),
        }
    }

    pub(crate) fn operands(&self) -> [Option<&T::Float>; 1] {
        [self.source()]
    }

    pub(crate) fn map<U: Tensors>(
        self,
        float: &mut impl FnMut(T::Float) -> U::Float,
        int: &mut impl FnMut(T::Int) -> U::Int,
    ) -> Rows<U> {
        match self {
            Rows::Absent => Rows::Absent,
            Rows::Lookup { table, ids, padding_idx } => {
                Rows::Lookup { table: float(table), ids: int(ids), padding_idx }
            }
            Rows::Range { table, first } => Rows::Range { table: float(table), first },
            Rows::Row { table, row } => Rows::Row { table: float(table), row },
            Rows::Values(values) => Rows::Values(float(values)),
        }
    }
}

#[cfg(feature = "remote")]
mod wire {
    use super::Rows;
    use crate::operator::inputs::{Places, Tensors};
    use crate::operator::wire::{Number, Numbers, Plain};

    impl<T: Tensors> Rows<T> {
        pub(crate) fn put(&self, to: &mut Vec<Number>) {
            match self {
                Self::Absent => [0].put(to),
                Self::Lookup { padding_idx, .. } => {
                    [1].put(to);
                    padding_idx.put(to);
                }
                Self::Range { first, .. } => [2, *first].put(to),
                Self::Row { row, .. } => [3, *row].put(to),
                Self::Values(_) => [4].put(to),
            }
        }
    }

    impl Rows<Places> {
        pub(crate) fn take(from: &mut Numbers) -> Self {
            match usize::take(from) {
                1 => Self::Lookup { table: (), ids: (), padding_idx: Plain::take(from) },
                2 => Self::Range { table: (), first: Plain::take(from) },
                3 => Self::Row { table: (), row: Plain::take(from) },
                4 => Self::Values(()),
                _ => Self::Absent,
            }
        }
    }
}
