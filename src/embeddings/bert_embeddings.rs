use super::config::BertEmbeddingsConfig;
use super::input::{BertEmbeddingsInput, Words};
use crate::error::{EmbeddingTable, Error, Result};
use crate::family::PositionEmbeddingType;
use crate::layers::{
    Ids, LayerNorm, PositionFill, TokenEmbedding, TokenEmbeddingConfig, VocabularyResize, active_prob,
    check_dropout, check_input, dtype, ensure,
};
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::nn::{Dropout, DropoutConfig};
use burn::prelude::*;
use burn_fused::{Rows, embed_layer_norm};

impl BertEmbeddingsConfig {
    /// Builds the module on `device`; panics where [`try_init`](Self::try_init) returns an error. The tables are initialised
    /// on first use, so loading weights into a new module does not initialise them first.
    pub fn init(&self, device: &Device) -> BertEmbeddings {
        self.try_init(device).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`init`](Self::init), with the errors of [`validate`](Self::validate).
    pub fn try_init(&self, device: &Device) -> Result<BertEmbeddings> {
        self.validate()?;
        Ok(self.build(device))
    }

    /// [`try_init`](Self::try_init) of a config that was validated, as part of a model's.
    pub(crate) fn build(&self, device: &Device) -> BertEmbeddings {
        let table = |rows, padding_idx| {
            TokenEmbeddingConfig::new(rows, self.width())
                .with_padding_idx(padding_idx)
                .with_initializer(self.initializer.clone())
                .build(device)
        };
        // Only positions that are counted from the padding leave a row for it.
        let positions = || table(self.max_position_embeddings, self.padding_of_positions());
        BertEmbeddings {
            word_embeddings: table(self.vocab_size, self.pad_token_id),
            position_embeddings: self.position_embedding_type.has_table().then(positions),
            token_type_embeddings: (self.type_vocab_size > 0).then(|| table(self.type_vocab_size, None)),
            task_type_embeddings: (self.task_type_vocab_size > 0)
                .then(|| table(self.task_type_vocab_size, None)),
            layer_norm: (self.family.architecture().embeddings_have_norm)
                .then(|| self.layer_norm(self.width(), device)),
            dropout: DropoutConfig::new(self.hidden_dropout_prob).init(),
            config: self.clone(),
        }
    }
}

/// BERT's embedding layer: `y = Dropout(LayerNorm(W[input_ids] + S[token_type_ids] + P[position_ids]))`.
///
/// Equal to Hugging Face's `BertEmbeddings`, to `RobertaEmbeddings` with [`PositionEmbeddingType::AfterPadding`], and to
/// the embeddings of the other [families](crate::Family). The crate's documentation has an example.
///
/// # Parameters
///
/// The paths are stable, and nothing else is in a record: `word_embeddings.weight` `[V, H]`, `position_embeddings.weight`
/// `[P, H]` and `token_type_embeddings.weight` `[T, H]` (where the model has them), ERNIE's
/// `task_type_embeddings.weight`, `layer_norm.gamma` and
/// `layer_norm.beta` `[H]`; with an `embedding_size` E in the place of H, since the encoder then projects the vectors.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct BertEmbeddings {
    /// W, looked up by `input_ids`. A tied output head reads it at forward time.
    pub word_embeddings: TokenEmbedding,
    /// P, looked up by `position_ids`; `None` with relative, rotary or disentangled positions, which belong to the attention.
    pub position_embeddings: Option<TokenEmbedding>,
    /// S, looked up by `token_type_ids`; `None` in a family without token types, which ignores those ids.
    pub token_type_embeddings: Option<TokenEmbedding>,
    /// ERNIE's task types, whose first row is added to every token.
    pub task_type_embeddings: Option<TokenEmbedding>,
    /// γ, β and ε; `None` in EuroBERT, whose embeddings are W's rows as they are.
    pub layer_norm: Option<LayerNorm>,
    /// Active in training only: if the embeddings are on an autodiff device, and neither frozen nor in validation.
    pub(crate) dropout: Dropout,
    /// What the module was built from. Sizes and ε are read from the fields above, which may have changed since.
    #[module(skip)]
    config: BertEmbeddingsConfig,
}

impl ModuleDisplay for BertEmbeddings {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(true).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let optional = [
            ("position_embeddings", &self.position_embeddings),
            ("token_type_embeddings", &self.token_type_embeddings),
            ("task_type_embeddings", &self.task_type_embeddings),
        ];
        let content = content.add("word_embeddings", &self.word_embeddings);
        let content = optional.into_iter().fold(content, |content, (name, table)| match table {
            Some(table) => content.add(name, table),
            None => content,
        });
        let content = self.layer_norm.iter().fold(content, |content, norm| content.add("layer_norm", norm));
        content
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

    pub(crate) fn family(&self) -> crate::family::Family {
        self.config.family
    }

    /// Sets the probability of dropout in training. Returns [`Error::Config`] if it is not in [0, 1).
    pub fn set_dropout(&mut self, hidden_dropout_prob: f64) -> Result<()> {
        check_dropout("hidden_dropout_prob", hidden_dropout_prob)?;
        self.dropout.prob = hidden_dropout_prob;
        Ok(())
    }

    /// How the model represents positions.
    pub fn position_embedding_type(&self) -> PositionEmbeddingType {
        self.config.position_embedding_type
    }

    /// The config that builds a module of this shape, with the sizes, ε and dropout that the module has now.
    pub fn config(&self) -> BertEmbeddingsConfig {
        // Relative positions have no table here to read the number from.
        let positions = self.position_embeddings.as_ref().map(TokenEmbedding::num_embeddings);
        BertEmbeddingsConfig {
            vocab_size: self.word_embeddings.num_embeddings(),
            hidden_size: self.hidden_size(),
            embedding_size: self.config.embedding_size.map(|_| self.word_embeddings.embedding_dim()),
            max_position_embeddings: positions.unwrap_or(self.config.max_position_embeddings),
            type_vocab_size: self.token_type_embeddings.as_ref().map_or(0, TokenEmbedding::num_embeddings),
            task_type_vocab_size: self
                .task_type_embeddings
                .as_ref()
                .map_or(0, TokenEmbedding::num_embeddings),
            layer_norm_eps: self.layer_norm.as_ref().map_or(self.config.layer_norm_eps, LayerNorm::epsilon),
            hidden_dropout_prob: self.dropout.prob,
            ..self.config.clone()
        }
    }

    /// Grows or shrinks the word embeddings at the end; rows that are kept are bit-equal.
    ///
    /// A resized table has a new parameter id, so an optimizer starts its state for it from zero and keeps all others; a table
    /// of that size already is not changed. A tied output head reads the table at forward time and uses the new one.
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_bert::{BertEmbeddingsConfig, VocabularyResize};
    ///
    /// let config = BertEmbeddingsConfig::new().with_vocab_size(100).with_hidden_size(8);
    /// let mut embeddings = config.init(&Device::default());
    /// embeddings.resize_vocabulary(&VocabularyResize::new(103).with_pad_to_multiple_of(8))?;
    /// assert_eq!(embeddings.word_embeddings.num_embeddings(), 104);
    /// # Ok::<(), burn_bert::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Resize`] if no row would be left, the padding row would be cut off (transformers then trains it), a LoRA
    /// adapter of the old size is attached, the table is quantised, or there is not enough memory; [`Error::Config`] if the
    /// initialiser is not a distribution. The module is unchanged then.
    pub fn resize_vocabulary(&mut self, resize: &VocabularyResize) -> Result<()> {
        let rows = resize.rows()?;
        if let Some(pad) = self.word_embeddings.padding_idx.filter(|&pad| pad >= rows) {
            let problem =
                format!("{rows} rows would cut off the padding row {pad}; keep at least {}", pad + 1);
            return Err(Error::Resize { table: EmbeddingTable::Word, problem });
        }
        // Rows that are drawn afresh are drawn as the table was.
        self.word_embeddings.resize(EmbeddingTable::Word, resize, &self.config.initializer)
    }

    /// Lengthens the position embeddings to `max_position_embeddings` rows, for longer sequences.
    ///
    /// The number counts every row, as in `config.json`. With [`AfterPadding`](crate::PositionEmbeddingType::AfterPadding)
    /// rows 0 to `pad_token_id` are not positions of tokens: they stay bit for bit, and `fill` works on the rows after them
    /// (RoBERTa's 514 rows serve 512 tokens). A longer table has a new parameter id.
    ///
    /// # Errors
    ///
    /// [`Error::Resize`] if there is no such table, it has more rows already, no row of it is a position, a LoRA adapter of the
    /// old size is attached, it is quantised, or there is not enough memory. The module is unchanged then.
    pub fn extend_positions(&mut self, max_position_embeddings: usize, fill: PositionFill) -> Result<()> {
        let scheme = self.position_embedding_type();
        let Some(table) = &mut self.position_embeddings else {
            let problem = format!("there is none ({scheme:?} positions)");
            return Err(Error::Resize { table: EmbeddingTable::Position, problem });
        };
        table.extend(EmbeddingTable::Position, max_position_embeddings, fill)
    }

    /// Embeds a batch; panics where [`try_forward`](Self::try_forward) returns an error.
    ///
    /// # Shapes
    ///
    /// - `input`: [B, S] ids or [B, S, H] vectors
    /// - output: [B, S, H], with E in the place of H if the config has an `embedding_size`
    pub fn forward(&self, input: &BertEmbeddingsInput) -> Tensor<3> {
        self.try_forward(input).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`forward`](Self::forward).
    ///
    /// # Numerics
    ///
    /// Summed in the order W, S, P in the parameters' dtype; LayerNorm's mean and variance of f16 and bf16 are f32.
    ///
    /// # Errors
    ///
    /// - [`Error::IdOutOfRange`], [`Error::SequenceTooLong`], [`Error::IdOverflow`] or [`Error::UnreadableIds`], except after
    ///   [`BertEmbeddingsInput::unchecked_ids`], and [`Error::Data`] for explicit positions where they are relative;
    /// - [`Error::ShapeMismatch`], [`Error::DTypeMismatch`] or [`Error::DeviceMismatch`] if the input does not fit the word
    ///   embeddings (autodiff makes no difference), and [`Error::Config`] if a table that the config asks for was removed, or
    ///   another added.
    pub fn try_forward(&self, input: &BertEmbeddingsInput) -> Result<Tensor<3>> {
        let rows = self.rows(input)?;
        let dropout = active_prob(&self.dropout, &self.word_embeddings.weight);
        Ok(match (&self.layer_norm, &input.words) {
            (Some(norm), _) => embed_layer_norm(input.dims(), rows, norm.norm(), dropout),
            (None, Words::Ids(ids)) => self.word_embeddings.forward_unchecked(ids.tensor()),
            (None, Words::Embeds(embeds)) => embeds.clone(),
        })
    }

    /// Whether [`try_forward`](Self::try_forward) takes a batch.
    pub(crate) fn check_all(&self, input: &BertEmbeddingsInput) -> Result<()> {
        self.rows(input).map(drop)
    }

    // Everything else first: the ids may have to be read back from the device.
    fn rows(&self, input: &BertEmbeddingsInput) -> Result<[Rows; 3]> {
        self.check(input)?;
        let words = match &input.words {
            Words::Ids(ids) => looked_up(&self.word_embeddings, EmbeddingTable::Word, ids)?,
            Words::Embeds(embeds) => Rows::Values(embeds.clone()),
        };
        let mut token_types = match (&self.token_type_embeddings, &input.token_type_ids) {
            (Some(table), Some(ids)) => looked_up(table, EmbeddingTable::TokenType, ids)?,
            // Type 0 for all: one row, without a tensor of zeros.
            (Some(table), None) => Rows::Row { table: table.weight.val(), row: 0 },
            (None, _) => Rows::Absent,
        };
        // Added to the few token types, of which every token has one.
        if let (Rows::Lookup { table, .. } | Rows::Row { table, .. }, Some(tasks)) =
            (&mut token_types, &self.task_type_embeddings)
        {
            *table = table.clone() + tasks.weight.val().narrow(0, 0, 1);
        }
        Ok([words, token_types, self.position_rows(input)?])
    }

    fn position_rows(&self, input: &BertEmbeddingsInput) -> Result<Rows> {
        let Some(table) = &self.position_embeddings else {
            let scheme = self.position_embedding_type();
            // The encoder reads rotary ones.
            if input.position_ids.is_none() || scheme == PositionEmbeddingType::Rotary {
                return Ok(Rows::Absent);
            }
            let problem =
                format!("are given, but {scheme:?} positions are distances between tokens; leave them out");
            return Err(Error::data("position_ids", problem));
        };
        if let Some(ids) = &input.position_ids {
            return looked_up(table, EmbeddingTable::Position, ids);
        }
        let rows = table.num_embeddings();
        // Saturating from here on: the number is the caller's, and any sum beyond the table is the same error.
        let past = input.past_key_values_length;
        // Vectors have no padding that could be counted: their positions run on by ones, as transformers'.
        let first = match (self.config.padding_of_positions(), &input.words) {
            (None, _) => past,
            (Some(pad), Words::Embeds(_)) => past.saturating_add(pad + 1),
            (Some(pad), Words::Ids(ids)) => {
                return positions_after_padding(ids, pad, past, rows).map(|ids| table.rows(ids));
            }
        };
        let [_, seq] = input.dims();
        let end = first.saturating_add(seq);
        if end > rows {
            let reason = format!("{seq} tokens from position {first} on");
            return Err(Error::SequenceTooLong { needed: end - 1, reason, rows });
        }
        // Consecutive rows, which need no ids on the device.
        Ok(Rows::Range { table: table.weight.val(), first })
    }

    /// Everything that can be checked without the ids. Initialises no table.
    fn check(&self, input: &BertEmbeddingsInput) -> Result<()> {
        // Everything is compared with the word embeddings, which a caller may have cast or moved.
        let (words, scheme) = (&self.word_embeddings, self.position_embedding_type());
        let (device, width) = (words.weight.lazy_device(), words.embedding_dim());
        match &input.words {
            Words::Embeds(embeds) if embeds.dims()[2] != width => {
                return Err(Error::shape("inputs_embeds", embeds.dims(), format!("[B, S, {width}]")));
            }
            Words::Embeds(embeds) => check_input("inputs_embeds", embeds, device, dtype(&words.weight))?,
            Words::Ids(_) if input.device() != device => {
                return Err(Error::device_mismatch("input_ids", input.device(), device));
            }
            Words::Ids(_) => {}
        }
        for (field, table, is_needed) in [
            ("token_type_embeddings", &self.token_type_embeddings, self.config.type_vocab_size > 0),
            ("task_type_embeddings", &self.task_type_embeddings, self.config.task_type_vocab_size > 0),
            ("position_embeddings", &self.position_embeddings, scheme.has_table()),
        ] {
            if table.is_some() != is_needed {
                let [found, needed] = [!is_needed, is_needed].map(|is| if is { "a table" } else { "None" });
                let family = self.config.family.model_type();
                let problem = format!("is {found}, but {family} with {scheme:?} positions needs {needed}");
                return Err(Error::Config { field, problem });
            }
        }
        let needs_norm = self.config.family.architecture().embeddings_have_norm;
        ensure(self.layer_norm.is_some() == needs_norm, "layer_norm", || {
            let found = if needs_norm { "None" } else { "given" };
            format!("is {found}, but that is not how {} is made", self.config.family.model_type())
        })
    }
}

fn looked_up(table: &TokenEmbedding, name: EmbeddingTable, ids: &Ids) -> Result<Rows> {
    ids.check(name, table.num_embeddings())?;
    Ok(table.rows(ids.tensor()))
}

/// RoBERTa's positions: (cumsum(m) + past)·m + pad along each sequence, with m = (ids ≠ pad). Tokens count from
/// `pad + 1 + past`, padding has position `pad` (transformers' `create_position_ids_from_input_ids`).
fn positions_after_padding(ids: &Ids, pad: usize, past: usize, rows: usize) -> Result<Tensor<2, Int>> {
    // Positions follow from the number of tokens in a sequence, so the longest one decides.
    let last_position = |tokens: usize| pad.saturating_add(past).saturating_add(tokens);
    if let Some((tokens, row)) = ids.longest_without(pad)?
        && tokens > 0
        && last_position(tokens) >= rows
    {
        let reason = format!(
            "input_ids[{row}] has {tokens} tokens that are not padding, after {past} past ones, and positions start at {}",
            pad + 1
        );
        return Err(Error::SequenceTooLong { needed: last_position(tokens), reason, rows });
    }
    // On the device, also where the ids are known on the host: nothing is uploaded.
    let is_token = ids.tensor().not_equal_scalar(pad as i64).int();
    let count = is_token.clone().cumsum(1).add_scalar(past as i64);
    Ok(count.mul(is_token).add_scalar(pad as i64))
}
