//! The tokens of a batch as rows, without padding.

use crate::embeddings::PaddingMask;
use crate::error::Result;
use burn::prelude::*;
use burn::tensor::IndexingUpdateOp;
use std::sync::Arc;

/// The N tokens of a batch [B, S] as rows [N, ..]: in the order of the batch, without padding.
/// [`BertEncoder::forward_packed`](super::BertEncoder::forward_packed) uses it.
///
/// Token-wise layers and attention work on these rows. Attention that needs a rectangle (relative positions, attention
/// weights) copies the rows into *slots*: a few rectangles of sequences of similar length.
#[derive(Clone, Debug)]
pub struct Packing {
    dims: [usize; 2],
    /// `None` if every place holds a token, so that rows and places are the same.
    tokens: Option<Tokens>,
    /// Tokens of each sequence, N in all.
    pub(super) lengths: Vec<usize>,
    pub(super) slots: Slots,
}

/// Between places and rows.
#[derive(Clone, Debug)]
struct Tokens {
    mask: PaddingMask,
    /// The place of each row, row of the batch · S + column, [N].
    places: Tensor<1, Int>,
    /// The row of each place; N where there is no token.
    rows: Arc<[usize]>,
}

/// Sequences for attention, in rectangles.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    pub(super) rectangles: Vec<Rectangle>,
    /// Row of each slot [P], and slot of each row [N]; `None` if slots are rows.
    order: Option<[Tensor<1, Int>; 2]>,
}

/// Sequences side by side, [G, L].
#[derive(Clone, Debug)]
pub(super) struct Rectangle {
    pub(super) sequences: usize,
    pub(super) length: usize,
    /// True where there is no token, [G, L].
    pub(super) padding: Option<Tensor<2, Bool>>,
}

impl Packing {
    /// The packing of a batch of [B, S] places, for tensors on `device`.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if the mask is not [B, S].
    pub fn new(dims: [usize; 2], padding: Option<&PaddingMask>, device: &Device) -> Result<Self> {
        if let Some(mask) = padding {
            mask.check(dims)?;
        }
        let Some(mask) = padding.filter(|mask| !mask.is_full()) else {
            let [sequences, length] = dims;
            let slots =
                Slots { rectangles: vec![Rectangle { sequences, length, padding: None }], order: None };
            return Ok(Self { dims, tokens: None, lengths: vec![length; sequences], slots });
        };
        let (mut places, mut rows) = (Vec::with_capacity(mask.num_tokens()), Vec::new());
        for (place, &is_padding) in mask.rows().flatten().enumerate() {
            rows.push(if is_padding { mask.num_tokens() } else { places.len() });
            if !is_padding {
                places.push(place);
            }
        }
        let tokens = Tokens { places: indices(&places, device), rows: rows.into(), mask: mask.clone() };
        let slots = Slots::by_length(&tokens, device);
        let length = |row: &[bool]| row.iter().filter(|is_padding| !**is_padding).count();
        Ok(Self { dims, lengths: mask.rows().map(length).collect(), tokens: Some(tokens), slots })
    }

    /// Number of tokens, N.
    pub fn num_tokens(&self) -> usize {
        let [batch, seq] = self.dims;
        self.tokens.as_ref().map_or(batch * seq, |tokens| tokens.mask.num_tokens())
    }

    /// The vectors of the tokens: [B, S, C] → [N, C].
    pub fn pack(&self, hidden: Tensor<3>) -> Tensor<2> {
        let rows = hidden.flatten::<2>(0, 1);
        match &self.tokens {
            Some(tokens) => rows.select(0, tokens.places.clone()),
            None => rows,
        }
    }

    /// The vectors at their places, zeros where there is no token: [N, C] → [B, S, C].
    pub fn unpack(&self, rows: Tensor<2>) -> Tensor<3> {
        let [batch, seq] = self.dims;
        let [_, width] = rows.dims();
        let all = match &self.tokens {
            Some(tokens) => {
                let zeros = Tensor::zeros([batch * seq, width], (&rows.device(), rows.dtype()));
                zeros.select_assign(0, tokens.places.clone(), rows, IndexingUpdateOp::Add)
            }
            None => rows,
        };
        all.reshape([batch, seq, width])
    }

    /// The vectors at some places, row of the batch · S + column, without unpacking the others:
    /// [N, C] → [M, C]. The vector of a place without a token is zero.
    ///
    /// # Panics
    ///
    /// Panics if a place is not below B · S.
    pub fn select(&self, rows: Tensor<2>, places: &[usize]) -> Tensor<2> {
        let [num_rows, width] = rows.dims();
        let device = rows.device();
        let Some(tokens) = &self.tokens else { return rows.select(0, indices(places, &device)) };
        let found: Vec<usize> = places.iter().map(|&place| tokens.rows[place]).collect();
        let rows = if found.contains(&num_rows) {
            let zero = Tensor::zeros([1, width], (&device, rows.dtype()));
            Tensor::cat(vec![rows, zero], 0)
        } else {
            rows
        };
        rows.select(0, indices(&found, &device))
    }

    /// The mask [B, S], true where there is no token; `None` if every place holds one.
    pub(super) fn padding(&self, device: &Device) -> Option<Tensor<2, Bool>> {
        self.tokens.as_ref().map(|tokens| tokens.mask.tensor(device))
    }

    /// The whole batch as one rectangle [B, S].
    pub(super) fn one_rectangle(&self, device: &Device) -> Slots {
        let Some(tokens) = &self.tokens else { return self.slots.clone() };
        let [sequences, length] = self.dims;
        let num_tokens = self.num_tokens();
        let slots: Vec<usize> = tokens.rows.iter().map(|&row| row.min(num_tokens - 1)).collect();
        Slots {
            rectangles: vec![Rectangle { sequences, length, padding: self.padding(device) }],
            order: Some([indices(&slots, device), tokens.places.clone()]),
        }
    }
}

impl Slots {
    /// Rectangles of sequences no shorter than half the longest in them; a sequence reaches from its first to
    /// its last token.
    ///
    /// Sequences without a token have no slot.
    fn by_length(tokens: &Tokens, device: &Device) -> Self {
        let (mask, [_, seq]) = (&tokens.mask, tokens.mask.dims());
        let mut sequences: Vec<(usize, &[bool])> = mask
            .rows()
            .enumerate()
            .filter_map(|(row, is_padding)| {
                let first = is_padding.iter().position(|is_padding| !is_padding)?;
                let last = is_padding.iter().rposition(|is_padding| !is_padding)?;
                Some((row * seq + first, &is_padding[first..=last]))
            })
            .collect();
        sequences.sort_by_key(|(_, is_padding)| std::cmp::Reverse(is_padding.len()));

        let mut rectangles = Vec::new();
        let mut rows = Vec::new();
        let mut slots = vec![0; mask.num_tokens()];
        let mut rest = sequences.as_slice();
        while let Some((_, longest)) = rest.first() {
            let length = longest.len();
            let count = rest.partition_point(|(_, is_padding)| 2 * is_padding.len() >= length);
            let (group, others) = rest.split_at(count);
            rest = others;
            let mut padding = Vec::with_capacity(count * length);
            for &(place, is_padding) in group {
                for column in 0..length {
                    let is_padding = is_padding.get(column).copied().unwrap_or(true);
                    padding.push(is_padding);
                    // An empty slot repeats the first token of its sequence; it is masked out.
                    let row = tokens.rows[place + if is_padding { 0 } else { column }];
                    if !is_padding {
                        slots[row] = rows.len();
                    }
                    rows.push(row);
                }
            }
            let padding = padding
                .contains(&true)
                .then(|| Tensor::from_data(TensorData::new(padding, [count, length]), device));
            rectangles.push(Rectangle { sequences: count, length, padding });
        }
        let in_order = rows.len() == slots.len() && slots.is_sorted();
        let order = (!in_order).then(|| [indices(&rows, device), indices(&slots, device)]);
        Self { rectangles, order }
    }

    /// [N, C] → [P, C], the rectangles one after the other.
    pub(super) fn fill(&self, rows: Tensor<2>) -> Tensor<2> {
        match &self.order {
            Some([rows_of_slots, _]) => rows.select(0, rows_of_slots.clone()),
            None => rows,
        }
    }

    /// [P, C] → [N, C].
    pub(super) fn empty(&self, slots: Tensor<2>) -> Tensor<2> {
        match &self.order {
            Some([_, slots_of_rows]) => slots.select(0, slots_of_rows.clone()),
            None => slots,
        }
    }
}

fn indices(values: &[usize], device: &Device) -> Tensor<1, Int> {
    let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), device)
}
