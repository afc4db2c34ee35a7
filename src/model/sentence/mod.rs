mod modules;
pub(super) mod pooling;
mod pooling_config;
pub(super) mod sentence_loss;
pub(super) mod sentence_module;
pub(super) mod similarity;

use crate::embeddings::BertEmbeddingsInput;
use crate::encoder::config::BertModelConfig;
use crate::error::{Error, Result};
use crate::layers::{PaddingMask, check_sizes, ensure};
use crate::model::bert::BertModel;
use crate::model::labels::check_padding;
use crate::model::loss::widened;
use crate::model::sentence::pooling::Pooling;
use crate::model::sentence::sentence_loss::{MultipleNegativesRankingLoss, SentenceLoss, check_labels};
use crate::model::sentence::sentence_module::{SentenceModule, SentenceModuleConfig};
use crate::model::sentence::similarity::{Similarity, normalized};
use crate::model::sentence_transformers::Prompts;
use burn::module::Param;
use burn::nn::Initializer;
use burn::prelude::*;
use burn_fused::recomputed_anywhere;

/// Configuration of [`BertForSentenceEmbedding`].
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub struct BertForSentenceEmbeddingConfig {
    /// The model below.
    pub bert: BertModelConfig,
    /// The first hidden state, 0 being that of the embeddings, of those whose weighted mean is pooled, with weights that are
    /// trained; by default the last one alone is pooled. `WeightedLayerPooling` of sentence-transformers.
    pub layer_start: Option<usize>,
    /// How the vectors of the tokens are pooled.
    #[config(default = "Pooling::Mean")]
    pub pooling: Pooling,
    /// Other poolings, whose vectors follow that of the first.
    #[config(default = "Vec::new()")]
    pub more_pooling: Vec<Pooling>,
    /// Whether the tokens of a prompt are pooled too; if not, `encode` leaves them out.
    #[config(default = true)]
    pub include_prompt: bool,
    /// What follows the pooling, in this order.
    #[config(default = "Vec::new()")]
    pub modules: Vec<SentenceModuleConfig>,
    /// Whether the vectors are scaled to length 1 at the end.
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
    /// [`SentenceLoss::validate`], and [`Error::Config`] if `max_seq_length`, `truncate_dim`, `mini_batch_size` or a module's
    /// `out_features` is 0, a probability of dropout is not in [0, 1), there is no hidden state `layer_start`, or the default
    /// prompt is missing.
    pub fn validate(&self) -> Result<()> {
        self.bert.validate()?;
        self.prompts.validate()?;
        self.modules.iter().try_for_each(SentenceModuleConfig::validate)?;
        let layers = self.bert.num_hidden_layers;
        ensure(self.layer_start.is_none_or(|start| start <= layers), "layer_start", || {
            format!("is {}, but there are hidden states 0 to {layers}", self.layer_start.unwrap_or_default())
        })?;
        self.loss.validate(self.width())?;
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

    /// The length of the vectors.
    fn width(&self) -> usize {
        self.modules.iter().fold(self.pooled_width(), |width, own| own.width_after(width))
    }

    fn build(&self, device: &Device) -> BertForSentenceEmbedding {
        let mut width = self.pooled_width();
        let modules = self.modules.iter().map(|config| {
            let module = config.build(width, device);
            width = config.width_after(width);
            module
        });
        let weights = |start| Initializer::Ones.init([self.bert.num_hidden_layers + 1 - start], device);
        BertForSentenceEmbedding {
            modules: modules.collect(),
            layer_weights: self.layer_start.map(weights),
            bert: self.bert.build(false, device),
            // The modules state their own config, so that the two cannot differ.
            stated: Self { modules: Vec::new(), ..self.clone() },
        }
    }
}

head!(BertForSentenceEmbeddingConfig, BertForSentenceEmbedding, SentencePairBatch, SentenceEmbeddingOutput);

/// A training batch for [`BertForSentenceEmbedding`]; [`SentenceLoss`] says what candidates are.
#[derive(Clone, Debug)]
pub struct SentencePairBatch {
    /// B sentences.
    pub anchors: BertEmbeddingsInput,
    /// The padding of the anchors, [B, S]; `None` if none is padded.
    pub anchor_padding: Option<PaddingMask>,
    /// C ≥ B sentences.
    pub candidates: BertEmbeddingsInput,
    /// The padding of the candidates, [C, S′]; `None` if none is padded.
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

/// Sentence embeddings: the vectors of the tokens, pooled, and optionally passed through further modules and normalised.
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
    /// The weights wᵢ of the last hidden states hᵢ, whose mean Σ wᵢ·hᵢ / Σ wᵢ is pooled; `None` if the last one is.
    pub layer_weights: Option<Param<Tensor<1>>>,
    /// What follows the pooling.
    pub modules: Vec<SentenceModule>,
    /// The config that the model was built from, without its modules.
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
        // Of as many hidden states as there are weights.
        let start = |weights: &Param<Tensor<1>>| {
            (self.bert.encoder.num_hidden_layers() + 1).saturating_sub(weights.lazy_shape()[0])
        };
        BertForSentenceEmbeddingConfig {
            bert: self.bert.config(),
            layer_start: self.layer_weights.as_ref().map(start),
            modules: self.modules.iter().map(SentenceModule::config).collect(),
            ..self.stated.clone()
        }
    }

    /// The length of the vectors.
    pub fn width(&self) -> usize {
        self.config().width()
    }

    /// One vector per sentence, [B, H], or as wide as the [`modules`](Self::modules) make them. Errors are those of
    /// [`BertModel::try_forward`].
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
        let words = &self.bert.embeddings.word_embeddings.weight;
        let hidden = self.token_vectors(input, padding)?;
        let poolings = [self.stated.pooling].into_iter().chain(self.stated.more_pooling.iter().copied());
        let pooled = poolings.map(|pooling| pooling.after_prompts(hidden.clone(), padding, prompt_lengths));
        let pooled = Tensor::cat(pooled.collect::<Result<_>>()?, 1);
        let vectors = self.modules.iter().fold(pooled, |x, own| own.forward(x, words));
        Ok(if self.stated.normalize { normalized(vectors) } else { vectors })
    }

    /// What is pooled, [B, S, H]: the last hidden state, or the weighted mean of several.
    fn token_vectors(&self, input: &BertEmbeddingsInput, padding: Option<&PaddingMask>) -> Result<Tensor<3>> {
        let Some(weights) = &self.layer_weights else {
            return Ok(self.bert.try_forward(input, padding)?.last_hidden_state);
        };
        let (count, [weighted]) = (self.bert.encoder.num_hidden_layers() + 1, weights.lazy_shape().dims());
        if !(1..=count).contains(&weighted) {
            let expected = format!("[{}]", weighted.clamp(1, count));
            return Err(Error::shape("layer_weights", [weighted], expected));
        }
        let (weights, mut states) = (widened(weights.val()), Vec::new());
        let last = self.bert.forward_watched(input, padding, |rows| states.push(rows.clone()))?;
        states.push(last.rows());
        let dtype = last.rows().dtype();
        let states = states.into_iter().skip(count - weighted).enumerate();
        let terms = states.map(|(i, rows)| widened(rows) * weights.clone().narrow(0, i, 1).unsqueeze());
        let sum = terms.reduce(|sum, term| sum + term).expect("at least one weight");
        let mean = (sum / weights.clone().sum().unsqueeze()).cast(dtype); // [N, H]
        Ok(last.packing().unpack(mean))
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
