use super::once_per_batch::OncePerBatch;
use super::rotary::Angles;
use crate::error::Result;
use crate::layers::PaddingMask;
use burn::prelude::*;
use burn_fused::{Moves, Sequences, indices};
use std::sync::Arc;

/// The N tokens of a batch [B, S] as rows [N, ..]: in the order of the batch, without padding. A slot is one of the batch's B · S
/// positions, with a token or with padding.
/// [`BertEncoder::forward_packed`](super::BertEncoder::forward_packed) uses it.
#[derive(Clone, Debug)]
pub struct Packing {
    /// [B, S].
    pub(super) dims: [usize; 2],
    /// `None` if every slot holds a token, so that rows and slots are the same.
    tokens: Option<PackedTokens>,
    /// The tokens of each sequence.
    pub(super) sequences: Sequences,
    pub(super) angles: Angles,
    /// The position of each token for rotary ones: as given, or how many slots it is after the first of its sequence.
    // Not after the first slot: a text has the same bits wherever its padding is.
    pub(super) positions: Arc<[i64]>,
    /// Whether no sequence has padding between its tokens, so that distances of rows are those of slots.
    pub(super) is_contiguous: bool,
    /// The slots of each sequence, padding included, if rows are others.
    slots: OncePerBatch<[usize; 2], Sequences>,
    /// Rows of tables of distances.
    indices: OncePerBatch<Vec<usize>, Tensor<1, Int>>,
}

/// Between slots and rows.
#[derive(Clone, Debug)]
struct PackedTokens {
    /// The moves from slots, row of the batch · S + column, to rows.
    moves: Moves,
    /// The row of each slot; N where there is no token.
    rows: Arc<[usize]>,
}

impl Packing {
    /// The packing of a batch of [B, S] slots, for tensors on `device`. Returns
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if the mask is not [B, S].
    pub fn new(dims: [usize; 2], padding: Option<&PaddingMask>, device: &Device) -> Result<Self> {
        if let Some(mask) = padding {
            mask.check(dims)?;
        }
        let packed = |tokens, lengths: Vec<usize>, positions: Vec<i64>| {
            let side_by_side = lengths.iter().flat_map(|&length| 0..length as i64);
            let is_contiguous = side_by_side.eq(positions.iter().copied());
            let (sequences, angles) = (Sequences::new(lengths, device), Angles::default());
            let (slots, indices) = (OncePerBatch::default(), OncePerBatch::default());
            let positions = positions.into();
            Self { dims, tokens, sequences, angles, positions, is_contiguous, slots, indices }
        };
        // Without padding rows are slots, and nothing has to be moved.
        let Some(mask) = padding.filter(|mask| !mask.is_full()) else {
            let [batch, seq] = dims;
            let positions = (0..batch).flat_map(|_| 0..seq as i64).collect();
            return Ok(packed(None, vec![seq; batch], positions));
        };
        let (mut slots, mut rows, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        for row in mask.rows() {
            // A sequence of padding alone has no token that could be counted from.
            let first = row.iter().position(|is_padding| !is_padding).unwrap_or(0);
            for (column, &is_padding) in row.iter().enumerate() {
                if is_padding {
                    rows.push(mask.num_tokens());
                    continue;
                }
                slots.push(rows.len());
                rows.push(positions.len());
                positions.push((column - first) as i64);
            }
        }
        // Indices go to the device once for a batch, and every layer uses them.
        let moves = Moves::new(&slots, rows.len(), device).expect("slots of one token each");
        let tokens = PackedTokens { moves, rows: rows.into() };
        let length = |row: &[bool]| row.iter().filter(|is_padding| !**is_padding).count();
        Ok(packed(Some(tokens), mask.rows().map(length).collect(), positions))
    }

    /// With a position of each slot, row-major, for rotary ones.
    pub(super) fn with_positions(self, positions: Option<Vec<i64>>) -> Self {
        let Some(positions) = positions else { return self };
        let positions = match &self.tokens {
            Some(tokens) => {
                let count = self.num_tokens();
                let slots = positions.into_iter().zip(&*tokens.rows);
                slots.filter(|&(_, &row)| row < count).map(|(position, _)| position).collect()
            }
            None => positions.into(),
        };
        Self { positions, ..self }
    }

    pub(super) fn longest(&self) -> usize {
        self.sequences.lengths().iter().copied().max().unwrap_or(0)
    }

    /// Number of tokens, N.
    pub fn num_tokens(&self) -> usize {
        self.sequences.num_tokens()
    }

    /// The vectors of the tokens: [B, S, C] → [N, C].
    pub fn pack(&self, hidden: Tensor<3>) -> Tensor<2> {
        let rows = hidden.flatten::<2>(0, 1);
        match &self.tokens {
            Some(tokens) => tokens.moves.apply(rows),
            None => rows,
        }
    }

    /// The vectors at their slots, zeros where there is no token: [N, C] → [B, S, C].
    pub fn unpack(&self, rows: Tensor<2>) -> Tensor<3> {
        let [batch, seq] = self.dims;
        let [_, width] = rows.dims();
        let all = match &self.tokens {
            Some(tokens) => tokens.moves.inverse().apply(rows),
            None => rows,
        };
        all.reshape([batch, seq, width])
    }

    /// The vectors at some slots, row of the batch · S + column, without unpacking the others: [N, C] → [M, C]. The vector
    /// of a slot without a token is zero. Panics if a slot is not below B · S.
    pub fn select(&self, rows: Tensor<2>, slots: &[usize]) -> Tensor<2> {
        let (device, [batch, seq]) = (rows.device(), self.dims);
        let all = batch * seq;
        let row = |&slot: &usize| {
            assert!(slot < all, "select: slot {slot} of {all}");
            self.tokens.as_ref().map_or(slot, |tokens| tokens.rows[slot])
        };
        let from: Vec<usize> = slots.iter().map(row).collect();
        // A move takes each row once; a slot that is named twice takes the longer way.
        match Moves::new(&from, self.num_tokens(), &device) {
            Some(moves) => moves.apply(rows),
            None => self.unpack(rows).flatten::<2>(0, 1).select(0, indices(slots, &device)),
        }
    }

    /// The slots of each sequence, padding included.
    pub(super) fn slots(&self) -> Sequences {
        match &self.tokens {
            Some(tokens) => self
                .slots
                .get(self.dims, |&[batch, seq]| Sequences::new(vec![seq; batch], &tokens.moves.device())),
            None => self.sequences.clone(),
        }
    }

    /// `rows` on the device, outside autodiff: layers that read the same ones upload them once.
    pub(super) fn indices(&self, rows: Vec<usize>, device: &Device) -> Tensor<1, Int> {
        self.indices.get(rows, |rows| indices(rows, device))
    }

    /// `values` of queries and keys, [B, A, S, S], `filled` where what `axis` counts is padding.
    pub(super) fn mask(&self, values: Tensor<4>, axis: usize, filled: f64) -> Tensor<4> {
        if self.tokens.is_none() {
            return values;
        }
        let mut shape = [self.dims[0], 1, 1, 1];
        shape[axis] = self.dims[1];
        // Built on the device, from indices that are there already: nothing is uploaded.
        let ones = Tensor::ones([self.num_tokens(), 1], (&values.device(), values.dtype()));
        values.mask_fill(self.unpack(ones).equal_scalar(0.0).reshape(shape), filled)
    }
}
