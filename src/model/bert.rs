use crate::embeddings::{BertEmbeddings, BertEmbeddingsInput};
use crate::encoder::config::BertModelConfig;
use crate::encoder::{BertEncoder, PackedHidden};
use crate::error::{Error, Result};
use crate::layers::{PaddingMask, linear};
use burn::nn::Linear;
use burn::prelude::*;
use burn_fused::with_one_draw;

/// BERT without a head: [`BertEmbeddings`], [`BertEncoder`] and, where a head needs it, the pooler.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput, model::BertModelConfig};
///
/// let device = Device::default();
/// let embeddings = BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(12);
/// let model = BertModelConfig::new(embeddings).with_num_hidden_layers(2).init(&device);
/// let output = model.forward(&BertEmbeddingsInput::from_rows(&[[2, 7, 9, 3]], &device)?, None);
/// assert_eq!(output.last_hidden_state.dims(), [1, 4, 12]);
/// assert_eq!(output.pooler_output.unwrap().dims(), [1, 12]);
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// Source: `BertModel`, `RobertaModel` and so on of transformers 5.23, by the config's [family](crate::Family).
#[derive(Module, Debug)]
pub struct BertModel {
    /// The embedding layer.
    pub embeddings: BertEmbeddings,
    /// The transformer layers.
    pub encoder: BertEncoder,
    /// `None` where the head does not read its output, in DistilBERT, ELECTRA, ModernBERT, DeBERTa and EuroBERT, and without a head in
    /// NomicBERT and GTE.
    pub pooler: Option<BertPooler>,
}

/// The pooler of [`BertModel`]: `tanh(x₀·P + p)` of each sequence's first position. If that is padding (on the left), x₀ is
/// zero.
#[derive(Module, Debug)]
pub struct BertPooler {
    /// P and p, [H, H].
    pub dense: Linear,
}

/// The output of [`BertModel::forward`], with transformers' names.
#[derive(Clone, Debug)]
pub struct BertModelOutput {
    /// The output of the last layer, [B, S, H]; zero in padding.
    pub last_hidden_state: Tensor<3>,
    /// The output of the pooler, [B, H]; `None` if the model has none.
    pub pooler_output: Option<Tensor<2>>,
    /// The output of the embeddings and of each layer, each [B, S, H]; of [`forward_all`](BertModel::forward_all) only.
    pub hidden_states: Option<Vec<Tensor<3>>>,
    /// The attention weights of each layer before dropout, each [B, A, S, S]; of `forward_all` only.
    pub attentions: Option<Vec<Tensor<4>>>,
}

impl BertModelConfig {
    /// [`try_init`](Self::try_init), which panics with its error.
    pub fn init(&self, device: &Device) -> BertModel {
        self.try_init(device).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds the model on `device`, with a pooler if the family's model without a head has one. Errors are those of
    /// [`validate`](Self::validate).
    pub fn try_init(&self, device: &Device) -> Result<BertModel> {
        self.validate()?;
        // Where a pooler belongs to some heads alone, their own config builds it.
        let has_pooler = self.embeddings.family.architecture().has_pooler;
        Ok(self.build(has_pooler, device))
    }

    /// The model of a config that was validated; below a head that does not read the pooler without one, as by transformers'
    /// `add_pooling_layer=False`.
    pub(super) fn build(&self, has_pooler: bool, device: &Device) -> BertModel {
        let pooler = || BertPooler { dense: self.linear(self.embeddings.hidden_size, device) };
        BertModel {
            embeddings: self.embeddings.build(device),
            encoder: self.build_encoder(device),
            pooler: has_pooler.then(pooler),
        }
    }
}

impl BertModel {
    /// The config that builds a model of this shape.
    pub fn config(&self) -> BertModelConfig {
        let defaults = BertModelConfig::new(self.embeddings.config())
            .with_num_hidden_layers(self.encoder.num_hidden_layers());
        // All layers have the settings of the first; a save checks it.
        let Some(layer) = self.encoder.layers.first() else { return defaults };
        BertModelConfig {
            num_attention_heads: layer.attention.num_attention_heads(),
            num_key_value_heads: Some(layer.attention.num_key_value_heads())
                .filter(|&heads| heads != layer.attention.num_attention_heads()),
            hidden_act: layer.hidden_act(),
            hidden_act_name: self.encoder.hidden_act_name.clone(),
            intermediate_size: layer.intermediate.weight.lazy_shape()[1],
            attention_probs_dropout_prob: layer.attention.dropout.prob,
            mlp_dropout: if defaults.encoder().has_mlp_dropout() { layer.dropout.prob } else { 0.0 },
            rotary: self.encoder.rotary,
            disentangled: self.encoder.distances.as_ref().map(|distances| distances.config),
            ..defaults
        }
    }

    /// [`try_forward`](Self::try_forward), which panics with its error.
    pub fn forward(&self, input: &BertEmbeddingsInput, padding: Option<&PaddingMask>) -> BertModelOutput {
        self.try_forward(input, padding).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Encodes a batch: ids [B, S], or vectors [B, S, H] ([B, S, E] where they are projected), with `padding` [B, S], or
    /// `None` without padding. Errors are those of [`BertEmbeddings::try_forward`] and [`BertEncoder::forward_packed`]. Panics, as
    /// Burn's modules, if a parameter was replaced by one of a shape, dtype or device that does not fit the others.
    pub fn try_forward(
        &self,
        input: &BertEmbeddingsInput,
        padding: Option<&PaddingMask>,
    ) -> Result<BertModelOutput> {
        self.output(self.forward_packed(input, padding)?.unpack())
    }

    /// The last hidden state of the tokens only, without padding and pooler, for a head that reads some of them. Errors are
    /// those of [`try_forward`](Self::try_forward).
    pub fn forward_packed(
        &self,
        input: &BertEmbeddingsInput,
        padding: Option<&PaddingMask>,
    ) -> Result<PackedHidden> {
        self.forward_watched(input, padding, |_| ())
    }

    /// [`forward_packed`](Self::forward_packed), which shows `watch` the rows that each layer reads.
    pub(super) fn forward_watched(
        &self,
        input: &BertEmbeddingsInput,
        padding: Option<&PaddingMask>,
        mut watch: impl FnMut(&Tensor<2>),
    ) -> Result<PackedHidden> {
        // One draw of all seeds, the embeddings' and the encoder's: a fused queue can run separate draws in another order.
        with_one_draw(1 + self.encoder.draws(), || {
            let packed = self.packed(input, padding)?;
            Ok(self.encoder.run(packed, |_, rows, _| watch(rows)))
        })
    }

    /// As [`forward`](Self::forward), with [`hidden_states`](BertModelOutput::hidden_states) and
    /// [`attentions`](BertModelOutput::attentions). Errors are those of [`try_forward`](Self::try_forward).
    pub fn forward_all(
        &self,
        input: &BertEmbeddingsInput,
        padding: Option<&PaddingMask>,
    ) -> Result<BertModelOutput> {
        let run = || Ok::<_, Error>(self.encoder.run_all(self.packed(input, padding)?));
        let all = with_one_draw(1 + self.encoder.draws(), run)?;
        // There is at least that of the embeddings.
        let last_hidden_state = all.hidden_states[all.hidden_states.len() - 1].clone();
        let (hidden_states, attentions) = (Some(all.hidden_states), Some(all.attentions));
        Ok(BertModelOutput { hidden_states, attentions, ..self.output(last_hidden_state)? })
    }

    /// The embeddings of the tokens, and their rotary positions where the input has some.
    fn packed(&self, input: &BertEmbeddingsInput, padding: Option<&PaddingMask>) -> Result<PackedHidden> {
        let positions = if self.encoder.rotary.is_some() { input.positions()? } else { None };
        self.encoder.packed(self.embeddings.try_forward(input)?, padding, positions)
    }

    fn output(&self, last_hidden_state: Tensor<3>) -> Result<BertModelOutput> {
        let mut pooler_output = None;
        if let Some(BertPooler { dense }) = &self.pooler {
            let first = last_hidden_state.clone().narrow(1, 0, 1).squeeze_dim(1); // [B, H]
            pooler_output = Some(linear(dense, first).tanh());
        }
        Ok(BertModelOutput { last_hidden_state, pooler_output, hidden_states: None, attentions: None })
    }
}
