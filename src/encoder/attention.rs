//! Multi-head self-attention.

use super::config::BertEncoderConfig;
use super::packing::{Packing, Rectangle, Slots};
use super::relative::RelativePositions;
use crate::error::Result;
use crate::operator::functional::attention;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;
use burn::tensor::activation::softmax;

/// Multi-head scaled dot-product attention of a sequence to itself:
/// `Dropout(softmax((Q·Kᵀ + R) / √d)) · V` for each of A heads of d = H / A columns, where R comes from
/// [`RelativePositions`] or is zero.
///
/// # Numerics
///
/// 1 / √d is computed in f64 and applied in the tensor's dtype (Burn's `MultiHeadAttention` computes √d in f32, and the
/// gradient of Burn's division by a scalar is f32).
///
/// Without relative positions it is the operator [`attention`](crate::functional::attention).
///
/// Source: `BertSelfAttention` of transformers 5.23, and of 4.49 for relative positions.
#[derive(Module, Debug)]
pub struct BertSelfAttention {
    /// [H, H].
    pub query: Linear,
    /// [H, H].
    pub key: Linear,
    /// [H, H].
    pub value: Linear,
    /// Relative positions; `None` if the embeddings add the positions.
    pub relative_positions: Option<RelativePositions>,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Number of heads, A.
    pub num_attention_heads: usize,
}

impl BertSelfAttention {
    pub(super) fn new(config: &BertEncoderConfig, device: &Device) -> Result<Self> {
        let linear = || config.linear(config.hidden_size, config.hidden_size, device);
        Ok(Self {
            query: linear(),
            key: linear(),
            value: linear(),
            relative_positions: RelativePositions::new(config, device)?,
            dropout: DropoutConfig::new(config.attention_probs_dropout_prob).init(),
            num_attention_heads: config.num_attention_heads,
        })
    }

    /// The attention of every token over the tokens of its sequence.
    ///
    /// # Shapes
    ///
    /// - `rows`: [N, H], packed
    /// - output: [N, H]
    ///
    /// # Panics
    ///
    /// Panics if the rows are not those of `packing`.
    pub fn forward(&self, rows: Tensor<2>, packing: &Packing) -> Tensor<2> {
        if self.relative_positions.is_some() {
            return self.attend(rows, &packing.slots).0;
        }
        let all = [&self.query, &self.key, &self.value].map(|linear| linear.forward(rows.clone()));
        let dropout = active_prob(&self.dropout);
        attention(all, &packing.lengths, self.num_attention_heads, None, dropout)
    }

    /// As [`forward`](Self::forward), with the attention weights before dropout: [N, H] and [B, A, S, S].
    ///
    /// Row l of a sequence's weights is the attention of position l over all positions; rows and columns of padding are
    /// 0.
    pub fn forward_with_weights(&self, rows: Tensor<2>, packing: &Packing) -> (Tensor<2>, Tensor<4>) {
        let device = rows.device();
        let (context, mut weights) = self.attend(rows, &packing.one_rectangle(&device));
        let weights = weights.remove(0);
        let weights = match packing.padding(&device) {
            Some(padding) => {
                let [batch, seq] = padding.dims();
                weights.mask_fill(padding.reshape([batch, 1, seq, 1]), 0.0)
            }
            None => weights,
        };
        (context, weights)
    }

    /// Context [N, H] and the weights of each rectangle.
    fn attend(&self, rows: Tensor<2>, slots: &Slots) -> (Tensor<2>, Vec<Tensor<4>>) {
        let all =
            [&self.query, &self.key, &self.value].map(|linear| slots.fill(linear.forward(rows.clone())));
        let [rectangle] = slots.rectangles.as_slice() else {
            let mut start = 0;
            let parts = slots.rectangles.iter().map(|rectangle| {
                let size = rectangle.sequences * rectangle.length;
                let part = all.clone().map(|all| all.narrow(0, start, size));
                start += size;
                self.rectangle(part, rectangle)
            });
            let (contexts, weights): (Vec<_>, Vec<_>) = parts.unzip();
            return (slots.empty(Tensor::cat(contexts, 0)), weights);
        };
        let (context, weights) = self.rectangle(all, rectangle);
        (slots.empty(context), vec![weights])
    }

    /// Context [G·L, H] and weights [G, A, L, L] of the sequences of a rectangle; queries, keys and values are
    /// [G·L, H].
    fn rectangle(&self, all: [Tensor<2>; 3], rectangle: &Rectangle) -> (Tensor<2>, Tensor<4>) {
        let (sequences, length) = (rectangle.sequences, rectangle.length);
        let [rows, hidden_size] = all[0].dims();
        let heads = self.num_attention_heads;
        let head_dim = hidden_size / heads;
        let split = |all: Tensor<2>| all.reshape([sequences, length, heads, head_dim]).swap_dims(1, 2);
        let [query, key, value] = all.map(split); // [G, A, L, d]
        let scores = query.clone().matmul(key.clone().transpose()); // [G, A, L, L]
        let scores = match &self.relative_positions {
            Some(positions) => scores + positions.scores(query, key),
            None => scores,
        };
        let scores = scores.mul_scalar(1.0 / (head_dim as f64).sqrt()); // div_scalar's gradient is in f32
        let scores = match &rectangle.padding {
            Some(padding) => {
                let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
                scores.mask_fill(padding.clone().reshape([sequences, 1, 1, length]), lowest)
            }
            None => scores,
        };
        let weights = softmax(scores, 3);
        let context = self.dropout.forward(weights.clone()).matmul(value); // [G, A, L, d]
        (context.swap_dims(1, 2).reshape([rows, hidden_size]), weights)
    }
}

/// The probability that dropout applies, outside validation and where it is not frozen.
pub(super) fn active_prob(dropout: &Dropout) -> f64 {
    if dropout.training.is_enabled() { dropout.prob } else { 0.0 }
}
