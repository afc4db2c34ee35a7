//! `MaskedLmHead`, tied to the word embeddings.

use crate::embeddings::BertEmbeddingsConfig;
use crate::encoder::Activation;
use crate::encoder::config::BertModelConfig;
use crate::error::{Error, Result};
use crate::layers::{LayerNorm, ParameterCheck, TokenEmbedding, linear_activation};
use burn::module::{Module, Param};
use burn::nn::{Initializer, Linear};
use burn::prelude::*;
use burn_fused::linear;

/// The head of [`BertForMaskedLm`](crate::model::BertForMaskedLm): `logits = LayerNorm(f(x·A + a))·Wᵀ + b`, with f the
/// activation.
///
/// A tied head does not hold W: the word embeddings are passed to [`forward`](Self::forward). A copy in a parameter would
/// differ after the first step.
#[derive(Module, Debug)]
pub struct MaskedLmHead {
    /// A and a, [H, E], with E the width of the word embeddings (H but in ELECTRA and ALBERT).
    pub transform: Linear,
    /// Of E values.
    pub layer_norm: LayerNorm,
    /// b, one number per word, `[V]`.
    pub bias: Param<Tensor<1>>,
    /// W of an untied head, [V, E].
    pub decoder: Option<TokenEmbedding>,
    /// Whether the logits of the padding id send gradient to its row of W, as in PyTorch.
    pub train_padding_row: bool,
    #[module(skip)]
    pub(in crate::model) activation: Activation,
}

impl MaskedLmHead {
    /// A tied head for `config`'s vectors and words.
    pub(in crate::model) fn new(config: &BertModelConfig, device: &Device) -> Self {
        let BertEmbeddingsConfig { family, vocab_size, layer_norm_eps, .. } = config.embeddings;
        let width = config.embeddings.width();
        let is_of_layers = family.architecture().masked_lm_activation_of_layers;
        Self {
            transform: config.linear(width, device),
            layer_norm: LayerNorm::new(width, layer_norm_eps, device),
            activation: if is_of_layers { config.hidden_act } else { Activation::Gelu },
            bias: Initializer::Zeros.init([vocab_size], device),
            decoder: None,
            train_padding_row: true,
        }
    }

    /// Whether the head's parameters fit the word embeddings and vectors of length `hidden`.
    pub(in crate::model) fn check(&self, hidden: usize, words: &TokenEmbedding) -> Result<()> {
        let rows = words.num_embeddings();
        let decoder = self.decoder.as_ref().map(|table| ("decoder", table.num_embeddings()));
        // First what says that the vocabulary alone was resized, which happens; then what no one should do.
        for (part, found) in decoder.into_iter().chain([("bias", self.bias.lazy_shape()[0])]) {
            if found != rows {
                let problem = format!(
                    "has {found} rows, but there are {rows} word embeddings; resize both with the model's resize_vocabulary"
                );
                return Err(Error::data(format!("the head's {part}"), problem));
            }
        }
        let width = words.embedding_dim();
        let check = ParameterCheck::beside(words);
        check.linear("head.transform", &self.transform, [hidden, width])?;
        check.norm("head.layer_norm", &self.layer_norm, width)?;
        check.param("head.bias", &self.bias, [rows])?;
        let decoder = self.decoder.as_ref();
        decoder.map_or(Ok(()), |table| check.param("head.decoder.weight", &table.weight, [rows, width]))
    }

    /// The logits of every word for every vector.
    ///
    /// # Shapes
    ///
    /// - `hidden`: [N, H]
    /// - `words`: the word embeddings, [V, E], which a tied head reads
    /// - output: [N, V]
    ///
    /// # Panics
    ///
    /// Panics if the shapes are not these.
    pub fn forward(&self, hidden: Tensor<2>, words: &TokenEmbedding) -> Tensor<2> {
        let hidden = linear_activation(&self.transform, hidden, self.activation);
        let hidden = self.layer_norm.forward(hidden); // [N, E]
        let words = self.decoder.as_ref().unwrap_or(words);
        // Read here, at every call: a copy would not follow the embeddings in training.
        let table = words.weight.val();
        let logits = linear(hidden.clone(), table.clone().transpose(), None); // [N, V]
        let logits = match words.padding_idx {
            // The padding id's column again, from a row that is cut off from the table.
            Some(row) if !self.train_padding_row => {
                let column = linear(hidden, table.detach().narrow(0, row, 1).transpose(), None); // [N, 1]
                logits.slice_assign([0..column.dims()[0], row..row + 1], column)
            }
            _ => logits,
        };
        logits + self.bias.val().unsqueeze()
    }
}
