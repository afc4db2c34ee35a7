use super::config::BertModelConfig;
use super::disentangled::{DistanceEmbedding, SharedPositions};
use super::layer::BertLayer;
use super::packing::Packing;
use super::relative_attention_bias::RelativeAttentionBias;
use super::rotary::RotaryConfig;
use crate::error::{Error, Result};
use crate::family::NormPlace;
use crate::layers::{LayerNorm, PaddingMask, check_dropout, check_input, dtype, is_quantized, linear};
use burn::nn::Linear;
use burn::prelude::*;
use burn_fused::with_one_draw;

/// BERT's transformer layers, one after the other.
///
/// Padding is skipped: the layers compute only the N tokens of a batch, as rows [N, H]. Vectors of padding are zero in
/// every output, and their gradient is exactly zero (transformers returns meaningless vectors there).
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::model::BertModelConfig;
/// use burn_bert::{BertEmbeddingsConfig, PaddingMask};
///
/// let device = Device::default();
/// let config = BertModelConfig::new(BertEmbeddingsConfig::new().with_hidden_size(8)).with_num_attention_heads(2);
/// let encoder = config.with_num_hidden_layers(2).with_intermediate_size(16).init_encoder(&device)?;
/// let hidden = Tensor::ones([2, 3, 8], &device);
/// let padding = PaddingMask::from_lengths(&[3, 1], 3)?;
/// assert_eq!(encoder.forward(hidden.clone(), Some(&padding)).dims(), [2, 3, 8]);
/// assert_eq!(encoder.forward_packed(hidden, Some(&padding))?.rows().dims(), [4, 8]);
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Module, Debug)]
pub struct BertEncoder {
    /// Projects the vectors of the embeddings, [E, H]: ELECTRA's `embeddings_project` and ALBERT's
    /// `embedding_hidden_mapping_in`. `None` if they are of length H.
    pub embeddings_projection: Option<Linear>,
    /// What distances add to the attention logits of every layer (MPNet).
    pub relative_attention_bias: Option<RelativeAttentionBias>,
    /// Vectors of distances, which every layer reads (DeBERTa).
    pub distances: Option<DistanceEmbedding>,
    /// The layers, first to last; in ALBERT the one that is run again and again.
    pub layers: Vec<BertLayer>,
    /// Normalises the output of the last layer (ModernBERT, EuroBERT).
    pub final_norm: Option<LayerNorm>,
    /// How often the layers are run, one round after the other: 1 but in ALBERT.
    rounds: usize,
    /// `hidden_act` as written in the `config.json` that the model was read from.
    #[module(skip)]
    pub(crate) hidden_act_name: Option<String>,
    #[module(skip)]
    pub(crate) rotary: Option<RotaryConfig>,
}

/// The output of [`BertEncoder::forward_all`].
#[derive(Clone, Debug)]
pub struct BertEncoderOutput {
    /// The input of the first layer and the output of each, [B, S, H]: one more than there are layers. Zero in padding.
    pub hidden_states: Vec<Tensor<3>>,
    /// The attention weights of each layer before dropout, [B, A, S, S]. Those of a token sum to 1; those to and
    /// of padding are 0.
    pub attentions: Vec<Tensor<4>>,
}

/// The vectors of the N tokens of a batch, without padding. Returned by [`BertEncoder::forward_packed`].
#[derive(Clone, Debug)]
pub struct PackedHidden {
    rows: Tensor<2>,
    packing: Packing,
}

impl PackedHidden {
    /// The vectors of the tokens in the order of the batch, [N, H].
    pub fn rows(&self) -> Tensor<2> {
        self.rows.clone()
    }

    /// The positions of the rows in their batch.
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// The vectors at their positions, zeros where there is no token: [B, S, H].
    pub fn unpack(self) -> Tensor<3> {
        self.packing.unpack(self.rows)
    }

    /// The vectors of some slots, row of the batch · S + column: [M, H]. As
    /// `unpack().flatten::<2>(0, 1).select(0, slots)`, without unpacking. Panics if a slot is not below B · S.
    pub fn select(&self, slots: &[usize]) -> Tensor<2> {
        self.packing.select(self.rows.clone(), slots)
    }
}

impl BertModelConfig {
    /// Builds the encoder alone on `device`. Errors are those of [`validate`](Self::validate).
    pub fn init_encoder(&self, device: &Device) -> Result<BertEncoder> {
        self.validate()?;
        Ok(self.build_encoder(device))
    }

    /// [`init_encoder`](Self::init_encoder) of a config that was validated.
    pub(crate) fn build_encoder(&self, device: &Device) -> BertEncoder {
        let projection = self.embeddings.embedding_size.map(|size| [size, self.embeddings.hidden_size]);
        let (layers, has_bias) = (self.num_stored_layers(), self.encoder().biases.of_others);
        BertEncoder {
            embeddings_projection: projection.map(|shape| self.scaled_linear(shape, 1.0, has_bias, device)),
            relative_attention_bias: RelativeAttentionBias::new(self, device),
            distances: self.disentangled.map(|own| DistanceEmbedding::new(own, &self.embeddings, device)),
            layers: (0..layers).map(|i| BertLayer::new(self, i, device)).collect(),
            final_norm: (self.encoder().norm == NormPlace::Pre)
                .then(|| self.embeddings.layer_norm(self.embeddings.hidden_size, device)),
            // Without a remainder: one layer is stored, or each of them.
            rounds: self.num_hidden_layers / layers,
            hidden_act_name: self.hidden_act_name.clone(),
            rotary: self.rotary,
        }
    }
}

impl BertEncoder {
    /// The norms of the encoder and its layers.
    pub(crate) fn norms(&self) -> impl Iterator<Item = &LayerNorm> {
        let of_layers = self.layers.iter();
        let of_layers =
            of_layers.flat_map(|layer| layer.attention_layer_norm.iter().chain([&layer.output_layer_norm]));
        let of_distances = self.distances.iter().filter_map(|distances| distances.layer_norm.as_ref());
        of_layers.chain(of_distances).chain(&self.final_norm)
    }

    /// How many layers are run, in ALBERT one layer as many times.
    pub fn num_hidden_layers(&self) -> usize {
        self.layers.len() * self.rounds
    }

    /// Sets the probabilities of dropout of a layer's outputs and of the attention weights in training; in ModernBERT that inside
    /// the feed-forward network, and that of the attention weights and output. Returns [`Error::Config`] if one is not in [0, 1).
    pub fn set_dropout(&mut self, hidden_dropout_prob: f64, attention_probs_dropout_prob: f64) -> Result<()> {
        // Both are checked before one is set.
        check_dropout("hidden_dropout_prob", hidden_dropout_prob)?;
        check_dropout("attention_probs_dropout_prob", attention_probs_dropout_prob)?;
        for layer in &mut self.layers {
            layer.dropout.prob = hidden_dropout_prob;
            layer.attention.dropout.prob = attention_probs_dropout_prob;
            if let Some(disentangled) = &mut layer.attention.disentangled {
                disentangled.dropout.prob = hidden_dropout_prob;
            }
        }
        Ok(())
    }

    /// The output of the last layer, [B, S, H], of `hidden` [B, S, H] (or [B, S, E] where it is projected): zero in
    /// padding. Without `padding`, every position holds a token. Panics where [`try_forward`](Self::try_forward) returns an error.
    pub fn forward(&self, hidden: Tensor<3>, padding: Option<&PaddingMask>) -> Tensor<3> {
        self.try_forward(hidden, padding).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`forward`](Self::forward), with the errors of [`forward_packed`](Self::forward_packed).
    pub fn try_forward(&self, hidden: Tensor<3>, padding: Option<&PaddingMask>) -> Result<Tensor<3>> {
        Ok(self.forward_packed(hidden, padding)?.unpack())
    }

    /// As [`forward`](Self::forward), but the vectors of the tokens alone, for a head that needs only some.
    ///
    /// # Errors
    ///
    /// - [`Error::Empty`] if B or S is 0, [`Error::ShapeMismatch`] if `hidden` is not [B, S, H] or `padding` not [B, S];
    /// - [`Error::DTypeMismatch`] or [`Error::DeviceMismatch`] if `hidden` is not of the encoder's dtype and on its device;
    /// - [`Error::SequenceTooLong`] if positions are relative and S exceeds `max_position_embeddings`;
    /// - [`Error::Fused`] if the device computes wrong values in the dtype, as some GPUs' drivers do in f64.
    pub fn forward_packed(&self, hidden: Tensor<3>, padding: Option<&PaddingMask>) -> Result<PackedHidden> {
        Ok(self.run(self.packed(hidden, padding, None)?, |_, _, _| ()))
    }

    /// As [`forward`](Self::forward), with the output and the attention weights of every layer. The weights are computed a
    /// second time for it. Errors are those of [`forward_packed`](Self::forward_packed).
    pub fn forward_all(&self, hidden: Tensor<3>, padding: Option<&PaddingMask>) -> Result<BertEncoderOutput> {
        Ok(self.run_all(self.packed(hidden, padding, None)?))
    }

    /// [`forward_all`](Self::forward_all) of what was [`packed`](Self::packed).
    pub(crate) fn run_all(&self, packed: PackedHidden) -> BertEncoderOutput {
        let [batch, seq] = packed.packing.dims;
        // Attention weights are of all slots, so the distances are too.
        let shared = self.shared(seq);
        let (mut hidden_states, mut attentions) = (Vec::new(), Vec::new());
        let last = self.run(packed, |layer, rows, packing| {
            hidden_states.push(packing.unpack(rows.clone()));
            attentions.push(match packing.num_tokens() {
                0 => {
                    let heads = layer.attention.num_attention_heads();
                    Tensor::zeros([batch, heads, seq, seq], (&rows.device(), rows.dtype()))
                }
                _ => {
                    let rows = layer.attention_input(rows.clone());
                    layer.attention.weights(rows, packing, shared.as_ref())
                }
            });
        });
        hidden_states.push(last.unpack());
        BertEncoderOutput { hidden_states, attentions }
    }

    /// Runs the layers, and shows `watch` the input of each.
    pub(crate) fn run(
        &self,
        PackedHidden { rows, packing }: PackedHidden,
        mut watch: impl FnMut(&BertLayer, &Tensor<2>, &Packing),
    ) -> PackedHidden {
        // Attention reads rows where they lie side by side, and slots where padding separates them.
        let length = if packing.is_contiguous { packing.longest() } else { packing.dims[1] };
        let shared = self.shared(length);
        // One draw for all layers: a queue such as fusion's may run independent draws in another order.
        let rows = with_one_draw(self.draws(), || {
            (0..self.rounds).flat_map(|_| &self.layers).fold(rows, |rows, layer| {
                watch(layer, &rows, &packing);
                // Operators take no tensors without rows: a batch of padding alone has none.
                if packing.num_tokens() > 0 { layer.forward(rows, &packing, shared.as_ref()) } else { rows }
            })
        });
        let norm = self.final_norm.as_ref().filter(|_| packing.num_tokens() > 0);
        let rows = if let Some(norm) = norm { norm.forward(rows) } else { rows };
        PackedHidden { rows, packing }
    }

    /// The operators with dropout: those of all layers, and the vectors of distances before each.
    pub(crate) fn draws(&self) -> usize {
        let of_distances = usize::from(self.distances.is_some());
        self.rounds * self.layers.iter().map(|layer| of_distances + layer.draws()).sum::<usize>()
    }

    /// What the layers share of `length` positions; nothing of none.
    fn shared(&self, length: usize) -> Option<SharedPositions> {
        match (&self.relative_attention_bias, &self.distances) {
            _ if length == 0 => None,
            (Some(bias), _) => Some(SharedPositions::Bias(bias.bias(length))),
            (None, Some(distances)) => Some(SharedPositions::Vectors(distances.vectors(length))),
            (None, None) => None,
        }
    }

    /// The rows that the first layer reads, of a batch that the layers can compute. Rotary positions are those of the slots,
    /// row-major, or count from the first token of each sequence.
    pub(crate) fn packed(
        &self,
        hidden: Tensor<3>,
        padding: Option<&PaddingMask>,
        positions: Option<Vec<i64>>,
    ) -> Result<PackedHidden> {
        burn_fused::check_dtype(&hidden.device(), hidden.dtype())?;
        let [batch, seq, width] = hidden.dims();
        if batch == 0 || seq == 0 {
            return Err(Error::Empty { input: "hidden", shape: vec![batch, seq, width] });
        }
        // The projection reads the embeddings, or without one the first layer.
        let first = self.layers.first().map(|layer| &layer.attention.query);
        if let Some(reader) = self.embeddings_projection.as_ref().or(first) {
            let [hidden_size, _] = reader.weight.lazy_shape().dims();
            if width != hidden_size {
                let expected = format!("[{batch}, {seq}, {hidden_size}]");
                return Err(Error::shape("hidden", [batch, seq, width], expected));
            }
            let expected = match is_quantized(&reader.weight) {
                true => hidden.dtype(),
                false => dtype(&reader.weight),
            };
            check_input("hidden", &hidden, reader.weight.lazy_device(), expected)?;
        }
        // Without a layer, which only a module changed by hand is, nothing else states the width.
        let inner = first.map_or(width, |query| query.weight.lazy_shape()[0]);
        let packing = Packing::new([batch, seq], padding, &hidden.device())?.with_positions(positions);
        // All of them before the first one runs: an error must not come after half a pass.
        for (i, layer) in self.layers.iter().enumerate() {
            layer.check(i, seq, self.distances.is_some())?;
        }
        let rows = packing.pack(hidden);
        let rows = match &self.embeddings_projection {
            // As in the layers: no operator takes a tensor without rows. Reshaped, so that autodiff tracks what it came from.
            Some(_) if packing.num_tokens() == 0 => rows.reshape([0, inner]),
            // Without dropout or norm: both were applied by the embeddings.
            Some(projection) => linear(projection, rows),
            None => rows,
        };
        Ok(PackedHidden { rows, packing })
    }
}
