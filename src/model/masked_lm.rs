//! `BertForMaskedLm`: the model.

use super::masked_lm_batch::MaskedLmBatch;
use super::masked_lm_head::MaskedLmHead;
use crate::embeddings::BertEmbeddings;
use crate::embeddings::BertEmbeddingsInput;
use crate::embeddings::EmbeddingInitializer;
use crate::embeddings::{BertEmbeddingsConfig, PositionEmbeddingType};
use crate::encoder::{BertEncoder, BertEncoderConfig};
use crate::error::{EmbeddingTable, Error, Result};
use burn::config::Config;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Initializer, Linear};
use burn::prelude::*;

/// Configuration of [`BertForMaskedLm`]; the defaults are BERT-base's.
#[derive(Config, Debug, PartialEq)]
pub struct BertForMaskedLmConfig {
    /// The input layer. Its hidden size, LayerNorm ε, dropout and initialiser serve the whole model.
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
    /// Probability that dropout zeroes an attention weight in training, in [0, 1).
    #[config(default = 0.1)]
    pub attention_probs_dropout_prob: f64,
    /// Whether the tied head trains the padding row of the word table, as it does in PyTorch. If not, the row
    /// gets no gradient from either end of the model and a zero row stays zero; the scores are the same.
    #[config(default = true)]
    pub train_padding_row: bool,
}

impl BertForMaskedLmConfig {
    /// `bert-base-uncased`: 109,514,298 parameters, the head's included.
    pub fn bert_base_uncased() -> Self {
        Self::new(BertEmbeddingsConfig::bert_base_uncased())
    }

    /// `bert-base-chinese`: 102,290,312 parameters, the head's included.
    pub fn bert_base_chinese() -> Self {
        Self::new(BertEmbeddingsConfig::bert_base_chinese())
    }

    /// `bert-large-uncased`: 335,174,458 parameters, the head's included.
    pub fn bert_large_uncased() -> Self {
        Self::new(BertEmbeddingsConfig::bert_large_uncased())
            .with_num_hidden_layers(24)
            .with_num_attention_heads(16)
            .with_intermediate_size(4096)
    }

    /// `roberta-base`: 124,697,433 parameters, the head's included.
    pub fn roberta_base() -> Self {
        Self::new(BertEmbeddingsConfig::roberta_base())
    }

    /// Checks that a model can be built from this config.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], naming the field, if the embeddings' config is invalid, a size is 0, the heads do
    /// not divide the hidden size, the dropout is not in [0, 1), or the positions are relative ones (Burn's
    /// attention has none, so the model would see no order).
    pub fn validate(&self) -> Result<()> {
        self.embeddings.validate()?;
        let invalid = |field, problem: String| Err(Error::Config { field, problem });
        for (field, size) in [
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
        ] {
            if size == 0 {
                return invalid(field, "is 0, but must be at least 1".into());
            }
        }
        let hidden_size = self.embeddings.hidden_size;
        if !hidden_size.is_multiple_of(self.num_attention_heads) {
            return invalid(
                "num_attention_heads",
                format!("is {}, but must divide hidden_size {hidden_size}", self.num_attention_heads),
            );
        }
        let dropout = self.attention_probs_dropout_prob;
        if !(0.0..1.0).contains(&dropout) {
            return invalid("attention_probs_dropout_prob", format!("is {dropout}, but must lie in [0, 1)"));
        }
        match self.embeddings.position_embedding_type {
            PositionEmbeddingType::Absolute | PositionEmbeddingType::AfterPadding => Ok(()),
            relative => invalid(
                "position_embedding_type",
                format!("is {relative:?}, but Burn's TransformerEncoder knows no relative positions"),
            ),
        }
    }

    /// Builds the model on `device`.
    ///
    /// # Panics
    ///
    /// Where [`try_init`](Self::try_init) returns an error, with the same message.
    pub fn init(&self, device: &Device) -> BertForMaskedLm {
        self.try_init(device).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds the model on `device`, or says what is wrong with the config.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn try_init(&self, device: &Device) -> Result<BertForMaskedLm> {
        self.validate()?;
        let BertEmbeddingsConfig { hidden_size, vocab_size, layer_norm_eps, hidden_dropout_prob, .. } =
            self.embeddings;
        let (EmbeddingInitializer::Normal { std } | EmbeddingInitializer::TruncatedNormal { std, .. }) =
            self.embeddings.initializer;
        let initializer = Initializer::Normal { mean: 0.0, std };
        let encoder = BertEncoderConfig::new()
            .with_hidden_size(hidden_size)
            .with_num_hidden_layers(self.num_hidden_layers)
            .with_num_attention_heads(self.num_attention_heads)
            .with_intermediate_size(self.intermediate_size)
            .with_hidden_dropout_prob(hidden_dropout_prob)
            .with_attention_probs_dropout_prob(self.attention_probs_dropout_prob)
            .with_layer_norm_eps(layer_norm_eps)
            .with_initializer_range(std)
            .try_init(device)?;
        Ok(BertForMaskedLm {
            embeddings: self.embeddings.try_init(device)?,
            encoder,
            head: MaskedLmHead {
                train_padding_row: self.train_padding_row,
                ..MaskedLmHead::new(hidden_size, vocab_size, layer_norm_eps, initializer, device)
            },
            pooler: None,
        })
    }
}

/// BERT with its masked-language-model head: [`BertEmbeddings`], [`BertEncoder`] and a head that is tied to the word table by reading it.
///
/// Made by [`BertForMaskedLmConfig::init`].
#[derive(Module, Debug)]
pub struct BertForMaskedLm {
    /// The input layer.
    pub embeddings: BertEmbeddings,
    /// The transformer layers.
    pub encoder: BertEncoder,
    /// Scores words; reads `embeddings.word_embeddings`.
    pub head: MaskedLmHead,
    /// What [`cls_vector`](Self::cls_vector) goes through, where a checkpoint has one: [H, H]. It takes no part
    /// in masked-language modelling.
    pub pooler: Option<Linear>,
}

/// What [`BertForMaskedLm::forward`] gives.
#[derive(Debug)]
pub struct MaskedLmOutput {
    /// Mean cross-entropy over the hidden tokens in nats, `[1]`; 0 for a batch without any.
    pub loss: Tensor<1>,
    /// Scores of every word for the N hidden tokens, [N, V]; `None` for a batch without any.
    pub logits: Option<Tensor<2>>,
}

/// One vector a sequence: the mean of its tokens' vectors, padding left out.
///
/// What sentence-transformers calls mean pooling. A sequence of nothing but padding gets zeros.
///
/// # Shapes
///
/// - `hidden`: [B, S, H]
/// - `padding`: [B, S], true where there is no token; `None` if there is no such place
/// - output: [B, H]
///
/// # Panics
///
/// Panics if `padding` is not [B, S].
pub fn mean_pooled(hidden: Tensor<3>, padding: Option<Tensor<2, Bool>>) -> Tensor<2> {
    let [batch, seq, _] = hidden.dims();
    check_padding(padding.as_ref(), [batch, seq]).unwrap_or_else(|error| panic!("{error}"));
    let Some(padding) = padding else { return hidden.mean_dim(1).squeeze_dim(1) };
    let padding = padding.unsqueeze_dim::<3>(2); // [B, S, 1]
    let counts = padding.clone().bool_not().int().sum_dim(1).clamp_min(1); // [B, 1, 1]
    let dtype = hidden.dtype();
    let total = hidden.clone().mask_fill(padding.expand(hidden.dims()), 0.0).sum_dim(1);
    (total / counts.float().cast(dtype)).squeeze_dim(1)
}

fn check_padding(padding: Option<&Tensor<2, Bool>>, [batch, seq]: [usize; 2]) -> Result<()> {
    match padding {
        Some(padding) if padding.dims() != [batch, seq] => Err(Error::ShapeMismatch {
            input: "padding",
            found: padding.dims().to_vec(),
            expected: format!("[{batch}, {seq}], as of the tokens,"),
        }),
        _ => Ok(()),
    }
}

impl BertForMaskedLm {
    /// The config that builds a model of this shape.
    pub fn config(&self) -> BertForMaskedLmConfig {
        let layer = self.encoder.layers.first();
        let defaults = BertForMaskedLmConfig::new(self.embeddings.config());
        BertForMaskedLmConfig {
            num_hidden_layers: self.encoder.layers.len(),
            num_attention_heads: layer
                .map_or(defaults.num_attention_heads, |layer| layer.attention.num_attention_heads),
            intermediate_size: layer
                .map_or(defaults.intermediate_size, |layer| layer.intermediate.weight.lazy_shape()[1]),
            attention_probs_dropout_prob: layer
                .map_or(defaults.attention_probs_dropout_prob, |layer| layer.attention.dropout.prob),
            train_padding_row: self.head.train_padding_row,
            ..defaults
        }
    }

    /// Vectors in context.
    ///
    /// # Shapes
    ///
    /// - `input`: [B, S] ids or [B, S, H] vectors
    /// - `padding`: [B, S], true where attention must not look
    /// - output: [B, S, H]
    ///
    /// # Panics
    ///
    /// Where [`BertEmbeddings::forward`] does, and if `padding` is not [B, S].
    pub fn encode(&self, input: &BertEmbeddingsInput, padding: Option<Tensor<2, Bool>>) -> Tensor<3> {
        self.try_encode(input, padding).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`encode`](Self::encode), with bad input as an error.
    ///
    /// # Errors
    ///
    /// Those of [`BertEmbeddings::try_forward`], and [`Error::ShapeMismatch`] if `padding` is not [B, S].
    pub fn try_encode(
        &self,
        input: &BertEmbeddingsInput,
        padding: Option<Tensor<2, Bool>>,
    ) -> Result<Tensor<3>> {
        check_padding(padding.as_ref(), input.dims())?;
        Ok(self.encoder.forward(self.embeddings.try_forward(input)?, padding))
    }

    /// The vectors before, between and after the layers: those of the embeddings, then those of each layer,
    /// each [B, S, H]. The last are what [`encode`](Self::encode) gives (transformers' `hidden_states`).
    ///
    /// # Errors
    ///
    /// Those of [`try_encode`](Self::try_encode).
    pub fn hidden_states(
        &self,
        input: &BertEmbeddingsInput,
        padding: Option<Tensor<2, Bool>>,
    ) -> Result<Vec<Tensor<3>>> {
        check_padding(padding.as_ref(), input.dims())?;
        Ok(self.encoder.forward_all(self.embeddings.try_forward(input)?, padding).hidden_states)
    }

    /// One vector a sequence, from its first token: `tanh(x·P + p)` where the model has a pooler
    /// (transformers' `pooler_output`), and the token's own vector where it has none.
    ///
    /// # Shapes
    ///
    /// - `hidden`: [B, S, H], as [`encode`](Self::encode) gives it
    /// - output: [B, H]
    pub fn cls_vector(&self, hidden: Tensor<3>) -> Tensor<2> {
        let first = hidden.narrow(1, 0, 1).squeeze_dim(1);
        match &self.pooler {
            Some(pooler) => pooler.forward(first).tanh(),
            None => first,
        }
    }

    /// Scores of every word for every vector: [N, H] → [N, V].
    ///
    /// # Panics
    ///
    /// Panics if the vectors are not of length H.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.head.forward(hidden, &self.embeddings.word_embeddings)
    }

    /// Guesses the hidden tokens of a batch and costs the guesses.
    ///
    /// # Panics
    ///
    /// Where [`try_forward`](Self::try_forward) returns an error, with the same message.
    pub fn forward(&self, batch: &MaskedLmBatch) -> MaskedLmOutput {
        self.try_forward(batch).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`forward`](Self::forward), with bad input as an error.
    ///
    /// The head runs on the N hidden tokens alone. A batch that hides none costs 0: the loss is then a zero
    /// that still depends on the model, so that its gradients are zeros and not missing.
    ///
    /// # Errors
    ///
    /// Those of [`try_encode`](Self::try_encode), and [`Error::IdOutOfRange`] if a hidden token is not in the
    /// vocabulary.
    pub fn try_forward(&self, batch: &MaskedLmBatch) -> Result<MaskedLmOutput> {
        let hidden = self.try_encode(&batch.input, batch.padding.clone())?;
        let [batch_size, seq, hidden_size] = hidden.dims();
        let hidden = hidden.reshape([batch_size * seq, hidden_size]);
        let Some(masked) = &batch.masked else {
            let first = hidden.narrow(0, 0, 1);
            return Ok(MaskedLmOutput { loss: self.logits(first).sum().mul_scalar(0.0), logits: None });
        };
        masked.labels.check(EmbeddingTable::Word, self.embeddings.word_embeddings.num_embeddings())?;
        let logits = self.logits(hidden.select(0, masked.positions.clone())); // [N, V]
        let labels = masked.labels.tensor().squeeze_dim::<1>(0); // [N]
        let loss = CrossEntropyLossConfig::new().init(&logits.device()).forward(logits.clone(), labels);
        Ok(MaskedLmOutput { loss, logits: Some(logits) })
    }
}
