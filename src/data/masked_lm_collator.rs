use crate::embeddings::BertEmbeddingsInput;
use crate::error::{Error, Result};
use crate::layers::{PaddingMask, check_multiple, ensure};
use crate::model::MaskedLmBatch;
use burn::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// One sequence, not yet padded; a [`MaskedLmCollator`] makes batches of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskedLmExample {
    /// The token ids, special tokens included.
    pub input_ids: Vec<u32>,
    /// The type (segment) of each token; `None` if all are 0.
    pub token_type_ids: Option<Vec<u32>>,
    /// The position of each token; `None` for the default ones.
    pub position_ids: Option<Vec<u32>>,
    /// The word of each token, `None` for one of no word, such as `[CLS]`. Only neighbours with the same number are one word.
    pub word_ids: Option<Vec<Option<u32>>>,
}

impl MaskedLmExample {
    /// A sequence of token ids, special tokens included, of type 0 and at default positions.
    pub fn new(input_ids: Vec<u32>) -> Self {
        Self { input_ids, token_type_ids: None, position_ids: None, word_ids: None }
    }

    /// Sets [`token_type_ids`](Self::token_type_ids).
    pub fn with_token_type_ids(self, token_type_ids: Vec<u32>) -> Self {
        Self { token_type_ids: Some(token_type_ids), ..self }
    }

    /// Sets [`position_ids`](Self::position_ids).
    pub fn with_position_ids(self, position_ids: Vec<u32>) -> Self {
        Self { position_ids: Some(position_ids), ..self }
    }

    /// Sets [`word_ids`](Self::word_ids).
    pub fn with_word_ids(self, word_ids: Vec<Option<u32>>) -> Self {
        Self { word_ids: Some(word_ids), ..self }
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

/// A text with its token types and words.
#[cfg(feature = "tokenizers")]
impl From<crate::text::Encoding> for MaskedLmExample {
    fn from(encoding: crate::text::Encoding) -> Self {
        Self::new(encoding.input_ids().to_vec())
            .with_token_type_ids(encoding.token_type_ids().to_vec())
            .with_word_ids(encoding.word_ids().to_vec())
    }
}

/// Configuration of a [`MaskedLmCollator`].
#[derive(Config, Debug, PartialEq)]
pub struct MaskedLmCollatorConfig {
    /// Size of the vocabulary; random replacements are drawn from all of it.
    pub vocab_size: usize,
    /// The id of `[MASK]`.
    pub mask_token_id: u32,
    /// The id that sequences are padded with.
    pub pad_token_id: u32,
    /// Ids that are never masked: padding, `[CLS]`, `[SEP]`, `[MASK]`, …
    pub special_token_ids: Vec<u32>,
    /// Probability that a token that is not special is masked.
    #[config(default = 0.15)]
    pub mlm_probability: f64,
    /// The share of the masked tokens that becomes `[MASK]`.
    #[config(default = 0.8)]
    pub mask_replace_prob: f64,
    /// The share of the masked tokens that becomes a random word. The rest is unchanged.
    #[config(default = 0.1)]
    pub random_replace_prob: f64,
    /// Whether the tokens of a word are masked together, with the probability of one; examples then need
    /// [word ids](MaskedLmExample::with_word_ids).
    #[config(default = false)]
    pub whole_word_masking: bool,
    /// The length of a batch is a multiple of this, so that batches have fewer shapes.
    pub pad_to_multiple_of: Option<usize>,
}

impl MaskedLmCollatorConfig {
    /// The collator for a tokenizer. None of its special tokens is masked, `[UNK]` included, as in transformers.
    #[cfg(feature = "tokenizers")]
    pub fn for_tokenizer(tokenizer: &crate::text::BertTokenizer) -> Self {
        let special_token_ids = tokenizer.special_token_ids().to_vec();
        let (mask, pad) = (tokenizer.mask_token_id(), tokenizer.pad_token_id());
        Self::new(tokenizer.vocab_size(), mask, pad, special_token_ids)
            .with_pad_to_multiple_of(tokenizer.pad_to_multiple_of())
    }

    /// Builds the collator; panics where [`try_init`](Self::try_init) returns an error.
    pub fn init(&self) -> MaskedLmCollator {
        self.try_init().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds the collator. Returns [`Error::Config`], naming the field, if a probability is not in [0, 1], the two
    /// replacement probabilities exceed 1 together, an id is not below `vocab_size`, `vocab_size` is 2³¹ or more, or
    /// `pad_to_multiple_of` is not in 1..=65536.
    pub fn try_init(&self) -> Result<MaskedLmCollator> {
        for (field, probability) in [
            ("mlm_probability", self.mlm_probability),
            ("mask_replace_prob", self.mask_replace_prob),
            ("random_replace_prob", self.random_replace_prob),
        ] {
            let is_probability = (0.0..=1.0).contains(&probability);
            ensure(is_probability, field, || format!("is {probability}, but must lie in [0, 1]"))?;
        }
        let sum = self.mask_replace_prob + self.random_replace_prob;
        let too_much = || format!("and mask_replace_prob add up to {sum}, above 1");
        ensure(sum <= 1.0, "random_replace_prob", too_much)?;
        let ids = self.special_token_ids.iter().map(|&id| ("special_token_ids", id));
        let (mask, pad) = (("mask_token_id", self.mask_token_id), ("pad_token_id", self.pad_token_id));
        let size = self.vocab_size;
        for (field, id) in ids.chain([mask, pad]) {
            ensure((id as usize) < size, field, || format!("has id {id}, but vocab_size is {size}"))?;
        }
        // Devices count ids in 32 bits with a sign.
        let fits = size <= i32::MAX as usize;
        ensure(fits, "vocab_size", || format!("is {size}, but ids must fit into 31 bits"))?;
        self.pad_to_multiple_of.map_or(Ok(()), check_multiple)?;
        Ok(MaskedLmCollator { config: self.clone() })
    }
}

/// Masks tokens at random, by the seed alone, and packs sequences into batches.
///
/// Each token that is not special is masked with probability 0.15, independently; of the masked ones 80 % become
/// `[MASK]`, 10 % a random word and 10 % stay (Devlin et al. 2019, appendix A.1; transformers'
/// `DataCollatorForLanguageModeling`).
///
/// With [`whole_word_masking`](MaskedLmCollatorConfig::whole_word_masking) all tokens of a word, a run with one word id, are
/// masked or none; the replacement is chosen for each. transformers' `whole_word_mask=True` (5.23) splits at spaces instead and
/// replaces by `[MASK]` alone, as a [`mask_replace_prob`](MaskedLmCollatorConfig::mask_replace_prob) of 1 does here.
#[derive(Clone, Debug)]
pub struct MaskedLmCollator {
    config: MaskedLmCollatorConfig,
}

impl MaskedLmCollator {
    /// Masks tokens of one sequence in place, with `word_ids` whole words; returns the position and former id of each, in order.
    /// Panics if `word_ids` and `input_ids` differ in length.
    ///
    /// ```
    /// use burn_bert::data::MaskedLmCollatorConfig;
    ///
    /// let collator = MaskedLmCollatorConfig::new(20, 3, 0, vec![0, 1, 2, 3]).with_mlm_probability(1.0).init();
    /// let mut ids = [1, 7, 4, 2];
    /// assert_eq!(collator.mask(&mut ids, None, 42), [(1, 7), (2, 4)]);
    /// assert_eq!((ids[0], ids[3]), (1, 2)); // special tokens stay
    /// ```
    pub fn mask(
        &self,
        input_ids: &mut [u32],
        word_ids: Option<&[Option<u32>]>,
        seed: u64,
    ) -> Vec<(usize, u32)> {
        let length = word_ids.map_or(input_ids.len(), <[_]>::len);
        assert_eq!(
            length,
            input_ids.len(),
            "word_ids needs one entry per token (None where there is no word)"
        );
        self.mask_with(input_ids, word_ids, &mut ChaCha8Rng::seed_from_u64(seed))
    }

    fn mask_with(
        &self,
        input_ids: &mut [u32],
        word_ids: Option<&[Option<u32>]>,
        rng: &mut ChaCha8Rng,
    ) -> Vec<(usize, u32)> {
        let MaskedLmCollatorConfig { mask_replace_prob, random_replace_prob, .. } = self.config;
        let mut masked = Vec::new();
        let mut last_word = None;
        let mut is_masked = false;
        for (index, id) in input_ids.iter_mut().enumerate() {
            if self.config.special_token_ids.contains(id) {
                last_word = None;
                continue;
            }
            let word = word_ids.and_then(|words| words[index]);
            // One draw a word: its other tokens follow the first.
            if word.is_none() || word != last_word {
                is_masked = rng.random_bool(self.config.mlm_probability);
            }
            last_word = word;
            if !is_masked {
                continue;
            }
            masked.push((index, *id));
            // One draw for what becomes of it: the shares are of one whole.
            let draw: f64 = rng.random();
            if draw < mask_replace_prob {
                *id = self.config.mask_token_id;
            } else if draw < mask_replace_prob + random_replace_prob {
                // `vocab_size` is below 2³¹, as `try_init` has checked.
                *id = rng.random_range(0..self.config.vocab_size as u32);
            }
        }
        masked
    }

    /// Masks tokens and makes one batch, padded at the end to the longest sequence or the next
    /// [multiple](MaskedLmCollatorConfig::pad_to_multiple_of).
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] without tokens; [`Error::ShapeMismatch`] if token types, positions or the word ids of whole-word masking
    /// differ in length from the tokens, or only some sequences have types or positions; [`Error::Data`] if whole words are to
    /// be masked and a sequence has no word ids.
    pub fn collate(&self, examples: &[MaskedLmExample], seed: u64, device: &Device) -> Result<MaskedLmBatch> {
        let lengths: Vec<usize> = examples.iter().map(MaskedLmExample::len).collect();
        let (seq, padding) = PaddingMask::to_multiple(&lengths, self.config.pad_to_multiple_of);
        if seq == 0 {
            return Err(Error::Empty { input: "examples", shape: vec![examples.len(), 0] });
        }
        // One generator for the batch, on the host: the same masks on every device.
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut rows = Vec::with_capacity(examples.len());
        let mut positions = Vec::new();
        let mut labels = Vec::new();
        for (row, example) in examples.iter().enumerate() {
            let mut ids = example.input_ids.clone();
            let words = if self.config.whole_word_masking { Some(word_ids(row, example)?) } else { None };
            for (column, label) in self.mask_with(&mut ids, words, &mut rng) {
                positions.push([row, column]);
                labels.push(label);
            }
            ids.resize(seq, self.config.pad_token_id);
            rows.push(ids);
        }

        let mut input = BertEmbeddingsInput::from_rows(&rows, device)?;
        if let Some(rows) = padded("token_type_ids", examples, seq, |example| &example.token_type_ids)? {
            input = input.with_token_type_ids(&rows)?;
        }
        if let Some(rows) = padded("position_ids", examples, seq, |example| &example.position_ids)? {
            input = input.with_position_ids(&rows)?;
        }
        MaskedLmBatch::new(input, padding, &positions, &labels)
    }

    /// Batches of a dataset, masked anew in each epoch.
    #[cfg(feature = "train")]
    pub fn batches(
        self,
        dataset: impl burn::data::dataset::Dataset<MaskedLmExample> + 'static,
    ) -> super::Batches<MaskedLmBatch> {
        super::Batches::seeded(dataset, move |examples, seed, device| {
            self.collate_some(examples, seed, device)
        })
    }

    /// [`collate`](Self::collate), again with other seeds until at least one token is masked, as in BERT's own data; gives up
    /// after 20 attempts.
    pub fn collate_some(
        &self,
        examples: &[MaskedLmExample],
        seed: u64,
        device: &Device,
    ) -> Result<MaskedLmBatch> {
        // Seeds come from a generator, so that seed + 1 is not another batch's.
        for seed in (0..19).map(|attempt| seed.wrapping_add(attempt)) {
            let batch = self.collate(examples, seed, device)?;
            if batch.num_masked() > 0 {
                return Ok(batch);
            }
        }
        self.collate(examples, seed.wrapping_add(19), device)
    }
}

fn word_ids(row: usize, example: &MaskedLmExample) -> Result<&[Option<u32>]> {
    let problem = "has no word ids, which whole_word_masking needs; set them with with_word_ids or turn whole_word_masking off";
    match example.word_ids.as_deref() {
        None => Err(Error::data(format!("examples[{row}]"), problem)),
        Some(words) if words.len() != example.len() => Err(one_a_token("word_ids", words.len(), example)),
        Some(words) => Ok(words),
    }
}

/// A field that is not as long as its example.
fn one_a_token(input: &'static str, found: usize, example: &MaskedLmExample) -> Error {
    Error::shape(input, [found], format!("[{}], one per token in every example", example.len()))
}

/// One field of all examples, padded with 0; `None` if no example has it.
fn padded(
    input: &'static str,
    examples: &[MaskedLmExample],
    seq: usize,
    field: fn(&MaskedLmExample) -> &Option<Vec<u32>>,
) -> Result<Option<Vec<Vec<u32>>>> {
    if examples.iter().all(|example| field(example).is_none()) {
        return Ok(None);
    }
    let pad = |example| {
        let mut values = field(example).clone().unwrap_or_default();
        if values.len() != example.len() {
            return Err(one_a_token(input, values.len(), example));
        }
        values.resize(seq, 0);
        Ok(values)
    };
    examples.iter().map(pad).collect::<Result<_>>().map(Some)
}
