//! The stack of layers.

use super::config::BertEncoderConfig;
use super::layer::BertLayer;
use crate::error::Result;
use burn::module::Module;
use burn::prelude::*;

/// BERT's transformer layers, one after the other. Made by [`BertEncoderConfig::init`].
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::encoder::BertEncoderConfig;
///
/// let device = Device::default();
/// let encoder = BertEncoderConfig::new()
///     .with_hidden_size(8)
///     .with_num_hidden_layers(2)
///     .with_num_attention_heads(2)
///     .with_intermediate_size(16)
///     .init(&device);
/// assert_eq!(encoder.forward(Tensor::ones([1, 3, 8], &device), None).dims(), [1, 3, 8]);
/// ```
#[derive(Module, Debug)]
pub struct BertEncoder {
    /// The layers, first to last.
    pub layers: Vec<BertLayer>,
}

/// What every layer computed.
#[derive(Clone, Debug)]
pub struct BertEncoderOutput {
    /// The input and the output of each layer, [B, S, H]: one more than there are layers.
    pub hidden_states: Vec<Tensor<3>>,
    /// The attention weights of each layer before dropout, [B, A, S, S].
    pub attentions: Vec<Tensor<4>>,
}

impl BertEncoderConfig {
    /// Builds the encoder on `device`.
    ///
    /// # Panics
    ///
    /// Where [`try_init`](Self::try_init) returns an error, with the same message.
    pub fn init(&self, device: &Device) -> BertEncoder {
        self.try_init(device).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds the encoder on `device`.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn try_init(&self, device: &Device) -> Result<BertEncoder> {
        self.validate()?;
        let layers = (0..self.num_hidden_layers).map(|_| BertLayer::new(self, device)).collect();
        Ok(BertEncoder { layers })
    }
}

impl BertEncoder {
    /// The output of the last layer.
    ///
    /// # Shapes
    ///
    /// - `hidden`: [B, S, H]
    /// - `padding`: [B, S], true where attention must not look
    /// - output: [B, S, H]
    pub fn forward(&self, hidden: Tensor<3>, padding: Option<Tensor<2, Bool>>) -> Tensor<3> {
        self.layers.iter().fold(hidden, |hidden, layer| layer.forward(hidden, padding.as_ref()).0)
    }

    /// The output and the attention weights of every layer.
    ///
    /// # Shapes
    ///
    /// - `hidden`: [B, S, H]
    /// - `padding`: [B, S], true where attention must not look
    pub fn forward_all(&self, hidden: Tensor<3>, padding: Option<Tensor<2, Bool>>) -> BertEncoderOutput {
        let mut output = BertEncoderOutput { hidden_states: vec![hidden], attentions: Vec::new() };
        for layer in &self.layers {
            let input = output.hidden_states[output.hidden_states.len() - 1].clone();
            let (hidden, weights) = layer.forward(input, padding.as_ref());
            output.hidden_states.push(hidden);
            output.attentions.push(weights);
        }
        output
    }
}
