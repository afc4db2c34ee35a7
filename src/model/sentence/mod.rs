mod modules;
pub(super) mod pooling;
pub(super) mod sentence_loss;
pub(super) mod similarity;

use crate::embeddings::BertEmbeddingsInput;
use crate::encoder::Activation;
use crate::encoder::config::BertModelConfig;
use crate::error::{Error, Result};
use crate::layers::{PaddingMask, ParameterCheck, check_sizes, ensure, linear_activation};
use crate::model::bert::BertModel;
use crate::model::labels::check_padding;
use crate::model::sentence::pooling::Pooling;
use crate::model::sentence::sentence_loss::{MultipleNegativesRankingLoss, SentenceLoss, check_labels};
use crate::model::sentence::similarity::{Similarity, normalized};
use crate::model::sentence_transformers::{Prompts, check_activation};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn_fused::recomputed_anywhere;

/// Configuration of [`BertForSentenceEmbedding`].
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub struct BertForSentenceEmbeddingConfig {
    /// The model below.
    pub bert: BertModelConfig,
    /// How the vectors of the tokens are pooled.
    #[config(default = "Pooling::Mean")]
    pub pooling: Pooling,
    /// Other poolings, whose vectors follow that of the first.
    #[config(default = "Vec::new()")]
    pub more_pooling: Vec<Pooling>,
    /// Whether the tokens of a prompt are pooled too; if not, `encode` leaves them out.
    #[config(default = true)]
    pub include_prompt: bool,
    /// The layers after the pooling, which give the vectors another width.
    #[config(default = "Vec::new()")]
    pub dense: Vec<SentenceDenseConfig>,
    /// Whether the vectors are scaled to length 1.
    #[config(default = true)]
    pub normalize: bool,
    /// The maximum length of a sentence in tokens; by default the tokenizer's.
    pub max_seq_length: Option<usize>,
    /// Whether sentences are converted to lower case first, whatever the tokenizer does.
    #[config(default = false)]
    pub do_lower_case: bool,
    /// What `encode` puts before texts.
    #[config(default = "Prompts::new()")]
    pub prompts: Prompts,
    /// How many values of each vector `encode` keeps; by default all.
    pub truncate_dim: Option<usize>,
    /// The similarity function of the vectors.
    #[config(default = "Similarity::Cosine")]
    pub similarity: Similarity,
    /// The loss in training. Not stored.
    #[config(default = "MultipleNegativesRankingLoss::new().into()")]
    pub loss: SentenceLoss,
    /// Sentences that training embeds at once; by default all of a batch. Not stored.
    ///
    /// The backward pass computes each mini-batch again, with the same dropout, so that only one is in memory. Loss and
    /// gradients are those of the whole batch; a step costs one extra forward pass. A model of more than 4,095 parameters
    /// is refused ([`Error::Fused`]). (`CachedMultipleNegativesRankingLoss` of sentence-transformers 6.2; Gao et al. 2021.)
    pub mini_batch_size: Option<usize>,
}

impl BertForSentenceEmbeddingConfig {
    /// Checks that a model can be built from this config. Errors are those of [`BertModelConfig::validate`] and
    /// [`SentenceLoss::validate`], and [`Error::Config`] if `max_seq_length`, `truncate_dim`, `mini_batch_size` or a layer's
    /// `out_features` is 0, or the default prompt is missing.
    pub fn validate(&self) -> Result<()> {
        self.bert.validate()?;
        self.prompts.validate()?;
        for dense in &self.dense {
            ensure(dense.out_features > 0, "dense", || {
                "has 0 out_features, but must have at least 1".into()
            })?;
            check_activation("dense", dense.activation)?;
        }
        let width = self.dense.last().map_or(self.pooled_width(), |dense| dense.out_features);
        self.loss.validate(width)?;
        let sizes = [
            ("max_seq_length", self.max_seq_length),
            ("truncate_dim", self.truncate_dim),
            ("mini_batch_size", self.mini_batch_size),
        ];
        check_sizes(sizes.map(|(field, size)| (field, size.unwrap_or(1), usize::MAX)))
    }

    fn pooled_width(&self) -> usize {
        self.bert.embeddings.hidden_size.saturating_mul(1 + self.more_pooling.len())
    }

    fn build(&self, device: &Device) -> BertForSentenceEmbedding {
        let mut width = self.pooled_width();
        let dense = self.dense.iter().map(|&SentenceDenseConfig { out_features, bias, activation }| {
            // Burn's own initialiser, which is PyTorch's.
            let linear = LinearConfig::new(width, out_features).with_bias(bias).init(device);
            // Each layer reads vectors as wide as those that the one before gives.
            width = out_features;
            SentenceDense { linear, activation }
        });
        BertForSentenceEmbedding {
            dense: dense.collect(),
            bert: self.bert.build(false, device),
            // The layers state their own config, so that the two cannot differ.
            stated: Self { dense: Vec::new(), ..self.clone() },
        }
    }
}

head!(BertForSentenceEmbeddingConfig, BertForSentenceEmbedding, SentencePairBatch, SentenceEmbeddingOutput);

/// A training batch for [`BertForSentenceEmbedding`]; [`SentenceLoss`] says what candidates are.
#[derive(Clone, Debug)]
pub struct SentencePairBatch {
    /// B sentences.
    pub anchors: BertEmbeddingsInput,
    /// Where an anchor is padded, [B, S]; `None` if none is.
    pub anchor_padding: Option<PaddingMask>,
    /// C ≥ B sentences.
    pub candidates: BertEmbeddingsInput,
    /// Where a candidate is padded, [C, S′]; `None` if none is.
    pub candidate_padding: Option<PaddingMask>,
    /// The similarity of each anchor and its candidate, B numbers.
    pub labels: Option<Vec<f32>>,
    /// How many tokens at the start of each anchor, and of each candidate, belong to a prompt that is not pooled
    /// ([`include_prompt`](BertForSentenceEmbeddingConfig::include_prompt)); empty if there is none.
    pub prompt_lengths: [Vec<usize>; 2],
    /// Hashes of the texts of the anchors and of the candidates, by which metrics find equal ones; `None` if they are unknown.
    pub texts: Option<[Vec<u64>; 2]>,
}

impl SentencePairBatch {
    /// A batch of anchors and candidates, each with its padding; [`Error::ShapeMismatch`] if there are fewer candidates than
    /// anchors, or a padding is not that of its tokens.
    pub fn new(
        (anchors, anchor_padding): (BertEmbeddingsInput, Option<PaddingMask>),
        (candidates, candidate_padding): (BertEmbeddingsInput, Option<PaddingMask>),
    ) -> Result<Self> {
        check_padding(&anchors, anchor_padding.as_ref())?;
        check_padding(&candidates, candidate_padding.as_ref())?;
        let ([batch, _], [count, seq]) = (anchors.dims(), candidates.dims());
        if count < batch {
            let expected = format!("[{batch} or more, {seq}], at least one per anchor");
            return Err(Error::shape("candidates", [count, seq], expected));
        }
        let (labels, texts, prompt_lengths) = (None, None, Default::default());
        Ok(Self { anchors, anchor_padding, candidates, candidate_padding, labels, texts, prompt_lengths })
    }

    /// Sets the similarity of each anchor and its candidate; [`Error::Data`] if there is not one for each, or one is not finite.
    pub fn with_labels(self, labels: &[f32]) -> Result<Self> {
        check_labels(labels, self.anchors.dims()[0])?;
        Ok(Self { labels: Some(labels.to_vec()), ..self })
    }
}

/// Sentence embeddings: the vectors of the tokens, pooled, and optionally passed through layers and normalised.
///
/// ```
/// # use burn_bert::{BertEmbeddingsInput, Result, model::{BertForSentenceEmbedding, SentencePairBatch}};
/// # fn example(model: BertForSentenceEmbedding, [questions, answers]: [BertEmbeddingsInput; 2]) -> Result<()> {
/// let _vectors = model.embed(&questions, None)?; // [B, H]
/// let batch = SentencePairBatch::new((questions, None), (answers, None))?;
/// let _gradients = model.forward(&batch).loss.backward();
/// # Ok(())
/// # }
/// ```
///
/// Checkpoints are directories of sentence-transformers, or of transformers: without `modules.json` it is mean pooling without
/// normalisation, as there. The model may lie in a folder, such as the `0_Transformer` of versions before 2. A checkpoint's
/// pooler is [unused](crate::model::LoadReport::unused), and saving into its directory keeps it.
///
/// Source: `SentenceTransformer` of sentence-transformers 6.2.
#[derive(Module, Debug)]
pub struct BertForSentenceEmbedding {
    /// The model below, without a pooler.
    pub bert: BertModel,
    /// The layers after the pooling.
    pub dense: Vec<SentenceDense>,
    /// The config that the model was built from, without its layers.
    #[module(skip)]
    stated: BertForSentenceEmbeddingConfig,
}

/// The output of [`BertForSentenceEmbedding::forward`].
#[derive(Debug)]
pub struct SentenceEmbeddingOutput {
    /// The loss, `[1]`.
    pub loss: Tensor<1>,
    /// The vectors of the anchors, [B, H].
    pub anchors: Tensor<2>,
    /// The vectors of the candidates, [C, H].
    pub candidates: Tensor<2>,
}

impl BertForSentenceEmbedding {
    /// The config that builds a model of this shape.
    pub fn config(&self) -> BertForSentenceEmbeddingConfig {
        BertForSentenceEmbeddingConfig {
            bert: self.bert.config(),
            dense: self.dense.iter().map(SentenceDense::config).collect(),
            ..self.stated.clone()
        }
    }

    /// The length of the vectors.
    pub fn width(&self) -> usize {
        self.dense.last().map_or(self.config().pooled_width(), |dense| dense.config().out_features)
    }

    /// One vector per sentence, [B, H], or as wide as the last of the [`dense`](Self::dense) layers. Errors are those of
    /// [`BertModel::try_forward`], and [`Error::Parameter`] if one of a layer does not fit.
    pub fn embed(&self, input: &BertEmbeddingsInput, padding: Option<&PaddingMask>) -> Result<Tensor<2>> {
        self.embed_after(input, padding, &[])
    }

    /// [`embed`](Self::embed) without the first tokens of each sentence, as many as `prompt_lengths` says, in the pooling.
    pub(crate) fn embed_after(
        &self,
        input: &BertEmbeddingsInput,
        padding: Option<&PaddingMask>,
        prompt_lengths: &[usize],
    ) -> Result<Tensor<2>> {
        let hidden = self.bert.try_forward(input, padding)?.last_hidden_state;
        let poolings = [self.stated.pooling].into_iter().chain(self.stated.more_pooling.iter().copied());
        let pooled = poolings.map(|pooling| pooling.after_prompts(hidden.clone(), padding, prompt_lengths));
        let pooled = Tensor::cat(pooled.collect::<Result<_>>()?, 1);
        let check = ParameterCheck::beside(&self.bert.embeddings.word_embeddings);
        let vectors = self.dense.iter().try_fold(pooled, |x, SentenceDense { linear, activation }| {
            let [_, outputs] = linear.weight.lazy_shape().dims();
            check.linear("dense.linear", linear, [x.dims()[1], outputs])?;
            Ok::<_, Error>(linear_activation(linear, x, *activation))
        })?;
        // Normalised last: a layer would give the vectors another length.
        Ok(if self.stated.normalize { normalized(vectors) } else { vectors })
    }

    /// Embeds anchors and candidates and returns the loss. Errors are those of [`embed`](Self::embed) and
    /// [`SentenceLoss::try_forward`]; with [mini-batches](BertForSentenceEmbeddingConfig::mini_batch_size), [`Error::Data`] for
    /// a batch of vectors and [`Error::Fused`] for a model of more than 4,095 parameters.
    pub fn try_forward(&self, batch: &SentencePairBatch) -> Result<SentenceEmbeddingOutput> {
        let [of_anchors, of_candidates] = &batch.prompt_lengths;
        let anchors = self.embed_all(&batch.anchors, batch.anchor_padding.as_ref(), of_anchors)?;
        let candidates =
            self.embed_all(&batch.candidates, batch.candidate_padding.as_ref(), of_candidates)?;
        // The loss reads them or not, and says so where they are missing.
        let labels = batch.labels.as_deref();
        let loss = self.stated.loss.try_forward(anchors.clone(), candidates.clone(), labels)?;
        Ok(SentenceEmbeddingOutput { loss, anchors, candidates })
    }

    fn embed_all(
        &self,
        input: &BertEmbeddingsInput,
        padding: Option<&PaddingMask>,
        prompt_lengths: &[usize],
    ) -> Result<Tensor<2>> {
        let [batch, _] = input.dims();
        let Some(size) = self.stated.mini_batch_size else {
            return self.embed_after(input, padding, prompt_lengths);
        };
        if input.input_ids().is_none() {
            let problem = "cannot be split into mini-batches; give input_ids, or leave out mini_batch_size";
            return Err(Error::data("inputs_embeds", problem));
        }
        self.bert.embeddings.check_all(input)?; // with the rows of the batch in messages
        // The parameters decide where, as a batch may be on a plain device.
        let device = self.bert.embeddings.word_embeddings.weight.val().device();
        let parts = (0..batch).step_by(size).map(|first| {
            let range = first..batch.min(first + size);
            let lengths = prompt_lengths.get(range.clone()).unwrap_or_default().to_vec();
            let padding = padding.map(|padding| padding.sequences(range.clone()));
            let part = (input.sequences(range)?, padding, lengths);
            let nothing = Tensor::zeros([1, 1], &device); // what comes in are ids
            recomputed_anywhere(self, nothing, &part, |model, _, (input, padding, lengths)| {
                model.embed_after(input, padding.as_ref(), lengths)
            })
        });
        Ok(Tensor::cat(parts.collect::<Result<_>>()?, 0))
    }
}

/// Configuration of a [`SentenceDense`], a layer of a [`BertForSentenceEmbedding`].
#[derive(Config, Debug, PartialEq)]
pub struct SentenceDenseConfig {
    /// Length of the vectors that it gives.
    pub out_features: usize,
    /// Whether there is a bias.
    #[config(default = true)]
    pub bias: bool,
    /// Activation after the linear layer.
    #[config(default = "Activation::Tanh")]
    pub activation: Activation,
}

/// `f(x·W + b)` of the vectors of sentences, part of a [`BertForSentenceEmbedding`]. Source: `Dense` of sentence-transformers
/// 6.2, without a residual.
#[derive(Module, Debug)]
pub struct SentenceDense {
    /// W, and b if there is one.
    pub linear: Linear,
    #[module(skip)]
    activation: Activation,
}

impl SentenceDense {
    /// The config that builds a layer of this shape.
    pub fn config(&self) -> SentenceDenseConfig {
        SentenceDenseConfig {
            out_features: self.linear.weight.lazy_shape()[1],
            bias: self.linear.bias.is_some(),
            activation: self.activation,
        }
    }
}
