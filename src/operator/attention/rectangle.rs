//! Packed rows as a rectangle of heads, and back.

use super::Attention;
use crate::operator::dtype::wide;
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{Shape, TensorData};

/// Where the rows [N, H] lie in a rectangle [B, A, L, d].
pub(super) struct Rectangle<B: Backend> {
    /// [B, A, L, d].
    dims: [usize; 4],
    /// `None` if all sequences are of one length.
    slots: Option<Slots<B>>,
}

struct Slots<B: Backend> {
    /// For each of B · L slots, its row; 0 for padding.
    rows: IntTensor<B>,
    /// For each of N rows, its slot.
    slots: IntTensor<B>,
    /// True in padding, [B, L].
    padding: BoolTensor<B>,
}

impl<B: Backend> Rectangle<B> {
    pub(super) fn new(input: &Attention<B>) -> Self {
        let [batch, longest, heads] = [input.lengths.len(), input.longest(), input.heads];
        let hidden = input.query.shape()[1];
        let dims = [batch, heads, longest, hidden / heads];
        if input.lengths.iter().all(|&length| length == longest) {
            return Self { dims, slots: None };
        }
        let device = input.query.device();
        let settings = get_or_init_device_settings::<B>(&device);
        let int = |values: Vec<i64>| {
            let count = values.len();
            let data = TensorData::new(values, [count]).convert_dtype(settings.int_dtype.into());
            B::int_from_data(data, &device)
        };
        let (mut rows, mut slots, mut padding) = (Vec::new(), Vec::new(), Vec::new());
        for (sequence, &length) in input.lengths.iter().enumerate() {
            for place in 0..longest {
                let is_padding = place >= length;
                padding.push(i64::from(is_padding));
                rows.push(if is_padding { 0 } else { slots.len() as i64 });
                if !is_padding {
                    slots.push((sequence * longest + place) as i64);
                }
            }
        }
        let padding = B::int_equal_elem(int(padding), 1i64.into(), settings.bool_dtype);
        let padding = B::bool_reshape(padding, Shape::new([batch, longest]));
        Self { dims, slots: Some(Slots { rows: int(rows), slots: int(slots), padding }) }
    }

    /// Wide [N, H] → [B, A, L, d], zero in padding.
    pub(super) fn fill(&self, tensor: &FloatTensor<B>) -> FloatTensor<B> {
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
    pub(super) fn empty(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let [batch, heads, longest, columns] = self.dims;
        let tensor = B::float_swap_dims(tensor, 1, 2);
        let tensor = B::float_reshape(tensor, Shape::new([batch * longest, heads * columns]));
        match &self.slots {
            Some(Slots { slots, .. }) => B::float_select(tensor, 0, slots.clone()),
            None => tensor,
        }
    }

    /// Scores [B, A, L, L], the lowest finite value where a key is padding.
    pub(super) fn mask(&self, scores: FloatTensor<B>) -> FloatTensor<B> {
        let Some(Slots { padding, .. }) = &self.slots else { return scores };
        let [batch, _, longest, _] = self.dims;
        let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
        let padding = B::bool_reshape(padding.clone(), Shape::new([batch, 1, 1, longest]));
        let shape = scores.shape();
        B::float_mask_fill(scores, B::bool_expand(padding, shape), lowest.into())
    }
}
