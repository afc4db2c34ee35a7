//! The operator made of Burn's primitive operations: right on every backend, and the yardstick of every kernel.
//!
//! Generic over the backend, so `Dispatch` is one of them: on devices that [`run`](crate::engine::run) does not list
//! (capture, LibTorch) Burn's own autodiff differentiates it.

use crate::engine::operator::{Gradients, Held, Operator, Output, Spec, Specs, Upstream};
use crate::numerics::dropout::DropoutOps;
use crate::numerics::sums::{self, narrow, wide};
use crate::ops::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp, Index, Summand, summands};
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{DType, IntDType, Shape, Slice};

impl Operator for EmbedLayerNormOp {
    /// Of words, token types, positions, gamma and beta.
    type Needs = [bool; 5];
    /// Mean and rstd of each token, [B, S, 1] in the dtype of the arithmetic.
    type Statistics<X: Held> = [X; 2];

    fn specs(inputs: &EmbedLayerNorm<Specs>) -> Vec<Spec> {
        let EmbedLayerNorm { shape: [batch, seq], gamma, .. } = inputs;
        let dtype = summands(inputs).into_iter().find_map(|rows| rows.table.as_ref()).unwrap_or(gamma).dtype;
        let of_token = Spec::statistic([*batch, *seq, 1], dtype);
        let shape = Shape::new([*batch, *seq, gamma.shape[0]]);
        vec![Spec { shape, dtype }, of_token.clone(), of_token]
    }

    fn reference<B: DropoutOps>(inputs: EmbedLayerNorm<B>) -> Output<Self, B> {
        let sum = sum::<B>(&inputs);
        let dtype = sum.dtype();
        let EmbedLayerNorm { gamma, beta, epsilon, .. } = &inputs;
        let (y, statistics) = sums::layer_norm::<B>(wide::<B>(sum), [gamma, beta], *epsilon);
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
        let [grad, gamma, beta] = sums::layer_norm_backward::<B>(sum, statistics, vectors, grad, needs);
        let Some(grad) = grad else { return vec![None, None, None, gamma, beta] };
        let grad = narrow::<B>(grad, dtype);
        let summands = summands(&inputs).into_iter().zip([words, types, positions]);
        let of_rows = |(rows, needed): (&Summand<B>, bool)| {
            needed.then(|| rows_backward::<B>(rows, grad.clone())).flatten()
        };
        summands.map(of_rows).chain([gamma, beta]).collect()
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
        Index::Ids { ids, padding_idx } => lookup::<B>(table, ids, *padding_idx),
        Index::Cyclic { first, period: 1 } => slice::<B>(table, *first, [1, 1]),
        // At least one sequence, also of no tokens.
        Index::Cyclic { first, period } => slice::<B>(table, *first, [(period / seq.max(1)).max(1), seq]),
    })
}

/// `table[ids]`, [B, S, H], without a gradient for the padding row.
pub(crate) fn lookup<B: Backend>(
    table: &FloatTensor<B>,
    ids: &IntTensor<B>,
    padding_idx: Option<usize>,
) -> FloatTensor<B> {
    let found = B::embedding(table.clone(), in_range::<B>(ids, table));
    let Some(pad) = padding_idx.filter(|_| B::ad_enabled(&table.device())) else {
        return found;
    };
    // The same values, but where the id is the padding index they come from a detached copy of its row: the mask
    // stops the gradient there, and what Burn's backward adds to the row is 0.0.
    let shape = found.shape();
    let pad_row = slice::<B>(&B::float_detach(table.clone()), pad, [1, 1]);
    B::float_mask_where(found, is_pad::<B>(ids, pad, shape.clone()), B::float_expand(pad_row, shape))
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
            let grad = match padding_idx {
                Some(pad) => {
                    let mask = is_pad::<B>(ids, *pad, grad.shape());
                    B::float_mask_fill(grad, mask, 0.0.into())
                }
                None => grad,
            };
            B::embedding_backward(table.clone(), grad, in_range::<B>(ids, table))
        }
    })
}

/// The ids, each moved to the nearest row of `table`: no lookup leaves it, whatever the backend checks.
fn in_range<B: Backend>(ids: &IntTensor<B>, table: &FloatTensor<B>) -> IntTensor<B> {
    let last = table.shape()[0].saturating_sub(1) as i64;
    B::int_clamp(widened::<B>(ids), 0i64.into(), last.into())
}

/// The ids in a dtype that counts to the end of every table: 8 and 16 bits are widened.
fn widened<B: Backend>(ids: &IntTensor<B>) -> IntTensor<B> {
    match ids.dtype() {
        DType::I8 | DType::U8 | DType::I16 | DType::U16 => B::int_cast(ids.clone(), IntDType::I32),
        _ => ids.clone(),
    }
}

/// Where `ids` are `pad`, expanded to `shape` [B, S, H].
fn is_pad<B: Backend>(ids: &IntTensor<B>, pad: usize, shape: Shape) -> BoolTensor<B> {
    let [rows, seq] = ids.shape().dims();
    let dtype = get_or_init_device_settings::<B>(&ids.device()).bool_dtype;
    let mask = B::int_equal_elem(widened::<B>(ids), (pad as i64).into(), dtype);
    B::bool_expand(B::bool_reshape(mask, Shape::new([rows, seq, 1])), shape)
}
