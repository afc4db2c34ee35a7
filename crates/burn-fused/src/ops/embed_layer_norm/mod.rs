//! Gather three rows, add them, normalise, drop: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
mod lookup;

pub use lookup::lookup;

use crate::engine::inputs::{OperatorInputs, Tensors, inputs};
use crate::engine::operator::{Gradients, Operator, Output, Spec, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::{Dropout, DropoutOps};
use crate::numerics::layer_norm::{layer_norm, layer_norm_backward};
use crate::numerics::precision::{narrow, wide};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, TensorMetadata};
use burn::prelude::*;
use burn::tensor::Slice;
use lookup::{looked_up, scattered};

inputs! {
    /// B sequences of S tokens, vectors of length H. The statistics are mean and rstd of each token, [B, S, 1] in the dtype of the
    /// arithmetic.
    EmbedLayerNorm of EmbedLayerNormOp, operands: 5, statistics: 2 {
        nested { words: Summand, token_types: Summand, positions: Summand, dropout: Dropout, }
        floats { gamma, beta, }
        plain {
            /// B and S.
            shape: [usize; 2],
            epsilon: f64,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Summand<T: Tensors> {
    /// The table, [V, H], which the gradient flows to. Without one nothing is added.
    pub(crate) table: Option<T::Float>,
    pub(crate) rows: Index<T::Int>,
}

/// The row of a table that a token reads.
#[derive(Clone, Debug)]
pub(crate) enum Index<I> {
    /// The row of the token's id, [B, S] or [1, S]: see [`Rows::Lookup`].
    Ids { ids: I, padding_idx: Option<usize> },
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

/// One of the three summands of [`embed_layer_norm`]: where each token's vector comes from. A table is [V, H].
#[derive(Clone, Debug)]
// Fields are documented by the sentence of their variant.
#[allow(missing_docs)]
#[allow(clippy::large_enum_variant)] // three are made per forward; boxing them would cost more
pub enum Rows {
    /// Nothing is added.
    Absent,
    /// Row `ids[b, s]` of `table`, with ids [B, S], or [1, S] for all sequences alike. Row `padding_idx` is read like any other
    /// and gets no gradient.
    Lookup { table: Tensor<2>, ids: Tensor<2, Int>, padding_idx: Option<usize> },
    /// Row `first + s` of `table`: consecutive positions, the same in every sequence.
    Range { table: Tensor<2>, first: usize },
    /// Row `row` of `table` for every token.
    Row { table: Tensor<2>, row: usize },
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
/// assert_eq!(y.into_data(), TensorData::from([[[-1.0f32, 1.0], [0.0, 0.0]]]));
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
        let needed = first as u128 + period as u128; // more than usize holds
        assert!(found as u128 >= needed, "{name}: row {} is needed, but there are {found}", needed - 1);
    }
    assert_eq!(length, hidden, "{name}: rows must be as long as gamma");
    Summand { table: Some(table.dequantize().into_dispatch()), rows }
}

pub(crate) fn summands<T: Tensors>(input: &EmbedLayerNorm<T>) -> [&Summand<T>; 3] {
    [&input.words, &input.token_types, &input.positions]
}

impl Operator for EmbedLayerNormOp {
    fn specs<B: Backend>(inputs: &EmbedLayerNorm<B>) -> Vec<Spec> {
        let ([batch, seq], gamma) = (inputs.shape, &inputs.gamma);
        let table = summands(inputs).into_iter().find_map(|rows| rows.table.as_ref());
        let dtype = table.unwrap_or(gamma).dtype();
        let of_token = Spec::statistic([batch, seq, 1], dtype);
        let shape = Shape::new([batch, seq, gamma.shape()[0]]);
        vec![Spec { shape, dtype }, of_token.clone(), of_token]
    }

    fn reference<B: DropoutOps>(inputs: EmbedLayerNorm<B>) -> Output<Self, B> {
        let sum = sum::<B>(&inputs);
        let dtype = sum.dtype();
        let EmbedLayerNorm { gamma, beta, epsilon, .. } = &inputs;
        let (y, statistics) = layer_norm::<B>(wide::<B>(sum), [gamma, beta], *epsilon);
        (narrow::<B>(inputs.dropout.apply(y), dtype), statistics)
    }

    /// The tables' gradients share the dtype of y's.
    fn reference_backward<B: DropoutOps>(
        inputs: EmbedLayerNorm<B>,
        upstream: Upstream<Self, B>,
    ) -> Gradients<B> {
        let Upstream { statistics, grad, needs: [words, types, positions, gamma, beta] } = upstream;
        let dtype = grad.dtype();
        let grad = inputs.dropout.apply(wide::<B>(grad)); // [B, S, H]
        let (sum, vectors) = (wide::<B>(sum::<B>(&inputs)), [&inputs.gamma, &inputs.beta]);
        let needs = [words || types || positions, gamma, beta];
        let [grad, gamma, beta] = layer_norm_backward::<B>(sum, statistics, vectors, grad, needs);
        let Some(grad) = grad else { return vec![None, None, None, gamma, beta] };
        let grad = narrow::<B>(grad, dtype);
        let summands = summands(&inputs).into_iter().zip([words, types, positions]);
        let table_gradient = |(rows, needed): (&Summand<B>, bool)| {
            needed.then(|| rows_backward::<B>(rows, grad.clone())).flatten()
        };
        summands.map(table_gradient).chain([gamma, beta]).collect()
    }
}

/// words + token_types + positions, [B, S, H] in the tables' dtype.
fn sum<B: Backend>(inputs: &EmbedLayerNorm<B>) -> FloatTensor<B> {
    let [batch, seq] = inputs.shape;
    let hidden = inputs.gamma.shape()[0];
    let summands = summands(inputs).into_iter();
    let sum = summands.filter_map(|rows| rows_forward::<B>(rows, inputs.shape)).reduce(B::float_add);
    let shape = Shape::new([batch, seq, hidden]);
    match sum {
        Some(sum) if sum.shape() == shape => sum,
        Some(sum) => B::float_expand(sum, shape),
        None => B::float_zeros(shape, &inputs.gamma.device(), inputs.gamma.dtype().into()),
    }
}

/// One summand, of a shape that broadcasts to [B, S, H].
fn rows_forward<B: Backend>(summand: &Summand<B>, [_, seq]: [usize; 2]) -> Option<FloatTensor<B>> {
    let table = summand.table.as_ref()?;
    Some(match &summand.rows {
        Index::Ids { ids, padding_idx } => looked_up::<B>(table, ids, *padding_idx),
        Index::Cyclic { first, period: 1 } => slice::<B>(table, *first, [1, 1]),
        // At least one sequence, also of no tokens.
        Index::Cyclic { first, period } => slice::<B>(table, *first, [(period / seq.max(1)).max(1), seq]),
    })
}

/// B · S rows of `table` [V, H] from `first` on, as [B, S, H].
fn slice<B: Backend>(table: &FloatTensor<B>, first: usize, [batch, seq]: [usize; 2]) -> FloatTensor<B> {
    let hidden = table.shape()[1];
    let range = Slice::from(first..first + batch * seq);
    let rows = B::float_slice(table.clone(), &[range, Slice::from(0..hidden)]);
    B::float_reshape(rows, Shape::new([batch, seq, hidden]))
}

/// The gradient of a summand's table, given that of the sum, [B, S, H].
fn rows_backward<B: Backend>(summand: &Summand<B>, grad: FloatTensor<B>) -> Option<FloatTensor<B>> {
    let table = summand.table.as_ref()?;
    let [batch, seq, hidden] = grad.shape().dims();
    Some(match &summand.rows {
        Index::Cyclic { first, period } => {
            let grad = match *period {
                1 => B::float_sum_dims(grad, &[0, 1]),
                period if period == batch * seq => grad,
                _ => B::float_sum_dim(grad, 0),
            };
            let zeros = B::float_zeros(table.shape(), &table.device(), grad.dtype().into());
            let grad = B::float_reshape(grad, Shape::new([*period, hidden]));
            let rows = [Slice::from(*first..first + period), Slice::from(0..hidden)];
            B::float_slice_assign(zeros, &rows, grad)
        }
        Index::Ids { ids, padding_idx } => {
            let [rows, _] = ids.shape().dims();
            let grad = if rows < batch { B::float_sum_dim(grad, 0) } else { grad };
            scattered::<B>(table, ids, *padding_idx, grad)
        }
    })
}
