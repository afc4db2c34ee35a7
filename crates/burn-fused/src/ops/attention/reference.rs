//! Attention on whole rectangles [B, A, L, L], with vectors of distances as the bias that they amount to.

use super::{Attention, AttentionOp};
use crate::engine::inputs::OperatorInputs;
use crate::engine::operator::{Gradients, Operator, Output, Spec, Upstream};
use crate::numerics::dropout::DropoutOps;
use crate::numerics::precision::{narrow, wide};
use burn::backend::ops::PadMode;
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{Shape, Slice, TensorData};

impl Operator for AttentionOp {
    fn specs<B: Backend>(inputs: &Attention<B>) -> Vec<Spec> {
        let shape = [inputs.lengths.len(), inputs.heads, inputs.longest, 1];
        let of_row = Spec::statistic(shape, inputs.query.dtype());
        let output = Spec::of(&inputs.query);
        vec![output.clone(), of_row.clone(), of_row, output]
    }

    fn reference<B: DropoutOps>(inputs: Attention<B>) -> Output<Self, B> {
        let inputs = folded::<B>(inputs);
        let rectangle = Rectangle::new(&inputs);
        let (weights, [max, inverse_sum]) = rectangle.softmax();
        let context = B::float_matmul(inputs.dropout.apply(weights), rectangle.fill(&inputs.value));
        let output = narrow::<B>(rectangle.empty(context), inputs.query.dtype());
        (output.clone(), [max, inverse_sum, output])
    }

    fn reference_backward<B: DropoutOps>(inputs: Attention<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        if !inputs.has_distances() {
            return backward(inputs, upstream);
        }
        let [query, key, value, bias, by_query, by_key] = upstream.needs;
        let needs = [query, key, value, query || key || bias || by_query || by_key, false, false];
        let mut gradients = backward(folded::<B>(inputs.clone()), Upstream { needs, ..upstream });
        let Some(of_logits) = gradients[3].take() else { return gradients };
        let rectangle = Rectangle::new(&inputs);
        let [of_query, of_key] = Side::both(&rectangle);
        let of_bias = inputs.bias.as_ref().filter(|_| bias);
        gradients[3] = of_bias.map(|bias| bias_gradient::<B>(of_logits.clone(), bias));
        let scaled = B::float_mul_scalar(wide::<B>(of_logits), inputs.scale.into());
        let operands = Self::operands::<B>(&inputs);
        let mut add = |operand: usize, further: Option<FloatTensor<B>>| {
            let found = gradients[operand].take().map(wide::<B>);
            let sum = found.into_iter().chain(further).reduce(B::float_add);
            gradients[operand] = sum.zip(operands[operand]).map(|(sum, of)| narrow::<B>(sum, of.dtype()));
        };
        if let Some(side) = of_query {
            let [of_rows, of_vectors] = side.gradients(scaled.clone(), &rectangle, [query, by_query]);
            add(0, of_rows);
            add(4, of_vectors);
        }
        if let Some(side) = of_key {
            let scaled = B::float_swap_dims(scaled, 2, 3);
            let [of_rows, of_vectors] = side.gradients(scaled, &rectangle, [key, by_key]);
            add(1, of_rows);
            add(5, of_vectors.map(|vectors| B::float_flip(vectors, &[0])));
        }
        gradients
    }
}

/// The gradients where there are no vectors of distances.
fn backward<B: DropoutOps>(inputs: Attention<B>, upstream: Upstream<AttentionOp, B>) -> Gradients<B> {
    let Upstream { statistics: [max, inverse_sum, _], grad, needs: [query, key, value, bias, ..] } = upstream;
    let rectangle = Rectangle::new(&inputs);
    let rows = |tensor, of: &FloatTensor<B>| narrow::<B>(rectangle.empty(tensor), of.dtype());
    let grad = rectangle.fill(&grad);
    let weights = B::float_exp(B::float_sub(rectangle.scores(), max));
    let weights = B::float_mul(weights, inverse_sum);
    let value = value.then(|| {
        let dropped = inputs.dropout.apply(weights.clone());
        rows(B::float_matmul(B::float_swap_dims(dropped, 2, 3), grad.clone()), &inputs.value)
    });
    if !(query || key || bias) {
        return vec![None, None, value, None, None, None];
    }
    let grad = B::float_matmul(grad, B::float_swap_dims(rectangle.fill(&inputs.value), 2, 3));
    let grad = inputs.dropout.apply(grad);
    let along = B::float_sum_dim(B::float_mul(grad.clone(), weights.clone()), 3);
    let grad = B::float_mul(weights, B::float_sub(grad, along)); // of the scores
    let bias = inputs.bias.as_ref().filter(|_| bias).map(|bias| bias_gradient::<B>(grad.clone(), bias));
    let grad = B::float_mul_scalar(grad, inputs.scale.into());
    let query =
        query.then(|| rows(B::float_matmul(grad.clone(), rectangle.fill(&inputs.key)), &inputs.query));
    let key = key.then(|| {
        let grad = B::float_swap_dims(grad, 2, 3);
        rows(B::float_matmul(grad, rectangle.fill(&inputs.query)), &inputs.key)
    });
    vec![query, key, value, bias, None, None]
}

/// The gradient of `bias` of that of the logits, [B, A, L, L].
pub(super) fn bias_gradient<B: Backend>(grad: FloatTensor<B>, bias: &FloatTensor<B>) -> FloatTensor<B> {
    let is_shared = bias.shape()[0] < grad.shape()[0];
    narrow::<B>(if is_shared { B::float_sum_dim(wide::<B>(grad), 0) } else { grad }, bias.dtype())
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
        let sequence_slots = |(i, &length): (usize, &usize)| i * longest..i * longest + length;
        let slots = inputs.lengths.iter().enumerate().flat_map(sequence_slots);
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
        let max = B::float_max_dim(scores.clone(), 3);
        let weights = B::float_exp(B::float_sub(scores, max.clone()));
        let inverse_sum = B::float_recip(B::float_sum_dim(weights.clone(), 3));
        (B::float_mul(weights, inverse_sum.clone()), [max, inverse_sum])
    }
}

/// The same attention without vectors of distances: what they add to the logits is in the bias, in the dtype of Q.
fn folded<B: Backend>(inputs: Attention<B>) -> Attention<B> {
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

    /// The gradients of the rows, [N, H], and of the vectors, [2L − 1, H], from that of the scaled logits, [B, A, L, L], where they are
    /// needed.
    fn gradients(
        self,
        logits: FloatTensor<B>,
        rectangle: &Rectangle<B>,
        [needs_rows, needs_vectors]: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let grad = by_distance::<B>(logits);
        let of_rows = needs_rows.then(|| rectangle.empty(B::float_matmul(grad.clone(), self.vectors)));
        let of_vectors = needs_vectors.then(|| {
            let [_, heads, _, columns] = rectangle.dims;
            let sum = B::float_sum_dim(B::float_matmul(B::float_swap_dims(grad, 2, 3), self.rows), 0);
            let distances = sum.shape()[2];
            B::float_reshape(B::float_swap_dims(sum, 1, 2), Shape::new([distances, heads * columns]))
        });
        [of_rows, of_vectors]
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

/// The gradient of [`by_key`]'s input: zero where no pair has the distance.
fn by_distance<B: Backend>(pairs: FloatTensor<B>) -> FloatTensor<B> {
    let [batch, heads, length, _] = pairs.shape().dims();
    if length == 1 {
        return pairs;
    }
    let zeros = PadMode::Constant(0.0);
    let rows = B::float_pad(pairs, &[(0, 0), (0, 0), (0, 0), (0, length - 2)], zeros);
    let flat = B::float_reshape(rows, Shape::new([batch, heads, length * (2 * length - 2)]));
    let flat = B::float_pad(flat, &[(0, 0), (0, 0), (length - 1, 1)], zeros);
    B::float_reshape(flat, Shape::new([batch, heads, length, 2 * length - 1]))
}
