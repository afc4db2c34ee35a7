//! The output head, tied to the word table.

use super::config::BertModelConfig;
use crate::embeddings::{BertEmbeddingsConfig, TokenEmbedding};
use crate::encoder::linear_gelu;
use burn::module::{Module, Param};
use burn::nn::{Initializer, LayerNorm, LayerNormConfig, Linear};
use burn::prelude::*;

/// BERT's masked-language-model head: `logits = LayerNorm(GELU(x·A + a)) · Wᵀ + b`.
///
/// W is the word table of the embedding layer. The head does not hold it: it is passed to
/// [`forward`](Self::forward), so both ends of the model train one table. (A copy in a parameter of its own
/// would drift away with the first step.)
#[derive(Module, Debug)]
pub struct MaskedLmHead {
    /// A and a, [H, H].
    pub transform: Linear,
    /// Normalises what the transform gives.
    pub layer_norm: LayerNorm,
    /// b, one number a word, `[V]`.
    pub bias: Param<Tensor<1>>,
    /// Whether the scores of the padding id send a gradient to its row of W, as they do in PyTorch.
    pub train_padding_row: bool,
}

impl MaskedLmHead {
    /// A head for `config`'s vectors and words.
    pub(super) fn new(config: &BertModelConfig, device: &Device) -> Self {
        let BertEmbeddingsConfig { hidden_size, vocab_size, layer_norm_eps, .. } = config.embeddings;
        Self {
            transform: config.linear(hidden_size, device),
            layer_norm: LayerNormConfig::new(hidden_size).with_epsilon(layer_norm_eps).init(device),
            bias: Initializer::Zeros.init([vocab_size], device),
            train_padding_row: true,
        }
    }

    /// Scores every word of the vocabulary for every vector.
    ///
    /// # Shapes
    ///
    /// - `hidden`: [N, H]
    /// - `words`: W, [V, H]
    /// - output: [N, V]
    ///
    /// # Panics
    ///
    /// Panics if the shapes are not these.
    pub fn forward(&self, hidden: Tensor<2>, words: &TokenEmbedding) -> Tensor<2> {
        let hidden = linear_gelu(&self.transform, hidden);
        let hidden = self.layer_norm.forward(hidden); // [N, H]
        let table = words.weight.val();
        let scores = hidden.clone().matmul(table.clone().transpose()); // [N, V]
        let scores = match words.padding_idx {
            // The padding id's column again, from a row that is cut off from the table.
            Some(row) if !self.train_padding_row => {
                let column = hidden.matmul(table.detach().narrow(0, row, 1).transpose()); // [N, 1]
                scores.slice_assign([0..column.dims()[0], row..row + 1], column)
            }
            _ => scores,
        };
        scores + self.bias.val().unsqueeze()
    }
}
