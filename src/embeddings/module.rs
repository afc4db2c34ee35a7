//! `BertEmbeddings`: the module.

use super::config::BertEmbeddingsConfig;
use super::family::{Family, PositionEmbeddingType};
use super::ids::Ids;
use super::input::{BertEmbeddingsInput, Words};
use super::layer_norm::{LayerNorm, check_epsilon};
use super::token_embedding::{TokenEmbedding, TokenEmbeddingConfig};
use crate::error::{EmbeddingTable, Error, Result};
use crate::operator::functional::{Rows, embed_layer_norm};
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::{Dropout, DropoutConfig};
use burn::prelude::*;

impl BertEmbeddingsConfig {
    /// Builds the module on `device`.
    ///
    /// Tables are initialised on first use, so loading weights into a new module does not initialise them first.
    ///
    /// # Panics
    ///
    /// Where [`try_init`](Self::try_init) returns an error, with the same message.
    pub fn init(&self, device: &Device) -> BertEmbeddings {
        self.try_init(device).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds the module on `device`, or returns what is wrong with the config.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate), and [`Error::Config`] if `layer_norm_eps` is 0 in the dtype that the
    /// device computes statistics in: below 1.2e-38 for all float dtypes but f64.
    pub fn try_init(&self, device: &Device) -> Result<BertEmbeddings> {
        self.validate()?;
        check_epsilon(self.layer_norm_eps, device.settings().float_dtype.into())?;
        let table = |rows, padding_idx| {
            TokenEmbeddingConfig::new(rows, self.width())
                .with_padding_idx(padding_idx)
                .with_initializer(self.initializer.clone())
                .try_init(device)
        };
        let position_embeddings = match self.position_embedding_type {
            PositionEmbeddingType::Absolute => Some(table(self.max_position_embeddings, None)?),
            PositionEmbeddingType::AfterPadding => {
                Some(table(self.max_position_embeddings, self.pad_token_id)?)
            }
            PositionEmbeddingType::RelativeKey | PositionEmbeddingType::RelativeKeyQuery => None,
        };
        Ok(BertEmbeddings {
            word_embeddings: table(self.vocab_size, self.pad_token_id)?,
            position_embeddings,
            token_type_embeddings: match self.type_vocab_size {
                0 => None,
                rows => Some(table(rows, None)?),
            },
            layer_norm: LayerNorm::new(self.width(), self.layer_norm_eps, device),
            dropout: DropoutConfig::new(self.hidden_dropout_prob).init(),
            config: self.clone(),
        })
    }
}

/// BERT's input layer: `y = Dropout(LayerNorm(W[input_ids] + S[token_type_ids] + P[position_ids]))`.
///
/// Equal to Hugging Face's `BertEmbeddings`, to `RobertaEmbeddings` with [`PositionEmbeddingType::AfterPadding`], and to
/// the embeddings of the other [families](crate::Family). Made by [`BertEmbeddingsConfig::init`].
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput};
///
/// let device = Device::default();
/// let embeddings = BertEmbeddingsConfig::new().with_vocab_size(100).with_hidden_size(8).init(&device);
/// let input = BertEmbeddingsInput::from_rows(&[[2, 7, 3, 0]], &device)?;
/// assert_eq!(embeddings.forward(&input).dims(), [1, 4, 8]);
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// # Parameters
///
/// The paths are stable: `word_embeddings.weight` `[V, H]`, `position_embeddings.weight` `[P, H]` (where the
/// position scheme has a table), `token_type_embeddings.weight` `[T, H]` (where the family has token types),
/// `layer_norm.gamma` `[H]` and `layer_norm.beta` `[H]`. Nothing else is in a record. Where the config has an
/// `embedding_size` E, that is their width in the place of H: the encoder projects the vectors.
///
/// # Padding and weight decay
///
/// The padding row's gradient through the lookup is exactly 0.0, so a row that is zero stays exactly zero under every
/// element-wise optimiser (SGD, Adam, AdamW, …). AdamW's decay is not a gradient: a row that a checkpoint filled
/// shrinks by a factor of (1 − lr·weight_decay) per step, as in PyTorch. To prevent that, put the table into its own
/// group:
///
/// ```
/// use burn::module::ParamGroup;
/// use burn::optim::AdamWConfig;
///
/// let optimizer = AdamWConfig::new().with_weight_decay(0.01).init().with_group(
///     ParamGroup::from_predicate("word_embeddings.weight"),
///     AdamWConfig::new().with_weight_decay(0.0).build(),
///     None,
/// );
/// # let _ = optimizer;
/// ```
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct BertEmbeddings {
    /// W, looked up by `input_ids`. An output head is tied to it by reading it at forward time.
    pub word_embeddings: TokenEmbedding,
    /// P, looked up by `position_ids`; `None` with relative positions, which are part of the attention.
    pub position_embeddings: Option<TokenEmbedding>,
    /// S, looked up by `token_type_ids`; `None` in a family without token types, which ignores those ids.
    pub token_type_embeddings: Option<TokenEmbedding>,
    /// γ, β and ε.
    pub layer_norm: LayerNorm,
    /// Active in training only: if the tables are on an autodiff device, and neither frozen nor in validation.
    pub dropout: Dropout,
    /// What the module was built from. Sizes, padding, ε and dropout are read off the fields above, which may
    /// have changed since.
    #[module(skip)]
    config: BertEmbeddingsConfig,
}

impl ModuleDisplay for BertEmbeddings {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(true).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let content = content.add("word_embeddings", &self.word_embeddings);
        let content = match &self.position_embeddings {
            Some(table) => content.add("position_embeddings", table),
            None => content,
        };
        let content = match &self.token_type_embeddings {
            Some(table) => content.add("token_type_embeddings", table),
            None => content,
        };
        content
            .add("layer_norm", &self.layer_norm)
            .add("dropout", &self.dropout)
            .add("position_embedding_type", format!("{:?}", self.position_embedding_type()).as_str())
            .optional()
    }
}

impl BertEmbeddings {
    /// Length of the model's vectors, H: those of this layer, or what a model projects them to.
    pub fn hidden_size(&self) -> usize {
        match self.config.embedding_size {
            Some(_) => self.config.hidden_size,
            None => self.word_embeddings.embedding_dim(),
        }
    }

    pub(crate) fn family(&self) -> Family {
        self.config.family
    }

    /// How positions enter the sum.
    pub fn position_embedding_type(&self) -> PositionEmbeddingType {
        self.config.position_embedding_type
    }

    /// The config that builds a module of this shape.
    ///
    /// Sizes, padding index, ε and dropout are those that the module has now; `max_position_embeddings` is the
    /// number it was built with if it has no position table. With
    /// [`AfterPadding`](PositionEmbeddingType::AfterPadding) the padding index is that of the position table, from
    /// which positions are counted. No table is initialised.
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_bert::BertEmbeddingsConfig;
    ///
    /// let config = BertEmbeddingsConfig::new().with_vocab_size(10).with_hidden_size(4);
    /// assert_eq!(config.init(&Device::default()).config(), config);
    /// ```
    pub fn config(&self) -> BertEmbeddingsConfig {
        let positions = self.position_embeddings.as_ref().map(TokenEmbedding::num_embeddings);
        let position_padding = self.position_embeddings.as_ref().and_then(|table| table.padding_idx);
        BertEmbeddingsConfig {
            vocab_size: self.word_embeddings.num_embeddings(),
            hidden_size: self.hidden_size(),
            embedding_size: self.config.embedding_size.map(|_| self.word_embeddings.embedding_dim()),
            max_position_embeddings: positions.unwrap_or(self.config.max_position_embeddings),
            type_vocab_size: self.token_type_embeddings.as_ref().map_or(0, TokenEmbedding::num_embeddings),
            pad_token_id: position_padding.or(self.word_embeddings.padding_idx),
            layer_norm_eps: self.layer_norm.epsilon(),
            hidden_dropout_prob: self.dropout.prob,
            ..self.config.clone()
        }
    }

    /// The layer with other tables, for a batch whose token and position ids were renumbered for them.
    ///
    /// Positions are looked up as the batch gives them, or from row 0 on.
    pub(crate) fn with_tables(&self, words: TokenEmbedding, positions: Option<TokenEmbedding>) -> Self {
        let mut layer = self.clone();
        layer.word_embeddings = words;
        layer.position_embeddings = positions.map(|table| TokenEmbedding { padding_idx: None, ..table });
        if layer.position_embeddings.is_some() {
            layer.config.position_embedding_type = PositionEmbeddingType::Absolute;
        }
        layer
    }

    /// Embeds a batch.
    ///
    /// # Shapes
    ///
    /// - `input`: [B, S] ids or [B, S, H] vectors
    /// - output: [B, S, H], with E in the place of H if the config has an `embedding_size`
    ///
    /// # Panics
    ///
    /// Where [`try_forward`](Self::try_forward) returns an error, with the same message.
    pub fn forward(&self, input: &BertEmbeddingsInput) -> Tensor<3> {
        self.try_forward(input).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Embeds a batch, or returns what is wrong with it.
    ///
    /// # Numerics
    ///
    /// The sum is rounded to the parameters' dtype in the order W, S, P. LayerNorm's mean and variance are
    /// taken in f32 for f16 and bf16, otherwise in the parameters' dtype.
    ///
    /// # Errors
    ///
    /// - [`Error::IdOutOfRange`] if a token, token type or explicit position has no row in its table;
    /// - [`Error::SequenceTooLong`] if default positions run past the position table;
    /// - [`Error::IdOverflow`] if an unsigned id is past 63 bits, [`Error::UnreadableIds`] if ids were given as a
    ///   tensor and its device cannot be read;
    /// - [`Error::ShapeMismatch`] if `inputs_embeds` or a parameter are not of length H, [`Error::DTypeMismatch`] if
    ///   they are not of the word table's dtype (γ and β may be f32 over tables of 16 bits);
    /// - [`Error::DeviceMismatch`] if the batch or a parameter is on another device than the word table; autodiff
    ///   makes no difference;
    /// - [`Error::Config`] if `dropout.prob`, a table's `padding_idx` or the ε of `layer_norm` was set to a value that
    ///   it cannot have, or `position_embeddings` is not what the position scheme needs.
    ///
    /// Ids are not checked after [`BertEmbeddingsInput::unchecked_ids`].
    pub fn try_forward(&self, input: &BertEmbeddingsInput) -> Result<Tensor<3>> {
        let rows = self.rows(input)?;
        let dropout = active_prob(&self.dropout, &self.word_embeddings.weight);
        Ok(embed_layer_norm(input.dims(), rows, self.layer_norm.norm(), dropout))
    }

    /// Whether [`try_forward`](Self::try_forward) takes a batch.
    pub(crate) fn check_all(&self, input: &BertEmbeddingsInput) -> Result<()> {
        self.rows(input).map(drop)
    }

    fn rows(&self, input: &BertEmbeddingsInput) -> Result<[Rows; 3]> {
        self.check(input)?;
        Ok([self.word_rows(input)?, self.token_type_rows(input)?, self.position_rows(input)?])
    }

    fn word_rows(&self, input: &BertEmbeddingsInput) -> Result<Rows> {
        match input.words() {
            Words::Ids(ids) => {
                ids.check(EmbeddingTable::Word, self.word_embeddings.num_embeddings())?;
                Ok(self.word_embeddings.rows(ids.tensor()))
            }
            Words::Embeds(embeds) => Ok(Rows::Values(embeds.clone())),
        }
    }

    fn token_type_rows(&self, input: &BertEmbeddingsInput) -> Result<Rows> {
        let Some(table) = &self.token_type_embeddings else { return Ok(Rows::Absent) };
        match input.token_type_ids() {
            Some(ids) => {
                ids.check(EmbeddingTable::TokenType, table.num_embeddings())?;
                Ok(table.rows(ids.tensor()))
            }
            None => Ok(Rows::Row { table: table.weight.val(), row: 0 }),
        }
    }

    fn position_rows(&self, input: &BertEmbeddingsInput) -> Result<Rows> {
        let Some(table) = &self.position_embeddings else { return Ok(Rows::Absent) };
        let rows = table.num_embeddings();
        if let Some(ids) = input.position_ids() {
            ids.check(EmbeddingTable::Position, rows)?;
            return Ok(table.rows(ids.tensor()));
        }
        if let (Some(pad), Words::Ids(ids)) = (table.padding_idx, input.words()) {
            let past = input.past_key_values_length();
            return positions_after_padding(ids, pad, past, rows).map(|ids| table.rows(ids));
        }
        Ok(Rows::Range { table: table.weight.val(), first: first_position(table, input)? })
    }
}

/// The probability that dropout applies beside `parameter`: 0 unless the parameter is on an autodiff device, whatever
/// device the batch was made on, and in validation and where it is frozen.
pub(crate) fn active_prob<const D: usize>(dropout: &Dropout, parameter: &Param<Tensor<D>>) -> f64 {
    let is_active = dropout.training.is_enabled() && parameter.lazy_device().is_autodiff();
    if is_active { dropout.prob } else { 0.0 }
}

/// Burn's dropout of `x`, active beside `parameter` as [`active_prob`] says.
pub(crate) fn drop_out<const D: usize>(
    dropout: &Dropout,
    parameter: &Param<Tensor<2>>,
    x: Tensor<D>,
) -> Tensor<D> {
    if active_prob(dropout, parameter) > 0.0 { dropout.forward(x) } else { x }
}

/// Where default positions that do not depend on ids start; they run on by ones.
pub(crate) fn first_position(table: &TokenEmbedding, input: &BertEmbeddingsInput) -> Result<usize> {
    let past = input.past_key_values_length();
    let first = table.padding_idx.map_or(past, |pad| past.saturating_add(pad).saturating_add(1));
    let [_, seq] = input.dims();
    let end = first.saturating_add(seq);
    let rows = table.num_embeddings();
    if end > rows {
        let reason = format!("{seq} tokens from position {first} on");
        return Err(Error::SequenceTooLong { needed: end - 1, reason, rows });
    }
    Ok(first)
}

/// RoBERTa's positions: tokens that are not padding count from `pad + 1 + past`, padding has position `pad`.
///
/// With m = (ids ≠ pad) the positions are (cumsum(m) + past)·m + pad along each sequence, as
/// `create_position_ids_from_input_ids` of transformers' `RobertaEmbeddings`.
fn positions_after_padding(ids: &Ids, pad: usize, past: usize, rows: usize) -> Result<Tensor<2, Int>> {
    check_positions_after_padding(ids, pad, past, rows)?;
    let is_token = ids.tensor().not_equal_scalar(pad as i64).int();
    let count = is_token.clone().cumsum(1).add_scalar(past as i64);
    Ok(count.mul(is_token).add_scalar(pad as i64))
}

/// Whether the longest sequence's last position has a row.
pub(crate) fn check_positions_after_padding(ids: &Ids, pad: usize, past: usize, rows: usize) -> Result<()> {
    let last_position = |tokens: usize| pad.saturating_add(past).saturating_add(tokens);
    if let Some((tokens, row)) = ids.longest_without(pad)?
        && tokens > 0
        && last_position(tokens) >= rows
    {
        return Err(Error::SequenceTooLong {
            needed: last_position(tokens),
            reason: format!(
                "input_ids[{row}] has {tokens} tokens that are not padding, after {past} past ones, and \
                 positions start at {}",
                pad.saturating_add(1)
            ),
            rows,
        });
    }
    Ok(())
}
