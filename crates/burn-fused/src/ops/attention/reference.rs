//! Attention on whole rectangles [B, A, L, L], with vectors of distances as the bias that they amount to: the reference, and how
//! CubeCL's devices compute such vectors.

use super::{Attention, AttentionOp};
use crate::engine::inputs::OperatorInputs;
use crate::engine::operator::{Operator, Output, Spec};
use crate::numerics::dropout::DropoutOps;
use crate::numerics::precision::{narrow, wide};
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{Shape, Slice, TensorData};

impl Operator for AttentionOp {
    fn specs<B: Backend>(inputs: &Attention<B>) -> Vec<Spec> {
        let shape = [inputs.lengths.len(), inputs.heads, inputs.longest, 1];
        let of_row = Spec::statistic(shape, inputs.query.dtype());
        let output = Spec::like(&inputs.query);
        vec![output.clone(), of_row.clone(), of_row, output]
    }

    fn reference<B: DropoutOps>(inputs: Attention<B>) -> Output<Self, B> {
        let dtype = inputs.query.dtype();
        // Once: keys and queries are multiplied with vectors of distances, too.
        let inputs = folded::<B>(AttentionOp::map::<B, B>(inputs, &mut wide::<B>, &mut |int| int));
        let rectangle = Rectangle::new(&inputs);
        let (weights, [max, inverse_sum]) = rectangle.softmax();
        let context = B::float_matmul(inputs.dropout.apply(weights), rectangle.fill(&inputs.value));
        let output = narrow::<B>(rectangle.empty(context), dtype);
        (output.clone(), [max, inverse_sum, output])
    }
}

/// P of any inputs, [B, A, L, L] wide.
pub(super) fn weights<B: Backend>(inputs: Attention<B>) -> FloatTensor<B> {
    Rectangle::new(&folded::<B>(inputs)).softmax().0
}

/// The rectangle [B, A, L, d] that the rows [N, H] of the inputs are put into.
struct Rectangle<'a, B: Backend> {
    inputs: &'a Attention<B>,
    /// [B, A, L, d].
    dims: [usize; 4],
    /// `None` if all sequences are of one length.
    slots: Option<Slots<B>>,
    /// True where query and key are further apart than the window, [1, 1, L, L]; `None` if none are.
    outside: Option<BoolTensor<B>>,
}

struct Slots<B: Backend> {
    /// The row of each of B · L slots; 0 for padding.
    rows: IntTensor<B>,
    /// The slot of each of N rows.
    slots: IntTensor<B>,
    /// True in padding, [B, 1, 1, L].
    padding: BoolTensor<B>,
}

impl<'a, B: Backend> Rectangle<'a, B> {
    fn new(inputs: &'a Attention<B>) -> Self {
        let [batch, longest, heads] = [inputs.lengths.len(), inputs.longest, inputs.heads];
        let hidden = inputs.query.shape()[1];
        let dims = [batch, heads, longest, hidden / heads];
        let device = inputs.query.device();
        let settings = get_or_init_device_settings::<B>(&device);
        let int = |values: Vec<i64>| {
            let data = TensorData::from(values.as_slice()).convert_dtype(settings.int_dtype.into());
            B::int_from_data(data, &device)
        };
        let bools = |values: Vec<bool>, shape: [usize; 4]| {
            let data = TensorData::new(values, shape).convert_dtype(settings.bool_dtype.into());
            B::bool_from_data(data, &device)
        };
        let outside = (inputs.window + 1 < longest).then(|| {
            let distances = (0..longest).flat_map(|i| (0..longest).map(move |j| i.abs_diff(j)));
            bools(distances.map(|distance| distance > inputs.window).collect(), [1, 1, longest, longest])
        });
        // No padding: a reshape does it, without indices.
        if inputs.lengths.iter().all(|&length| length == longest) {
            return Self { inputs, dims, slots: None, outside };
        }
        let of_sequence = |(i, &length): (usize, &usize)| i * longest..i * longest + length;
        let slots = inputs.lengths.iter().enumerate().flat_map(of_sequence);
        let (mut rows, mut padding) = (vec![0; batch * longest], vec![true; batch * longest]);
        for (row, slot) in slots.clone().enumerate() {
            (rows[slot], padding[slot]) = (row as i64, false);
        }
        let slots = slots.map(|slot| slot as i64).collect();
        let padding = bools(padding, [batch, 1, 1, longest]);
        Self { inputs, dims, slots: Some(Slots { rows: int(rows), slots: int(slots), padding }), outside }
    }

    /// Wide [N, H] → [B, A, L, d], zero in padding.
    fn fill(&self, tensor: &FloatTensor<B>) -> FloatTensor<B> {
        let [batch, heads, longest, columns] = self.dims;
        let mut tensor = wide::<B>(tensor.clone());
        if let Some(Slots { rows, padding, .. }) = &self.slots {
            tensor = B::float_select(tensor, 0, rows.clone());
            let shape = tensor.shape();
            let padding = B::bool_reshape(padding.clone(), Shape::new([batch * longest, 1]));
            tensor = B::float_mask_fill(tensor, B::bool_expand(padding, shape), 0.0.into());
        }
        let tensor = B::float_reshape(tensor, Shape::new([batch, longest, heads, columns]));
        B::float_swap_dims(tensor, 1, 2)
    }

    /// [B, A, L, d] → [N, H].
    fn empty(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let [batch, heads, longest, columns] = self.dims;
        let tensor = B::float_swap_dims(tensor, 1, 2);
        let tensor = B::float_reshape(tensor, Shape::new([batch * longest, heads * columns]));
        match &self.slots {
            Some(Slots { slots, .. }) => B::float_select(tensor, 0, slots.clone()),
            None => tensor,
        }
    }

    /// S, [B, A, L, L] wide, the lowest finite value where a key is padding or outside the window.
    fn scores(&self) -> FloatTensor<B> {
        let Attention { query, key, bias, scale, .. } = self.inputs;
        let scores = B::float_matmul(self.fill(query), B::float_swap_dims(self.fill(key), 2, 3));
        let scores = B::float_mul_scalar(scores, (*scale).into());
        let scores = match bias {
            Some(bias) => B::float_add(scores, wide::<B>(bias.clone())),
            None => scores,
        };
        let masks = self.slots.iter().map(|slots| &slots.padding).chain(&self.outside);
        masks.fold(scores, |scores, masked| {
            // Finite: a row of −∞ alone would become NaN.
            let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
            let masked = B::bool_expand(masked.clone(), scores.shape());
            B::float_mask_fill(scores, masked, lowest.into())
        })
    }

    /// P [B, A, L, L] wide, and the statistics of its rows.
    fn softmax(&self) -> (FloatTensor<B>, [FloatTensor<B>; 2]) {
        let scores = self.scores();
        // The weights do not depend on it.
        let max = B::float_max_dim(B::float_detach(scores.clone()), 3);
        let weights = B::float_exp(B::float_sub(scores, max.clone()));
        let inverse_sum = B::float_recip(B::float_sum_dim(weights.clone(), 3));
        (B::float_mul(weights, inverse_sum.clone()), [max, inverse_sum])
    }
}

/// The same attention without vectors of distances: what they add to the logits is in the bias, in the dtype of Q.
pub(super) fn folded<B: Backend>(inputs: Attention<B>) -> Attention<B> {
    if !inputs.has_distances() {
        return inputs;
    }
    let logits = |side: Side<B>| {
        let products = B::float_matmul(side.rows, B::float_swap_dims(side.vectors, 2, 3));
        B::float_mul_scalar(by_key::<B>(products), inputs.scale.into())
    };
    let [of_query, of_key] = Side::both(&Rectangle::new(&inputs)).map(|side| side.map(logits));
    let of_key = of_key.map(|logits| B::float_swap_dims(logits, 2, 3));
    let bias = inputs.bias.map(wide::<B>).into_iter().chain(of_query).chain(of_key);
    let bias = bias.reduce(B::float_add).map(|bias| narrow::<B>(bias, inputs.query.dtype()));
    Attention { bias, by_query: None, by_key: None, ..inputs }
}

/// Rows, and the vectors of distances that they are multiplied with, both wide.
struct Side<B: Backend> {
    /// [B, A, L, d].
    rows: FloatTensor<B>,
    /// [B, A, 2L − 1, d], by rising place of the other side.
    vectors: FloatTensor<B>,
}

impl<B: Backend> Side<B> {
    /// Queries and keys.
    fn both(rectangle: &Rectangle<B>) -> [Option<Self>; 2] {
        let [batch, heads, _, columns] = rectangle.dims;
        let Attention { query, key, by_query, by_key, .. } = rectangle.inputs;
        // Distances are from query to key: they fall where the query's place rises.
        let by_key = by_key.clone().map(|vectors| B::float_flip(vectors, &[0]));
        [(query, by_query.clone()), (key, by_key)].map(|(rows, vectors)| {
            let vectors = vectors?;
            let distances = vectors.shape()[0];
            let vectors = B::float_reshape(wide::<B>(vectors), Shape::new([1, distances, heads, columns]));
            let vectors = B::float_swap_dims(vectors, 1, 2);
            let vectors = B::float_expand(vectors, Shape::new([batch, heads, distances, columns]));
            Some(Self { rows: rectangle.fill(rows), vectors })
        })
    }
}

/// From products with every distance, [B, A, L, 2L − 1], to those of each pair, [B, A, L, L]:
/// `out[i][j] = products[i][j − i + L − 1]`.
fn by_key<B: Backend>(products: FloatTensor<B>) -> FloatTensor<B> {
    let [batch, heads, length, distances] = products.shape().dims();
    if length == 1 {
        return products;
    }
    // Row by row the wanted values start one place earlier, so rows that are one shorter bring them into columns.
    // Not `float_unfold`, whose windows Burn 0.22.1 reads wrongly on CubeCL.
    let flat = B::float_reshape(products, Shape::new([batch, heads, length * distances]));
    let count = length * (distances - 1);
    let wanted =
        B::float_slice(flat, &[Slice::full(), Slice::full(), Slice::from(length - 1..length - 1 + count)]);
    let rows = B::float_reshape(wanted, Shape::new([batch, heads, length, distances - 1]));
    B::float_slice(rows, &[Slice::full(), Slice::full(), Slice::full(), Slice::from(0..length)])
}
