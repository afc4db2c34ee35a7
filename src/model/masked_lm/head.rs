//! The output head, tied to the word table.

use crate::embeddings::BertEmbeddingsConfig;
use crate::encoder::Activation;
use crate::encoder::config::BertModelConfig;
use crate::error::{Error, Result};
use crate::layers::{LayerNorm, ParameterCheck, TokenEmbedding, TokenEmbeddingConfig, linear_activation};
use burn::module::{Module, Param};
use burn::nn::{Initializer, Linear};
use burn::prelude::*;
use burn_fused::linear;

/// BERT's masked-language-model head, part of [`BertForMaskedLm`](crate::model::BertForMaskedLm): `logits = LayerNorm(f(x·A + a))
/// · Wᵀ + b`, with f the activation.
///
/// W is the word table of the embedding layer, or the head's own [`decoder`](Self::decoder). A tied head does not hold
/// W: it is passed to [`forward`](Self::forward), so both ends of the model train one table. (A copy in a parameter of
/// its own would differ after the first step.)
#[derive(Module, Debug)]
pub struct MaskedLmHead {
    /// A and a, [H, E] for words of length E, which is H but in ELECTRA and ALBERT.
    pub transform: Linear,
    /// Normalises what the transform gives.
    pub layer_norm: LayerNorm,
    /// b, one number per word, `[V]`.
    pub bias: Param<Tensor<1>>,
    /// W of a head that is not tied to the word table, [V, E].
    pub decoder: Option<TokenEmbedding>,
    /// Whether the scores of the padding id send a gradient to its row of W, as they do in PyTorch.
    pub train_padding_row: bool,
    #[module(skip)]
    pub(in crate::model) activation: Activation,
}

impl MaskedLmHead {
    /// A head for `config`'s vectors and words.
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

    /// The same head with a table of its own.
    pub(in crate::model) fn try_untied(self, config: &BertModelConfig, device: &Device) -> Result<Self> {
        let BertEmbeddingsConfig { vocab_size, ref initializer, .. } = config.embeddings;
        let table = TokenEmbeddingConfig::new(vocab_size, config.embeddings.width())
            .with_initializer(initializer.clone());
        Ok(Self { decoder: Some(table.try_init(device)?), ..self })
    }

    /// Whether the head scores as many words as the table has, and its parameters fit the table and vectors of length
    /// `hidden`.
    pub(in crate::model) fn check(&self, hidden: usize, words: &TokenEmbedding) -> Result<()> {
        let rows = words.num_embeddings();
        let decoder = self.decoder.as_ref().map(|table| ("decoder", table.num_embeddings()));
        // First what says that the vocabulary alone was resized, which happens; then what no one should do.
        for (part, found) in decoder.into_iter().chain([("bias", self.bias.lazy_shape()[0])]) {
            if found != rows {
                let problem = format!(
                    "has {found} rows, but the word table has {rows}; resize both with the model's resize_vocabulary"
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

    /// Scores every word of the vocabulary for every vector.
    ///
    /// # Shapes
    ///
    /// - `hidden`: [N, H]
    /// - `words`: the word table, [V, E], which a tied head reads
    /// - output: [N, V]
    ///
    /// # Panics
    ///
    /// Panics if the shapes are not these.
    pub fn forward(&self, hidden: Tensor<2>, words: &TokenEmbedding) -> Tensor<2> {
        let hidden = linear_activation(&self.transform, hidden, self.activation);
        let hidden = self.layer_norm.forward(hidden); // [N, E]
        let words = self.decoder.as_ref().unwrap_or(words);
        let table = words.weight.val();
        let scores = linear(hidden.clone(), table.clone().transpose(), None); // [N, V]
        let scores = match words.padding_idx {
            // The padding id's column again, from a row that is cut off from the table.
            Some(row) if !self.train_padding_row => {
                let column = linear(hidden, table.detach().narrow(0, row, 1).transpose(), None); // [N, 1]
                scores.slice_assign([0..column.dims()[0], row..row + 1], column)
            }
            _ => scores,
        };
        scores + self.bias.val().unsqueeze()
    }
}
