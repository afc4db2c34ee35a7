use super::disentangled::DisentangledConfig;
use super::rotary::RotaryConfig;
use crate::embeddings::BertEmbeddingsConfig;
use crate::error::Result;
use crate::family::{Architecture, PositionEmbeddingType};
use crate::layers::{MAX_ROWS, MAX_WIDTH, check_dropout, check_num_params, check_sizes, ensure};
use burn::nn::{Initializer, Linear};
use burn::prelude::*;
use burn_fused::Activation;

/// Four times the deepest published encoder (DeepNet, 1,000 layers). ALBERT's layers cost no memory, but time.
const MAX_LAYERS: usize = 1 << 12;

/// Configuration of a [`BertModel`](crate::model::BertModel) or its [`BertEncoder`](crate::encoder::BertEncoder); the
/// defaults are BERT-base's. Configs of heads contain one.
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub struct BertModelConfig {
    /// The embedding layer. Its hidden size, LayerNorm ε, dropout and initialiser serve the whole model.
    pub embeddings: BertEmbeddingsConfig,
    /// Transformer layers.
    #[config(default = 12)]
    pub num_hidden_layers: usize,
    /// Attention heads of a layer; must divide the hidden size.
    #[config(default = 12)]
    pub num_attention_heads: usize,
    /// EuroBERT: heads of keys and values, which must divide those of queries; `None` for as many.
    pub num_key_value_heads: Option<usize>,
    /// Length of the vectors inside a layer's feed-forward network.
    #[config(default = 3072)]
    pub intermediate_size: usize,
    /// The activation of a layer's feed-forward network, and of a masked-language-model head but RoBERTa's, ELECTRA's
    /// and MPNet's.
    #[config(default = "Activation::Gelu")]
    pub hidden_act: Activation,
    /// The name of `hidden_act` in the `config.json` if not the first of several; written back while it means the same.
    pub hidden_act_name: Option<String>,
    /// Probability that dropout zeroes an attention weight in training, in [0, 1).
    #[config(default = 0.1)]
    pub attention_probs_dropout_prob: f64,
    /// ModernBERT: probability that dropout zeroes a value inside a layer's feed-forward network in training, in [0, 1).
    #[config(default = 0.0)]
    pub mlp_dropout: f64,
    /// In a family with rotary positions: their angles, and in ModernBERT which layers attend to what.
    pub rotary: Option<RotaryConfig>,
    /// DeBERTa: which vectors of distances queries and keys are multiplied with.
    pub disentangled: Option<DisentangledConfig>,
}

impl BertModelConfig {
    /// The model around an embedding layer, with the defaults of the family's config class in transformers.
    pub(crate) fn default_around(embeddings: BertEmbeddingsConfig) -> Self {
        let spec = embeddings.family.spec();
        let rotary = match spec.architecture.has_windows {
            true => RotaryConfig::new().with_global_rope_theta(spec.rope_theta),
            false => RotaryConfig::uniform(spec.rope_theta),
        };
        let positions = spec.architecture.positions;
        Self {
            embeddings,
            num_hidden_layers: spec.num_hidden_layers,
            num_attention_heads: spec.num_attention_heads,
            num_key_value_heads: None,
            intermediate_size: spec.intermediate_size,
            hidden_act: spec.hidden_act,
            hidden_act_name: None,
            attention_probs_dropout_prob: spec.attention_dropout,
            mlp_dropout: 0.0,
            rotary: (positions == PositionEmbeddingType::Rotary).then_some(rotary),
            // The class's own are those of a model without them.
            disentangled: (positions == PositionEmbeddingType::Disentangled).then(DisentangledConfig::new),
        }
    }

    /// The fields with numbers that a `config.json` states besides those of the embeddings.
    pub(crate) fn numbers(&self) -> &'static [&'static str] {
        const NUMBERS: [&str; 5] = [
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "attention_probs_dropout_prob",
            "mlp_dropout",
        ];
        if self.encoder().has_mlp_dropout() { &NUMBERS } else { &NUMBERS[..4] }
    }

    /// Checks that a model can be built from this config.
    ///
    /// # Errors
    ///
    /// Those of [`BertEmbeddingsConfig::validate`]; [`Error::Config`](crate::Error::Config), naming the field, if there is no
    /// layer or more than 4,096, the heads do not divide H, `intermediate_size` is 0 or above 2²⁰, a model has more than 2⁴⁰
    /// parameters, a dropout is not in [0, 1) or one that the family has not, positions are relative and the family has none,
    /// `max_position_embeddings` is 0 or above 2³⁰, positions are rotary and `rotary` is missing or invalid, or the family is
    /// DeBERTa and `disentangled` is missing or invalid.
    pub fn validate(&self) -> Result<()> {
        // First: what follows multiplies and divides these sizes.
        self.embeddings.validate()?;
        let BertEmbeddingsConfig { family, hidden_size, position_embedding_type: positions, .. } =
            self.embeddings;
        let (longest, heads) = (self.embeddings.max_position_embeddings, self.num_attention_heads);
        let (encoder, name) = (self.encoder(), family.model_type());
        check_sizes([
            ("num_hidden_layers", self.num_hidden_layers, MAX_LAYERS),
            // More heads than columns do not divide them, which is checked below.
            ("num_attention_heads", heads, usize::MAX),
            ("intermediate_size", self.intermediate_size, MAX_WIDTH),
        ])?;
        ensure(hidden_size.is_multiple_of(heads), "num_attention_heads", || {
            format!("is {heads}, but must divide hidden_size {hidden_size}")
        })?;
        let of_keys = self.num_key_value_heads.unwrap_or(heads);
        let can_differ = encoder.has_grouped_keys && of_keys > 0 && heads.is_multiple_of(of_keys);
        ensure(of_keys == heads || can_differ, "num_key_value_heads", || {
            let allowed = if encoder.has_grouped_keys { "divide" } else { "be" };
            format!("is {of_keys}, but must {allowed} num_attention_heads {heads} in the family {name}")
        })?;
        let found = |is_there: bool| if is_there { "given" } else { "None" };
        let is_rotary = self.rotary.is_some();
        ensure(is_rotary == (positions == PositionEmbeddingType::Rotary), "rotary", || {
            format!("is {}, but positions are {positions:?}", found(is_rotary))
        })?;
        if let Some(rotary) = self.rotary {
            rotary.validate()?;
            let every = rotary.global_attn_every_n_layers;
            ensure(every == 1 || encoder.has_windows, "global_attn_every_n_layers", || {
                format!("is {every}, but all layers of the family {name} are global")
            })?;
            let columns = hidden_size / heads;
            ensure(columns.is_multiple_of(2), "num_attention_heads", || {
                format!("is {heads}, but rotary positions turn pairs of the {columns} columns of a head")
            })?;
        }
        let is_disentangled = self.disentangled.is_some();
        let needs_disentangled = family.architecture().positions == PositionEmbeddingType::Disentangled;
        ensure(is_disentangled == needs_disentangled, "disentangled", || {
            format!("is {}, but the family is {name}", found(is_disentangled))
        })?;
        self.disentangled.map_or(Ok(()), |disentangled| disentangled.validate())?;
        if positions.is_relative() {
            // There is a vector for each of 2M − 1 distances.
            check_sizes([("max_position_embeddings", longest, MAX_ROWS / 2)])?;
            ensure(encoder.relative_scores.is_some(), "position_embedding_type", || {
                format!("is {positions:?}, which the family {name} does not have")
            })?;
        }
        check_num_params("hidden_size", self.count_params())?;
        check_dropout("mlp_dropout", self.mlp_dropout)?;
        ensure(encoder.has_mlp_dropout() || self.mlp_dropout == 0.0, "mlp_dropout", || {
            format!("is {}, but the family {name} has none", self.mlp_dropout)
        })?;
        check_dropout("attention_probs_dropout_prob", self.attention_probs_dropout_prob)
    }

    /// The parameters of the embeddings and of the encoder's matrices, to which biases and norms add few.
    fn count_params(&self) -> u128 {
        // In 128 bits: no product of the sizes of an invalid config overflows.
        let [hidden, inner, keys, positions] = [
            self.embeddings.hidden_size,
            self.intermediate_size,
            self.key_width(),
            self.embeddings.max_position_embeddings,
        ]
        .map(|size| size as u128);
        let distances = match self.embeddings.position_embedding_type.is_relative() {
            true => 2 * positions * (hidden / self.num_attention_heads as u128),
            false => 0,
        };
        let [shared, projections] = self.disentangled.map_or([0; 2], |own| {
            let count = if own.share_att_key { 0 } else { own.num_products() as u128 - 1 };
            [2 * own.span() as u128 * hidden, count * hidden * hidden]
        });
        // Attention's four; U, and G if there is a gate; and D.
        let inwards = 1 + u128::from(self.encoder().is_gated);
        let layer = 2 * hidden * (hidden + keys) + (inwards + 1) * hidden * inner + distances + projections;
        self.embeddings.count_params() + shared + self.num_stored_layers() as u128 * layer
    }

    /// The width of all keys of a token.
    pub(super) fn key_width(&self) -> usize {
        let heads = self.num_attention_heads;
        self.embeddings.hidden_size / heads * self.num_key_value_heads.unwrap_or(heads)
    }

    /// Layers with weights of their own: ALBERT runs one again and again.
    pub(crate) fn num_stored_layers(&self) -> usize {
        if self.embeddings.family.architecture().shares_layers { 1 } else { self.num_hidden_layers }
    }

    /// A linear layer from H to `outputs`.
    pub(crate) fn linear(&self, outputs: usize, device: &Device) -> Linear {
        let has_bias = self.encoder().biases.of_others;
        self.scaled_linear([self.embeddings.hidden_size, outputs], 1.0, has_bias, device)
    }

    /// The dropout of a layer beside that of its attention.
    pub(crate) fn layer_dropout(&self) -> f64 {
        if self.encoder().has_mlp_dropout() { self.mlp_dropout } else { self.embeddings.hidden_dropout_prob }
    }

    /// A linear layer of the encoder whose output is added to its input, or of a head before the last.
    pub(crate) fn output_linear(&self, shape: [usize; 2], has_bias: bool, device: &Device) -> Linear {
        // So that the sum over the layers, which nothing normalises in between, starts as wide in a deep model. ModernBERT's alone,
        // whose initial values are truncated too.
        let factor = match self.embeddings.family.spec().initializer_bound {
            Some(_) => (2.0 * self.num_hidden_layers as f64).sqrt().recip(),
            None => 1.0,
        };
        self.scaled_linear(shape, factor, has_bias, device)
    }

    /// A linear layer of this many inputs and outputs, initialised as the model's tables, with `factor` times the spread; a
    /// bias starts at zero.
    pub(crate) fn scaled_linear(
        &self,
        shape: [usize; 2],
        factor: f64,
        has_bias: bool,
        device: &Device,
    ) -> Linear {
        Linear {
            weight: self.embeddings.initializer.times(factor).init_matrix(shape, None, device),
            bias: has_bias.then(|| Initializer::Zeros.init([shape[1]], device)),
        }
    }

    pub(crate) fn encoder(&self) -> &'static Architecture {
        self.embeddings.family.architecture()
    }
}
