//! The operator made of Burn's primitive operations: right on every backend, and the yardstick of every kernel.
//!
//! Generic over the backend, so `Dispatch` is one of them: on devices that the extension's macro does not list
//! (remote, capture, LibTorch) Burn's own autodiff differentiates [`embed_layer_norm`].

use crate::operator::dropout::ops::DropoutOps;
use crate::operator::dtype::{narrow, wide};
use crate::operator::embed_layer_norm::input::{EmbedLayerNorm, EmbedLayerNormGradients, Needs, Rows};
use crate::operator::rows;
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{DType, IntDType, Shape, Slice};

/// y, [B, S, H].
pub(crate) fn embed_layer_norm<B: DropoutOps>(input: EmbedLayerNorm<B>) -> FloatTensor<B> {
    let sum = sum::<B>(&input);
    let dtype = sum.dtype();
    let sum = wide::<B>(sum);
    let vector = |vector: &FloatTensor<B>| narrow::<B>(vector.clone(), sum.dtype());
    let (gamma, beta) = (vector(&input.gamma), vector(&input.beta));
    let y = B::layer_norm(sum, gamma, Some(beta), input.epsilon);
    narrow::<B>(input.dropout.apply(y), dtype)
}

/// y [B, S, H], mean and rstd [B, S, 1].
pub(crate) fn with_statistics<B: DropoutOps>(
    input: EmbedLayerNorm<B>,
) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let sum = sum::<B>(&input);
    let dtype = sum.dtype();
    let sum = wide::<B>(sum);
    let (y, mean, rstd) = rows::layer_norm::<B>(sum, &input.gamma, &input.beta, input.epsilon);
    (narrow::<B>(input.dropout.apply(y), dtype), mean, rstd)
}

/// The gradients that `needs` asks for, each in the dtype of its operand: tables share y's.
pub(crate) fn backward<B: DropoutOps>(
    input: EmbedLayerNorm<B>,
    mean: FloatTensor<B>,
    rstd: FloatTensor<B>,
    grad: FloatTensor<B>,
    needs: Needs,
) -> EmbedLayerNormGradients<B> {
    let [words, token_types, positions, gamma, beta] = needs;
    let dtype = grad.dtype();
    let grad = input.dropout.apply(wide::<B>(grad)); // [B, S, H]
    let normalized = B::float_mul(B::float_sub(wide::<B>(sum::<B>(&input)), mean), rstd.clone());

    let beta = beta.then(|| rows::total::<B>(grad.clone(), &input.beta));
    let gamma = gamma.then(|| rows::total::<B>(B::float_mul(grad.clone(), normalized.clone()), &input.gamma));
    if !(words || token_types || positions) {
        return EmbedLayerNormGradients::new([None, None, None, gamma, beta]);
    }

    let grad = rows::layer_norm_backward::<B>(normalized, rstd, &input.gamma, grad);
    let grad = narrow::<B>(grad, dtype);

    let source =
        |needed: bool, rows: &Rows<B>| needed.then(|| rows_backward::<B>(rows, grad.clone())).flatten();
    EmbedLayerNormGradients::new([
        source(words, &input.words),
        source(token_types, &input.token_types),
        source(positions, &input.positions),
        gamma,
        beta,
    ])
}

/// words + token_types + positions, [B, S, H] in the tables' dtype.
fn sum<B: Backend>(input: &EmbedLayerNorm<B>) -> FloatTensor<B> {
    let [batch, seq] = input.shape;
    let hidden = input.gamma.shape()[0];
    let summands = [&input.words, &input.token_types, &input.positions];
    let sum =
        summands.into_iter().filter_map(|rows| rows_forward::<B>(rows, input.shape)).reduce(B::float_add);
    let shape = Shape::new([batch, seq, hidden]);
    match sum {
        Some(sum) if sum.shape() == shape => sum,
        Some(sum) => B::float_expand(sum, shape),
        None => B::float_zeros(shape, &input.gamma.device(), input.gamma.dtype().into()),
    }
}

/// One summand, of a shape that broadcasts to [B, S, H].
fn rows_forward<B: Backend>(rows: &Rows<B>, [_, seq]: [usize; 2]) -> Option<FloatTensor<B>> {
    match rows {
        Rows::Absent => None,
        Rows::Values(values) => Some(values.clone()),
        Rows::Range { table, first } => Some(slice::<B>(table, *first, seq)),
        Rows::Row { table, row } => Some(slice::<B>(table, *row, 1)),
        Rows::Lookup { table, ids, padding_idx } => Some(lookup::<B>(table, ids, *padding_idx)),
    }
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
    let pad_row = slice::<B>(&B::float_detach(table.clone()), pad, 1);
    B::float_mask_where(found, is_pad::<B>(ids, pad, shape.clone()), B::float_expand(pad_row, shape))
}

/// Rows `first` to `first + len` of `table` [V, H], as [1, len, H].
fn slice<B: Backend>(table: &FloatTensor<B>, first: usize, len: usize) -> FloatTensor<B> {
    let hidden = table.shape()[1];
    let rows = B::float_slice(table.clone(), &[Slice::from(first..first + len), Slice::from(0..hidden)]);
    B::float_reshape(rows, Shape::new([1, len, hidden]))
}

/// The gradient of a summand's table or vectors, given that of the sum, [B, S, H].
fn rows_backward<B: Backend>(rows: &Rows<B>, grad: FloatTensor<B>) -> Option<FloatTensor<B>> {
    let into_table = |table: &FloatTensor<B>, first: usize, grad: FloatTensor<B>| {
        let [_, len, hidden] = grad.shape().dims();
        let zeros = B::float_zeros(table.shape(), &table.device(), grad.dtype().into());
        let grad = B::float_reshape(grad, Shape::new([len, hidden]));
        B::float_slice_assign(zeros, &[Slice::from(first..first + len), Slice::from(0..hidden)], grad)
    };
    match rows {
        Rows::Absent => None,
        Rows::Values(_) => Some(grad),
        Rows::Range { table, first } => Some(into_table(table, *first, B::float_sum_dim(grad, 0))),
        Rows::Row { table, row } => Some(into_table(table, *row, B::float_sum_dims(grad, &[0, 1]))),
        Rows::Lookup { table, ids, padding_idx } => {
            let [rows, _] = ids.shape().dims();
            let [batch, _, _] = grad.shape().dims();
            let grad = if rows < batch { B::float_sum_dim(grad, 0) } else { grad };
            let grad = match padding_idx {
                Some(pad) => {
                    let mask = is_pad::<B>(ids, *pad, grad.shape());
                    B::float_mask_fill(grad, mask, 0.0.into())
                }
                None => grad,
            };
            Some(B::embedding_backward(table.clone(), grad, in_range::<B>(ids, table)))
        }
    }
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
