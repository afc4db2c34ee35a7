use super::disentangled::DisentangledConfig;
use super::rotary::RotaryConfig;
use crate::embeddings::BertEmbeddingsConfig;
use crate::error::Result;
use crate::family::{Architecture, Biases, NormPlace, PositionEmbeddingType};
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

/// The configs of published models.
macro_rules! published {
    ($($name:ident: $doc:literal $(, $with:ident($value:expr))*;)*) => {
        impl BertModelConfig {
            $(#[doc = $doc]
            pub fn $name() -> Self {
                Self::new(BertEmbeddingsConfig::$name())$(.$with($value))*
            })*
        }
    };
}

published! {
    bert_base_uncased: "`bert-base-uncased`: 109,482,240 parameters, the pooler's included.";
    bert_base_chinese: "`bert-base-chinese`: 102,267,648 parameters, the pooler's included.";
    bert_large_uncased: "`bert-large-uncased`: 335,141,888 parameters, the pooler's included.",
        with_num_hidden_layers(24), with_num_attention_heads(16), with_intermediate_size(4096);
    roberta_base: "`roberta-base`: 124,645,632 parameters, the pooler's included.";
    distilbert_base_uncased: "`distilbert-base-uncased`: 66,362,880 parameters.", with_num_hidden_layers(6);
    electra_small: "`google/electra-small-discriminator`: 13,483,008 parameters.",
        with_num_attention_heads(4), with_intermediate_size(1024);
    electra_base: "`google/electra-base-discriminator`: 108,891,648 parameters.";
    mpnet_base: "`microsoft/mpnet-base`: 109,486,464 parameters, the pooler's included.";
    albert_base_v2: "`albert/albert-base-v2`: 11,683,584 parameters, the pooler's included.",
        with_hidden_act(Activation::GeluTanh), with_attention_probs_dropout_prob(0.0);
    modernbert_base: "`answerdotai/ModernBERT-base`: 149,014,272 parameters.",
        with_num_hidden_layers(22), with_intermediate_size(1152), with_attention_probs_dropout_prob(0.0),
        with_rotary(Some(RotaryConfig::new()));
    nomic_embed_text_v1_5: "`nomic-ai/nomic-embed-text-v1.5`: 136,731,648 parameters.",
        with_hidden_act(Activation::Silu), with_attention_probs_dropout_prob(0.0),
        with_rotary(Some(RotaryConfig::of_all_layers(1_000.0)));
    gte_multilingual_base: "`alibaba-nlp-community/gte-multilingual-base`: 305,368,320 parameters.",
        with_attention_probs_dropout_prob(0.0), with_rotary(Some(RotaryConfig::of_all_layers(160_000.0)));
    jina_embeddings_v3:
        "`jinaai/jina-embeddings-v3-hf`: 559,364,096 parameters, the pooler's included, its task adapters' not.",
        with_num_hidden_layers(24), with_num_attention_heads(16), with_intermediate_size(4096),
        with_rotary(Some(RotaryConfig::of_all_layers(20_000.0)));
    deberta_v3_small: "`microsoft/deberta-v3-small`: 141,304,320 parameters.",
        with_num_hidden_layers(6), with_disentangled(Some(DisentangledConfig::new()));
    deberta_v3_base: "`microsoft/deberta-v3-base`: 183,831,552 parameters.",
        with_disentangled(Some(DisentangledConfig::new()));
    deberta_v3_large: "`microsoft/deberta-v3-large`: 434,012,160 parameters.",
        with_num_hidden_layers(24), with_num_attention_heads(16), with_intermediate_size(4096),
        with_disentangled(Some(DisentangledConfig::new()));
}

impl BertModelConfig {
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

    /// The parameters of embeddings and encoder.
    fn count_params(&self) -> u128 {
        let BertEmbeddingsConfig { hidden_size, max_position_embeddings, .. } = self.embeddings;
        let inner = self.intermediate_size;
        // In 128 bits: no product of the sizes of an invalid config overflows.
        let Biases { of_layers, of_inner, of_others } = self.encoder().biases;
        let linear = |[inputs, outputs]: [usize; 2], has_bias: bool| {
            (inputs as u128 + u128::from(has_bias)) * outputs as u128
        };
        // The attention's four; U, and G if there is a gate; and D.
        let linears = 4 * linear([hidden_size; 2], of_layers)
            + (1 + u128::from(self.encoder().is_gated)) * linear([hidden_size, inner], of_inner)
            + linear([inner, hidden_size], of_layers);
        let distances = match self.embeddings.position_embedding_type.is_relative() {
            true => 2 * max_position_embeddings as u128 * (hidden_size / self.num_attention_heads) as u128,
            false => 0,
        };
        let [shared, projections] = self.disentangled.map_or([0; 2], |disentangled| {
            let norm = if disentangled.norm_rel_ebd { 2 } else { 0 };
            let own = if disentangled.share_att_key { 0 } else { disentangled.num_products() - 1 };
            let table = (2 * disentangled.span() as u128 + norm) * hidden_size as u128;
            [table, own as u128 * linear([hidden_size, hidden_size], true)]
        });
        // γ and β of two LayerNorms.
        let layer = linears + (2 + 2 * u128::from(of_others)) * hidden_size as u128 + distances + projections;
        let projection =
            self.embeddings.embedding_size.map_or(0, |width| linear([width, hidden_size], of_others));
        self.embeddings.count_params() + projection + shared + self.num_stored_layers() as u128 * layer
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
        // So that the sum over the layers, which nothing normalises in between, starts as wide in a deep model.
        let factor = match self.encoder().norm {
            NormPlace::Pre => (2.0 * self.num_hidden_layers as f64).sqrt().recip(),
            NormPlace::Post => 1.0,
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
