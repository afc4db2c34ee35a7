//! Any UTF-8 text, its words as tokens.

use crate::task::{CLS, Outcome, SEP, SPECIAL_TOKENS, Task, UNK};
use anyhow::{Context, Result, ensure};
use burn_bert::BertEmbeddingsConfig;
use burn_bert::model::{BertForMaskedLmConfig, BertModelConfig};
use burn_bert::training::MaskedLmExample;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::path::Path;

/// Words that are kept, the most frequent ones; the others become `[UNK]`.
const MAX_WORDS: usize = 4096;
/// Words of a sentence at most; longer ones are cut in two.
const SENTENCE: usize = 30;
/// Rows of the position table; a pair takes 2 · 30 words and three special tokens.
const POSITIONS: usize = 80;
const BATCH: usize = 16;
/// One pair in ten is held out.
const HELD_OUT: usize = 10;

pub struct Corpus {
    seed: u64,
    fingerprint: u64,
    vocabulary: Vec<String>,
    /// How often each word stands in the training pairs.
    counts: Vec<usize>,
    training: Vec<MaskedLmExample>,
    held_out: Vec<MaskedLmExample>,
}

impl Corpus {
    pub fn read(path: &Path, seed: u64) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = String::from_utf8(bytes)
            .with_context(|| format!("{} is not UTF-8; convert it first", path.display()))?;
        Self::new(&text, seed).with_context(|| format!("cannot train on {}", path.display()))
    }

    fn new(text: &str, seed: u64) -> Result<Self> {
        let sentences: Vec<Vec<String>> = sentences(text);
        let pairs: Vec<&[Vec<String>]> = sentences.chunks_exact(2).collect();
        ensure!(
            pairs.len() >= 2 * HELD_OUT,
            "the text has {} sentences, but at least {} are needed",
            sentences.len(),
            4 * HELD_OUT
        );
        // The end of the text is held out: neighbours in a text are too much alike to be dealt out.
        let (training, held_out) = pairs.split_at(pairs.len() - pairs.len() / HELD_OUT);

        let words = training.iter().flat_map(|pair| pair.iter().flatten());
        let mut frequency: HashMap<&str, usize> = HashMap::new();
        for word in words {
            *frequency.entry(word).or_default() += 1;
        }
        let mut words: Vec<(&str, usize)> = frequency.into_iter().filter(|&(_, count)| count > 1).collect();
        words.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        words.truncate(MAX_WORDS);

        let specials = SPECIAL_TOKENS.iter().map(|token| (*token, 0));
        let (vocabulary, counts): (Vec<_>, Vec<_>) =
            specials.chain(words).map(|(word, count)| (word.to_owned(), count)).unzip();
        let ids: HashMap<&str, u32> = vocabulary.iter().map(String::as_str).zip(0..).collect();
        let encode = |pairs: &[&[Vec<String>]]| pairs.iter().map(|pair| encode(pair, &ids)).collect();
        let (training, held_out) = (encode(training), encode(held_out));

        Ok(Self { seed, fingerprint: fnv_1a(text), vocabulary, counts, training, held_out })
    }
}

/// FNV-1a of 64 bits: a saved run has it, so it must be the same with every version of Rust.
fn fnv_1a(text: &str) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, add)
}

/// Lower-case words and punctuation marks of every sentence.
fn sentences(text: &str) -> Vec<Vec<String>> {
    let mut sentences = Vec::new();
    let mut sentence: Vec<String> = Vec::new();
    let mut word = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_alphanumeric() || (c == '\'' && !word.is_empty()) {
            word.extend(c.to_lowercase());
            continue;
        }
        if !word.is_empty() {
            sentence.push(std::mem::take(&mut word));
        }
        if !c.is_whitespace() {
            sentence.push(c.to_string());
        }
        let full = sentence.len() + 1 >= SENTENCE; // a word and a mark may come at once
        if (full || matches!(c, '.' | '!' | '?')) && sentence.len() > 2 {
            sentences.push(std::mem::take(&mut sentence));
        }
    }
    sentences
}

/// `[CLS] first [SEP] second [SEP]`, with token type 1 for the second and its `[SEP]`.
fn encode(pair: &[Vec<String>], ids: &HashMap<&str, u32>) -> MaskedLmExample {
    let mut tokens = vec![CLS];
    let mut types = vec![0];
    for (segment, sentence) in pair.iter().enumerate() {
        tokens.extend(sentence.iter().map(|word| ids.get(word.as_str()).copied().unwrap_or(UNK)));
        tokens.push(SEP);
        types.resize(tokens.len(), segment as u32);
    }
    MaskedLmExample::new(tokens).with_token_type_ids(types)
}

impl Task for Corpus {
    fn description(&self) -> String {
        let words: usize = self.counts.iter().sum();
        format!(
            "A text of {} training and {} held-out sentence pairs; {words} words of {} kinds to learn from.",
            self.training.len(),
            self.held_out.len(),
            self.vocabulary.len() - SPECIAL_TOKENS.len()
        )
    }

    fn fingerprint(&self) -> String {
        format!("text {:016x}, seed {}", self.fingerprint, self.seed)
    }

    fn model(&self) -> BertForMaskedLmConfig {
        let embeddings = BertEmbeddingsConfig::new()
            .with_vocab_size(self.vocabulary.len())
            .with_hidden_size(64)
            .with_max_position_embeddings(POSITIONS);
        let bert = BertModelConfig::new(embeddings)
            .with_num_hidden_layers(2)
            .with_num_attention_heads(4)
            .with_intermediate_size(128);
        BertForMaskedLmConfig::new(bert)
    }

    fn learning_rate(&self) -> f64 {
        2e-3
    }

    fn default_steps(&self) -> usize {
        1500
    }

    fn batch(&self, step: usize) -> Vec<MaskedLmExample> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(1 + step as u64);
        (0..BATCH).map(|_| self.training[rng.random_range(0..self.training.len())].clone()).collect()
    }

    fn held_out(&self) -> Vec<Vec<MaskedLmExample>> {
        self.held_out.chunks(BATCH).map(<[_]>::to_vec).collect()
    }

    fn blind_guess(&self, labels: &[u32]) -> f64 {
        // Add-one smoothing over the words, so that one the training pairs lack is not impossible.
        let words = self.counts.len() - SPECIAL_TOKENS.len();
        let total = (self.counts.iter().sum::<usize>() + words) as f64;
        let cost = |&label: &u32| -((self.counts[label as usize] + 1) as f64 / total).ln();
        labels.iter().map(cost).sum::<f64>() / labels.len() as f64
    }

    fn blind_guess_name(&self) -> &'static str {
        "each word as often as in training"
    }

    fn labelled_positions(&self) -> Vec<(usize, String)> {
        (0..2 * SENTENCE + 3).map(|position| (position, position.to_string())).collect()
    }

    fn position_axis(&self) -> &'static str {
        "position"
    }

    fn lesson(&self) -> &'static str {
        "The model learned more than how often each word occurs."
    }

    fn has_learned(&self, outcome: &Outcome) -> bool {
        outcome.loss < outcome.blind_loss && outcome.loss < outcome.loss_before
    }
}
