use crate::checkpoint::{Fields, ModelKeys, StoredParam};
use crate::embeddings::{BertEmbeddingsConfig, BertEmbeddingsInput};
use crate::encoder::Activation;
use crate::encoder::config::BertModelConfig;
use crate::error::{EmbeddingTable, Error, Result};
use crate::family::{Keys, WORD_EMBEDDINGS, key_of};
use crate::layers::{
    LayerNorm, NewRows, PaddingMask, TokenEmbedding, TokenEmbeddingConfig, VocabularyResize, check_input,
    dtype, linear_activation,
};
use crate::model::bert::BertModel;
use crate::model::labels::{Labels, check_padding};
use crate::model::loss::zero_loss;
use crate::model::stored::{Copies, Stored, stored_head};
use burn::module::{Param, ParamId};
use burn::nn::{Initializer, Linear};
use burn::prelude::*;
use burn_fused::{cross_entropy, linear};
use serde_json::{Map, Value, json};

/// Configuration of [`BertForMaskedLm`].
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub struct BertForMaskedLmConfig {
    /// The model below the head.
    pub bert: BertModelConfig,
    /// Whether the decoder is tied to the word embeddings. EuroBERT's, without a statement in its `config.json`, is not.
    #[config(default = true)]
    pub tie_word_embeddings: bool,
    /// Whether the tied head sends gradient to the padding row of the word embeddings, as in PyTorch. If not, a zero row
    /// stays zero; the logits are the same.
    #[config(default = true)]
    pub train_padding_row: bool,
    /// DeBERTa: whether a file has the head under `cls.predictions`, and not under `lm_predictions.lm_head`, which has no
    /// decoder of its own. Both compute the same.
    #[config(default = true)]
    pub legacy: bool,
}

impl BertForMaskedLmConfig {
    /// Checks that a model can be built from this config. Errors are those of [`BertModelConfig::validate`].
    pub fn validate(&self) -> Result<()> {
        self.bert.validate()
    }

    fn build(&self, device: &Device) -> BertForMaskedLm {
        let BertEmbeddingsConfig { family, vocab_size, hidden_size, ref initializer, .. } =
            self.bert.embeddings;
        let (biases, has_transform) =
            (&self.bert.encoder().biases, self.bert.encoder().masked_lm_has_transform);
        let width = self.bert.embeddings.width();
        let decoder = TokenEmbeddingConfig::new(vocab_size, width).with_initializer(initializer.clone());
        let is_of_layers = family.architecture().masked_lm_activation_of_layers;
        let head = MaskedLmHead {
            transform: has_transform
                .then(|| self.bert.output_linear([hidden_size, width], biases.of_others, device)),
            layer_norm: has_transform.then(|| self.bert.embeddings.layer_norm(width, device)),
            bias: has_transform.then(|| Initializer::Zeros.init([vocab_size], device)),
            decoder: (!self.tie_word_embeddings).then(|| decoder.build(device)),
            train_padding_row: self.train_padding_row,
            activation: if is_of_layers { self.bert.hidden_act } else { Activation::Gelu },
            // The other class of transformers has no name for a decoder of its own.
            legacy: self.legacy || !self.tie_word_embeddings,
        };
        BertForMaskedLm { bert: self.bert.build(false, device), head }
    }
}

head!(BertForMaskedLmConfig, BertForMaskedLm, MaskedLmBatch, MaskedLmOutput);

/// A batch for [`BertForMaskedLm`]. [`MaskedLmCollator`](crate::data::MaskedLmCollator) masks tokens at random.
#[derive(Clone, Debug)]
pub struct MaskedLmBatch {
    /// The tokens, some of them masked, padded to one length.
    pub input: BertEmbeddingsInput,
    /// The padding of the sequences, [B, S]; `None` if none is padded.
    pub padding: Option<PaddingMask>,
    masked: Labels,
}

impl MaskedLmBatch {
    /// A batch whose masked tokens are at `positions`, given as row and column; `labels` are their original ids.
    /// [`Error::ShapeMismatch`] if there is not one label per position, or `padding` is not [B, S]; [`Error::Data`] if a
    /// position is outside the batch or occurs twice, or a label does not fit an `i32`.
    pub fn new(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        positions: &[[usize; 2]],
        labels: &[u32],
    ) -> Result<Self> {
        check_padding(&input, padding.as_ref())?;
        let masked = Labels::at(&input, positions, labels)?;
        Ok(Self { input, padding, masked })
    }

    /// Number of masked tokens, N.
    pub fn num_masked(&self) -> usize {
        self.positions().len()
    }

    /// Row and column of each masked token; empty if there are none.
    pub fn positions(&self) -> &[[usize; 2]] {
        &self.masked.positions
    }

    /// The original ids of the masked tokens, `[N]`; `None` if there are none.
    pub fn labels(&self) -> Option<Tensor<1, Int>> {
        self.masked.tensor.clone()
    }
}

/// BERT with a masked-language-model head, tied to the word embeddings: transformers' `BertForMaskedLM`,
/// `ElectraForMaskedLM` (the generator) and so on, by the [family](crate::Family).
///
/// ```
/// # use burn_bert::{BertEmbeddingsInput, Result, model::{BertForMaskedLm, MaskedLmBatch}};
/// # fn example(model: BertForMaskedLm, input: BertEmbeddingsInput) -> Result<()> {
/// let batch = MaskedLmBatch::new(input, None, &[[0, 1]], &[7])?; // the token at row 0, column 1, was 7
/// let _gradients = model.forward(&batch).loss.backward();
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct BertForMaskedLm {
    /// The model below the head; without a pooler.
    pub bert: BertModel,
    /// Predicts words; a tied head reads `bert.embeddings.word_embeddings`.
    pub head: MaskedLmHead,
}

/// The output of [`BertForMaskedLm::forward`].
#[derive(Debug)]
pub struct MaskedLmOutput {
    /// Mean cross-entropy over the masked tokens in nats, `[1]`; 0 for a batch without any.
    pub loss: Tensor<1>,
    /// Logits of the N masked tokens, [N, V], in the order of the batch; `None` for a batch without any.
    pub logits: Option<Tensor<2>>,
}

impl BertForMaskedLm {
    /// The config that builds a model of this shape.
    pub fn config(&self) -> BertForMaskedLmConfig {
        BertForMaskedLmConfig {
            bert: self.bert.config(),
            tie_word_embeddings: self.head.decoder.is_none(),
            train_padding_row: self.head.train_padding_row,
            legacy: self.head.legacy,
        }
    }

    /// The head's logits: [N, H] → [N, V]. [`Error::ShapeMismatch`], [`Error::DTypeMismatch`] or [`Error::DeviceMismatch`] if
    /// the vectors are not of length H, of the word embeddings' dtype and on their device; [`Error::Data`] if the word embeddings
    /// were resized without the head.
    pub fn scores(&self, hidden: Tensor<2>) -> Result<Tensor<2>> {
        let words = &self.bert.embeddings.word_embeddings;
        let hidden_size = self.bert.embeddings.hidden_size();
        self.head.check(words)?;
        let [rows, found] = hidden.dims();
        if found != hidden_size {
            return Err(Error::shape("hidden", [rows, found], format!("[N, {hidden_size}]")));
        }
        check_input("hidden", &hidden, words.weight.lazy_device(), dtype(&words.weight))?;
        Ok(self.head.forward(hidden, words))
    }

    /// Predicts the masked tokens of a batch, on which alone the head runs, and returns the loss. Without any it is 0, and its
    /// gradients are zeros. Errors are those of [`BertModel::try_forward`] and [`scores`](Self::scores),
    /// [`Error::IdOutOfRange`] if a label is not in the vocabulary, and another shape or device if `batch.input` was replaced.
    pub fn try_forward(&self, batch: &MaskedLmBatch) -> Result<MaskedLmOutput> {
        let masked = &batch.masked;
        masked.check(&batch.input)?;
        // Packed, so that only the masked tokens are taken and nothing of the size of the batch is made.
        let hidden = self.bert.forward_packed(&batch.input, batch.padding.as_ref())?;
        let Some(labels) = masked.tensor.clone() else {
            // The head reads one token, so that its parameters have gradients too.
            let first = hidden.select(&[0]);
            return Ok(MaskedLmOutput { loss: zero_loss(self.scores(first)?), logits: None });
        };
        let rows = self.bert.embeddings.word_embeddings.num_embeddings();
        // Before the head runs: a gather with such an id is undefined on GPUs.
        if let Some((index, id)) = masked.first_not_below(rows) {
            let table = EmbeddingTable::Word;
            return Err(Error::IdOutOfRange { input: "labels", index, id, table, rows });
        }
        let logits = self.scores(hidden.select(&masked.rows()))?; // [N, V]
        let loss = cross_entropy(logits.clone(), labels);
        Ok(MaskedLmOutput { loss, logits: Some(logits) })
    }
}

/// The head of [`BertForMaskedLm`]: `logits = LayerNorm(f(x·A + a))·Wᵀ + b`, with f the activation; in EuroBERT `x·Wᵀ`. A tied
/// head does not hold W, of which a copy would differ after the first step: [`forward`](Self::forward) is given the word embeddings.
#[derive(Module, Debug)]
pub struct MaskedLmHead {
    /// A and a, [H, E], with E the width of the word embeddings (H but in ELECTRA and ALBERT).
    pub transform: Option<Linear>,
    /// γ and β, E values each.
    pub layer_norm: Option<LayerNorm>,
    /// b, one number per word, `[V]`.
    pub bias: Option<Param<Tensor<1>>>,
    /// W of an untied head, [V, E].
    pub decoder: Option<TokenEmbedding>,
    /// Whether the logits of the padding id send gradient to its row of W, as in PyTorch.
    pub train_padding_row: bool,
    #[module(skip)]
    activation: Activation,
    #[module(skip)]
    legacy: bool,
}

impl MaskedLmHead {
    /// Refuses a head of another vocabulary than the word embeddings'.
    fn check(&self, words: &TokenEmbedding) -> Result<()> {
        let rows = words.num_embeddings();
        let decoder = self.decoder.as_ref().map(|table| ("decoder", table.num_embeddings()));
        let bias = self.bias.as_ref().map(|bias| ("bias", bias.lazy_shape()[0]));
        for (part, found) in decoder.into_iter().chain(bias) {
            if found != rows {
                let problem = format!(
                    "has {found} rows, but there are {rows} word embeddings; resize both with the model's resize_vocabulary"
                );
                return Err(Error::data(format!("the head's {part}"), problem));
            }
        }
        Ok(())
    }

    /// The logits of every word for every vector, [N, H] → [N, V], with `words` the word embeddings, [V, E], which a tied head
    /// reads. Panics if the shapes are not these.
    pub fn forward(&self, hidden: Tensor<2>, words: &TokenEmbedding) -> Tensor<2> {
        let hidden =
            self.transform.iter().fold(hidden, |x, layer| linear_activation(layer, x, self.activation));
        let hidden = self.layer_norm.iter().fold(hidden, |x, norm| norm.forward(x)); // [N, E]
        let words = self.decoder.as_ref().unwrap_or(words);
        // Read here, at every call: a copy would not follow the embeddings in training.
        let table = words.weight.val();
        let mut logits = linear(hidden.clone(), table.clone().transpose(), None); // [N, V]
        if let Some(row) = words.padding_idx.filter(|_| !self.train_padding_row) {
            // The padding id's column again, from a row that is cut off from the table.
            let column = linear(hidden, table.detach().narrow(0, row, 1).transpose(), None); // [N, 1]
            logits = logits.slice_assign([0..column.dims()[0], row..row + 1], column);
        }
        self.bias.iter().fold(logits, |logits, bias| logits + bias.val().unsqueeze())
    }
}

impl Stored for BertForMaskedLm {
    stored_head!(BertForMaskedLmConfig, Some("ForMaskedLM"), bert);

    fn config_of(fields: &Fields) -> Result<BertForMaskedLmConfig> {
        let bert = BertModelConfig::from_fields(fields)?;
        let tie_word_embeddings =
            fields.flag("tie_word_embeddings")?.unwrap_or(fields.spec.tie_word_embeddings);
        let has_legacy = fields.spec.other_masked_lm.is_some();
        let legacy = if has_legacy { fields.flag("legacy")? } else { None };
        Ok(BertForMaskedLmConfig::new(bert)
            .with_tie_word_embeddings(tie_word_embeddings)
            .with_legacy(legacy.unwrap_or(true)))
    }

    fn head_keys(&self, keys: &ModelKeys) -> Keys {
        keys.masked_lm(self.head.legacy)
    }

    fn adapt_params(&self, keys: &ModelKeys, params: &mut Vec<StoredParam>) -> Copies {
        let head = self.head_keys(keys);
        let [decoder, bias, decoder_bias] =
            ["head.decoder.weight", "head.bias", "head.decoder.bias"].map(|path| key_of(path, head));
        let (is_tied, is_written) = (self.head.decoder.is_none(), keys.stored.is_none());
        // transformers has two biases, which are one where the head is tied.
        let index = params.iter().position(|param| param.key == bias);
        if let Some(index) = index.filter(|_| decoder_bias != bias) {
            let mut second = params[index].clone();
            second.key.clone_from(&decoder_bias);
            if is_written && !is_tied {
                params.push(second);
            } else if keys.is_stored(&decoder_bias) {
                params[index] = second;
            }
        }
        // A tied head has one table, so what a file has under two names must be the same twice.
        let equal = is_tied.then(|| [keys.key(WORD_EMBEDDINGS), decoder.clone()]);
        // transformers computes with the decoder's.
        let replaced = is_tied.then(|| [bias.clone(), decoder_bias.clone()]);
        Copies { equal, replaced, keys: vec![decoder, bias, decoder_bias] }
    }

    fn head_norms(&self) -> Vec<&LayerNorm> {
        self.head.layer_norm.iter().collect()
    }

    fn head_fields(&self) -> Map<String, Value> {
        let names = self.bert.embeddings.family().spec();
        let legacy = names.other_masked_lm.is_some().then(|| ("legacy".into(), json!(self.head.legacy)));
        let is_tied = ("tie_word_embeddings".into(), json!(self.head.decoder.is_none()));
        [is_tied].into_iter().chain(legacy).collect()
    }

    fn resize_head(&mut self, resize: &VocabularyResize) -> Result<()> {
        if let Some(decoder) = &mut self.head.decoder {
            let initializer = self.bert.embeddings.config().initializer;
            decoder.resize(EmbeddingTable::Embedding, resize, &initializer)?;
        }
        let (words, Some(bias)) = (resize.rows()?, &mut self.head.bias) else { return Ok(()) };
        let old = bias.val().detach();
        let [rows] = old.dims();
        // The resize of the word embeddings may be to its own size.
        if rows == words {
            return Ok(());
        }
        let added = match resize.new_rows {
            NewRows::MeanCovariance => old.clone().mean(),
            // As a new head's.
            NewRows::Initializer | NewRows::DrawnFrom(_) => old.zeros_like().narrow(0, 0, 1),
        };
        // As the table's rows are, so that each word keeps its bias; a smaller table has none of those added.
        let new = Tensor::cat(vec![old, added.expand([words])], 0).narrow(0, 0, words);
        // A new id: the optimizer's state has the old shape.
        *bias = bias.clone().transform_for_load(new.detach(), ParamId::new());
        Ok(())
    }
}
