//! Gather three rows, add them, normalise, drop: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod reference;

use crate::engine::operator::{Fields, Tensors, inputs};
use crate::engine::run::run;
use crate::numerics::dropout::Dropout;
use burn::backend::Dispatch;
use burn::prelude::*;

inputs! {
    /// B sequences of S tokens, vectors of length H.
    EmbedLayerNorm of EmbedLayerNormOp {
        nested {
            /// The first summand.
            words: Summand,
            /// The second summand.
            token_types: Summand,
            /// The third summand.
            positions: Summand,
            /// What dropout does to the result.
            dropout: Dropout,
        }
        floats {
            /// LayerNorm's scale γ, `[H]`.
            gamma,
            /// LayerNorm's shift β, `[H]`.
            beta,
        }
        plain {
            /// B and S.
            shape: [usize; 2],
            /// LayerNorm's ε.
            epsilon: f64,
        }
    }
}

/// One of the three summands.
#[derive(Clone, Debug)]
pub(crate) struct Summand<T: Tensors> {
    /// [V, H]: what the gradient flows to. Nothing is added without one.
    pub(crate) table: Option<T::Float>,
    pub(crate) rows: Index<T::Int>,
}

/// Which row of a table a token reads.
#[derive(Clone, Debug)]
pub(crate) enum Index<I> {
    Ids {
        /// [B, S], or [1, S] for all sequences alike.
        ids: I,
        /// The row that is read like any other and gets no gradient.
        padding_idx: Option<usize>,
    },
    /// Row `first + t mod period` for token t of the batch: with a period of 1 all read one row, with S consecutive ones in
    /// every sequence, with B · S each its own.
    Cyclic { first: usize, period: usize },
}

impl<T: Tensors> Summand<T> {
    pub(crate) fn operands(&self) -> [Option<&T::Float>; 1] {
        [self.table.as_ref()]
    }

    pub(crate) fn map<U: Tensors>(
        self,
        float: &mut impl FnMut(T::Float) -> U::Float,
        int: &mut impl FnMut(T::Int) -> U::Int,
    ) -> Summand<U> {
        let table = self.table.map(float);
        let rows = match self.rows {
            Index::Ids { ids, padding_idx } => Index::Ids { ids: int(ids), padding_idx },
            Index::Cyclic { first, period } => Index::Cyclic { first, period },
        };
        Summand { table, rows }
    }
}

/// One of the three summands of [`embed_layer_norm`]: where each token's vector comes from.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // three are made per forward; boxing them would cost more
pub enum Rows {
    /// Nothing is added.
    Absent,
    /// Row `ids[b, s]` of `table`.
    Lookup {
        /// The table, [V, H].
        table: Tensor<2>,
        /// [B, S], or [1, S] for all sequences alike.
        ids: Tensor<2, Int>,
        /// The row that is read like any other and gets no gradient.
        padding_idx: Option<usize>,
    },
    /// Row `first + s` of `table`: consecutive positions, the same in every sequence.
    Range {
        /// The table, [V, H].
        table: Tensor<2>,
        /// The row of token 0.
        first: usize,
    },
    /// One row of `table` for every token.
    Row {
        /// The table, [V, H].
        table: Tensor<2>,
        /// The row, below V.
        row: usize,
    },
    /// Given vectors, [B, S, H].
    Values(Tensor<3>),
}

/// LayerNorm over the last axis; an argument of [`embed_layer_norm`] and
/// [`add_layer_norm`](crate::add_layer_norm).
#[derive(Clone, Debug)]
pub struct Norm {
    /// The scale, `[H]`.
    pub gamma: Tensor<1>,
    /// The shift, `[H]`; `None` is zero.
    pub beta: Option<Tensor<1>>,
    /// ε under the root.
    pub epsilon: f64,
}

impl Norm {
    /// γ and β, dequantised.
    pub(crate) fn vectors(self) -> [Tensor<1>; 2] {
        let gamma = self.gamma.dequantize();
        let beta = self.beta.map_or_else(|| Tensor::zeros_like(&gamma), Tensor::dequantize);
        [gamma, beta]
    }
}

/// `Dropout(LayerNorm(words + token_types + positions))` in one pass, with its own backward.
///
/// With x the sum of a token's three vectors, rounded to the tables' dtype after each addition:
///
/// ```text
/// mean = Σ x / H
/// rstd = 1 / √(Σ (x − mean)² / H + ε)
/// y    = mask · ((x − mean) · rstd · γ + β)
/// ```
///
/// and with d = mask · ∂L/∂y, x̂ = (x − mean) · rstd and g = d · γ:
///
/// ```text
/// ∂L/∂β = Σ d
/// ∂L/∂γ = Σ d · x̂
/// ∂L/∂x = rstd · (g − Σ g / H − x̂ · Σ (g · x̂) / H)
/// ```
///
/// A table's row gets the sum of ∂L/∂x over the tokens that read it, a padding row exactly 0.
///
/// Dropout is active on autodiff devices, if `dropout` > 0. [`Device::seed`] makes its mask reproducible; the mask is
/// computed again in the backward and never stored. Quantised tensors are dequantised first, and get no gradient.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{Norm, Rows, embed_layer_norm};
///
/// let device = Device::default();
/// let table = Tensor::from_floats([[1.0, 3.0], [5.0, 5.0]], &device);
/// let ids = Tensor::from_ints([[0, 1]], &device);
/// let words = Rows::Lookup { table, ids, padding_idx: None };
/// let norm = Norm { gamma: Tensor::ones([2], &device), beta: None, epsilon: 1e-12 };
/// let y = embed_layer_norm([1, 2], [words, Rows::Absent, Rows::Absent], norm, 0.0);
/// let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
/// assert_eq!(y, [-1.0, 1.0, 0.0, 0.0]);
/// ```
///
/// # Shapes
///
/// - `shape`: [B, S]
/// - `[words, token_types, positions]`: each [B, S, H] once looked up; ids are [B, S], or [1, S] for all sequences
/// - output: [B, S, H]
///
/// # Numerics
///
/// Statistics and everything after them are computed in f32 for f16 and bf16 tables, otherwise in the tables' dtype; y is
/// rounded to it once.
///
/// # Panics
///
/// If shapes do not fit, a padding index has no row in its table, or `dropout` is not in [0, 1). Flex's kernel also
/// panics if an id has no row in its table; everything else takes the nearest row. Memory outside the table is never
/// read.
pub fn embed_layer_norm(shape: [usize; 2], rows: [Rows; 3], norm: Norm, dropout: f64) -> Tensor<3> {
    let epsilon = norm.epsilon;
    let [gamma, beta] = norm.vectors();
    let [hidden] = gamma.dims();
    assert_eq!(beta.dims(), [hidden], "beta must have the shape of gamma");
    let [words, token_types, positions] = rows;
    let mut input = EmbedLayerNorm {
        words: summand("input_ids", words, shape, hidden),
        token_types: summand("token_type_ids", token_types, shape, hidden),
        positions: summand("position_ids", positions, shape, hidden),
        dropout: Dropout(None),
        gamma: gamma.into_dispatch(),
        beta: beta.into_dispatch(),
        shape,
        epsilon,
    };
    input.dropout = Dropout::choose(dropout, EmbedLayerNormOp::operands::<Dispatch>(&input));
    Tensor::from_dispatch(run::<EmbedLayerNormOp, _>(input))
}

/// A summand as the backends take it: dequantised.
///
/// # Panics
///
/// Unless it has a row of length `hidden` for every token, and padding indices have a row.
fn summand(name: &str, rows: Rows, [batch, seq]: [usize; 2], hidden: usize) -> Summand<Dispatch> {
    let (table, rows) = match rows {
        // Nothing reads these rows.
        Rows::Absent => return Summand { table: None, rows: Index::Cyclic { first: 0, period: 1 } },
        Rows::Values(values) => {
            assert_eq!(values.dims(), [batch, seq, hidden], "{name} must have shape [B, S, H]");
            // A table that has a row for each token.
            let period = batch * seq;
            (values.dequantize().reshape([period, hidden]), Index::Cyclic { first: 0, period })
        }
        Rows::Lookup { table, ids, padding_idx } => {
            let [sequences, length] = ids.dims();
            assert!(
                (sequences == batch || sequences == 1) && length == seq,
                "{name}: ids of shape [{sequences}, {length}] do not fit a batch of [{batch}, {seq}]"
            );
            if let Some(pad) = padding_idx {
                let [rows, _] = table.dims();
                assert!(pad < rows, "{name}: the padding index is {pad}, but there are {rows} rows");
            }
            (table, Index::Ids { ids: ids.into_dispatch(), padding_idx })
        }
        Rows::Range { table, first } => (table, Index::Cyclic { first, period: seq }),
        Rows::Row { table, row } => (table, Index::Cyclic { first: row, period: 1 }),
    };
    let [found, length] = table.dims();
    if let Index::Cyclic { first, period } = rows {
        let needed = first + period;
        assert!(found >= needed, "{name}: row {} is needed, but there are {found}", needed - 1);
    }
    assert_eq!(length, hidden, "{name}: rows must be as long as gamma");
    Summand { table: Some(table.dequantize().into_dispatch()), rows }
}

/// `table[ids]`, [B, S] → [B, S, H]: the lookup of the reference of [`embed_layer_norm`], which never leaves the table.
pub fn lookup(table: Tensor<2>, ids: Tensor<2, Int>, padding_idx: Option<usize>) -> Tensor<3> {
    let table = table.dequantize().into_dispatch();
    Tensor::from_dispatch(reference::lookup::<Dispatch>(&table, &ids.into_dispatch(), padding_idx))
}

/// The three summands.
pub(crate) fn summands<T: Tensors>(input: &EmbedLayerNorm<T>) -> [&Summand<T>; 3] {
    [&input.words, &input.token_types, &input.positions]
}
