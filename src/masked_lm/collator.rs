//! From token ids to a batch with some of them hidden.

use crate::error::{Error, Result};
use crate::ids::Ids;
use crate::input::BertEmbeddingsInput;
use burn::config::Config;
use burn::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Configuration of a [`MaskedLmCollator`].
#[derive(Config, Debug, PartialEq)]
pub struct MaskedLmCollatorConfig {
    /// Words in the vocabulary; random replacements are drawn from all of them.
    pub vocab_size: usize,
    /// The id of `[MASK]`.
    pub mask_token_id: u32,
    /// Ids that are never hidden: padding, `[CLS]`, `[SEP]`, `[MASK]`, … The first is the padding id.
    pub special_token_ids: Vec<u32>,
    /// Probability that a token which is not special is hidden.
    #[config(default = 0.15)]
    pub mlm_probability: f64,
    /// Of the hidden tokens, the share that becomes `[MASK]`.
    #[config(default = 0.8)]
    pub mask_replace_prob: f64,
    /// Of the hidden tokens, the share that becomes a random word. The rest stays as it is.
    #[config(default = 0.1)]
    pub random_replace_prob: f64,
}

impl MaskedLmCollatorConfig {
    /// Builds the collator.
    ///
    /// # Panics
    ///
    /// Where [`try_init`](Self::try_init) returns an error, with the same message.
    pub fn init(&self) -> MaskedLmCollator {
        self.try_init().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds the collator.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], naming the field, if a probability is not in [0, 1], the two replacement
    /// probabilities exceed 1 together, there is no special token (the padding id is one), or an id is not
    /// below `vocab_size`.
    pub fn try_init(&self) -> Result<MaskedLmCollator> {
        let invalid = |field, problem: String| Err(Error::Config { field, problem });
        for (field, probability) in [
            ("mlm_probability", self.mlm_probability),
            ("mask_replace_prob", self.mask_replace_prob),
            ("random_replace_prob", self.random_replace_prob),
        ] {
            if !(0.0..=1.0).contains(&probability) {
                return invalid(field, format!("is {probability}, but must lie in [0, 1]"));
            }
        }
        if self.mask_replace_prob + self.random_replace_prob > 1.0 {
            let sum = self.mask_replace_prob + self.random_replace_prob;
            return invalid("random_replace_prob", format!("and mask_replace_prob add up to {sum}, above 1"));
        }
        let Some(&pad_token_id) = self.special_token_ids.first() else {
            return invalid("special_token_ids", "is empty, but its first id is the padding id".into());
        };
        let ids = self.special_token_ids.iter().map(|&id| ("special_token_ids", id));
        for (field, id) in ids.chain([("mask_token_id", self.mask_token_id)]) {
            if id as usize >= self.vocab_size {
                return invalid(field, format!("has id {id}, but vocab_size is {}", self.vocab_size));
            }
        }
        Ok(MaskedLmCollator { config: self.clone(), pad_token_id })
    }
}

/// Hides tokens at random and packs sequences into batches.
///
/// Each token that is not special is hidden with probability 0.15, independently; of the hidden ones 80 % become
/// `[MASK]`, 10 % a random word and 10 % stay (Devlin et al. 2019, appendix A.1; transformers'
/// `DataCollatorForLanguageModeling`). The draws follow from the seed alone, whatever the device.
#[derive(Clone, Debug)]
pub struct MaskedLmCollator {
    config: MaskedLmCollatorConfig,
    pad_token_id: u32,
}

/// One sequence, not yet padded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskedLmExample {
    input_ids: Vec<u32>,
    token_type_ids: Option<Vec<u32>>,
    position_ids: Option<Vec<u32>>,
}

impl MaskedLmExample {
    /// A sequence of token ids, special tokens included: of type 0 and at default positions.
    pub fn new(input_ids: Vec<u32>) -> Self {
        Self { input_ids, token_type_ids: None, position_ids: None }
    }

    /// Gives every token its type (segment).
    pub fn with_token_type_ids(self, token_type_ids: Vec<u32>) -> Self {
        Self { token_type_ids: Some(token_type_ids), ..self }
    }

    /// Gives every token its position.
    pub fn with_position_ids(self, position_ids: Vec<u32>) -> Self {
        Self { position_ids: Some(position_ids), ..self }
    }

    /// The token ids.
    pub fn input_ids(&self) -> &[u32] {
        &self.input_ids
    }

    /// The token types; `None` if all are 0.
    pub fn token_type_ids(&self) -> Option<&[u32]> {
        self.token_type_ids.as_deref()
    }

    /// The positions; `None` for the default ones.
    pub fn position_ids(&self) -> Option<&[u32]> {
        self.position_ids.as_deref()
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.input_ids.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.input_ids.is_empty()
    }
}

/// A batch for [`BertForMaskedLm`](crate::masked_lm::BertForMaskedLm).
#[derive(Clone, Debug)]
pub struct MaskedLmBatch {
    /// The tokens, some of them hidden, padded to the longest sequence.
    pub input: BertEmbeddingsInput,
    /// True where a sequence is padded, [B, S]; `None` if none is.
    pub padding: Option<Tensor<2, Bool>>,
    pub(super) masked: Option<MaskedTokens>,
}

/// The N > 0 hidden tokens of a batch.
#[derive(Clone, Debug)]
pub(super) struct MaskedTokens {
    /// Where they are, row · S + column, [N].
    pub positions: Tensor<1, Int>,
    /// What they were, [1, N].
    pub labels: Ids,
}

impl MaskedLmBatch {
    /// Number of hidden tokens, N.
    pub fn num_masked(&self) -> usize {
        self.masked.as_ref().map_or(0, |masked| masked.labels.dims()[1])
    }

    /// What the hidden tokens were, `[N]`; `None` if there are none.
    pub fn labels(&self) -> Option<Tensor<1, Int>> {
        self.masked.as_ref().map(|masked| masked.labels.tensor().squeeze_dim(0))
    }
}

impl MaskedLmCollator {
    /// Hides tokens of one sequence in place; gives place and former id of each, in order.
    ///
    /// ```
    /// use burn_bert::masked_lm::MaskedLmCollatorConfig;
    ///
    /// let collator = MaskedLmCollatorConfig::new(20, 3, vec![0, 1, 2, 3]).with_mlm_probability(1.0).init();
    /// let mut ids = [1, 7, 4, 2];
    /// assert_eq!(collator.mask(&mut ids, 42), [(1, 7), (2, 4)]);
    /// assert_eq!((ids[0], ids[3]), (1, 2)); // special tokens stay
    /// ```
    pub fn mask(&self, input_ids: &mut [u32], seed: u64) -> Vec<(usize, u32)> {
        self.mask_with(input_ids, &mut ChaCha8Rng::seed_from_u64(seed))
    }

    fn mask_with(&self, input_ids: &mut [u32], rng: &mut ChaCha8Rng) -> Vec<(usize, u32)> {
        let MaskedLmCollatorConfig { mask_replace_prob, random_replace_prob, .. } = self.config;
        let mut masked = Vec::new();
        for (place, id) in input_ids.iter_mut().enumerate() {
            let is_special = self.config.special_token_ids.contains(id);
            if is_special || !rng.random_bool(self.config.mlm_probability) {
                continue;
            }
            masked.push((place, *id));
            let draw: f64 = rng.random();
            if draw < mask_replace_prob {
                *id = self.config.mask_token_id;
            } else if draw < mask_replace_prob + random_replace_prob {
                *id = rng.random_range(0..self.config.vocab_size as u32);
            }
        }
        masked
    }

    /// Hides tokens and packs the sequences into one batch, padded at the end to the longest.
    ///
    /// # Errors
    ///
    /// - [`Error::Empty`] if there is no sequence or none has a token;
    /// - [`Error::ShapeMismatch`] if token types or positions are not as many as the tokens, or only some of
    ///   the sequences have them.
    pub fn collate(&self, examples: &[MaskedLmExample], seed: u64, device: &Device) -> Result<MaskedLmBatch> {
        let seq = examples.iter().map(MaskedLmExample::len).max().unwrap_or(0);
        if seq == 0 {
            return Err(Error::Empty { input: "examples", shape: vec![examples.len(), 0] });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut rows = Vec::with_capacity(examples.len());
        let mut positions = Vec::new();
        let mut labels = Vec::new();
        for (row, example) in examples.iter().enumerate() {
            let mut ids = example.input_ids.clone();
            for (column, label) in self.mask_with(&mut ids, &mut rng) {
                positions.push((row * seq + column) as i32);
                labels.push(label);
            }
            ids.resize(seq, self.pad_token_id);
            rows.push(ids);
        }

        let mut input = BertEmbeddingsInput::from_rows(&rows, device)?;
        let token_types = padded("token_type_ids", examples, seq, |example| &example.token_type_ids)?;
        if let Some(rows) = token_types {
            input = input.with_token_type_rows(&rows)?;
        }
        let position_ids = padded("position_ids", examples, seq, |example| &example.position_ids)?;
        if let Some(rows) = position_ids {
            input = input.with_position_rows(&rows)?;
        }
        let masked = match labels.len() {
            0 => None,
            n => Some(MaskedTokens {
                positions: Tensor::from_data(TensorData::new(positions, [n]), device),
                labels: Ids::from_rows("labels", &[labels], device)?,
            }),
        };
        Ok(MaskedLmBatch { input, padding: padding(examples, seq, device), masked })
    }
}

/// True past the end of each sequence, [B, S]; `None` if all are of length S.
fn padding(examples: &[MaskedLmExample], seq: usize, device: &Device) -> Option<Tensor<2, Bool>> {
    if examples.iter().all(|example| example.len() == seq) {
        return None;
    }
    let is_padding: Vec<bool> =
        examples.iter().flat_map(|example| (0..seq).map(|column| column >= example.len())).collect();
    Some(Tensor::from_data(TensorData::new(is_padding, [examples.len(), seq]), device))
}

/// One field of all examples, padded with 0; `None` if no example has it.
fn padded<'a>(
    input: &'static str,
    examples: &'a [MaskedLmExample],
    seq: usize,
    field: impl Fn(&'a MaskedLmExample) -> &'a Option<Vec<u32>>,
) -> Result<Option<Vec<Vec<u32>>>> {
    if examples.iter().all(|example| field(example).is_none()) {
        return Ok(None);
    }
    let pad = |example| {
        let mut values = field(example).clone().unwrap_or_default();
        if values.len() != example.len() {
            return Err(Error::ShapeMismatch {
                input,
                found: vec![values.len()],
                expected: format!("[{}], one a token in every example,", example.len()),
            });
        }
        values.resize(seq, 0);
        Ok(values)
    };
    examples.iter().map(pad).collect::<Result<_>>().map(Some)
}
