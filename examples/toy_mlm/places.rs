//! A language in which a letter follows from its position and from nothing else.
//!
//! Forty-eight places each have one of sixteen letters, three places to a letter, shuffled by the seed. A sentence is a
//! random choice of places, read from left to right: the letter of each, at the position of each. The places are chosen
//! at random for every sentence, so the other letters say next to nothing about a masked one, and a model without
//! positions can only guess.

use crate::task::{CLS, Outcome, SPECIAL_TOKENS, Task};
use burn_bert::BertEmbeddingsConfig;
use burn_bert::model::{BertForMaskedLmConfig, BertModelConfig};
use burn_bert::training::MaskedLmExample;
use rand::seq::{SliceRandom, index};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const LETTERS: usize = 16;
const PLACES: usize = 48;
/// Rows of the position table: 0 is `[CLS]`'s, 1..=48 are the places, the rest is never used.
const POSITIONS: usize = 64;
const SENTENCE: std::ops::RangeInclusive<usize> = 12..=24;
const BATCH: usize = 32;

pub struct Places {
    seed: u64,
    /// The letter of each place, 0..16.
    letters: Vec<usize>,
}

impl Places {
    pub fn new(seed: u64) -> Self {
        let mut letters: Vec<usize> = (0..PLACES).map(|place| place % LETTERS).collect();
        letters.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        Self { seed, letters }
    }

    fn sentences(&self, stream: u64, count: usize) -> Vec<MaskedLmExample> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(stream);
        (0..count)
            .map(|_| {
                let length = rng.random_range(SENTENCE);
                let mut places = index::sample(&mut rng, PLACES, length).into_vec();
                places.sort_unstable();
                let letter = |&place: &usize| (SPECIAL_TOKENS.len() + self.letters[place]) as u32;
                let ids = [CLS].into_iter().chain(places.iter().map(letter)).collect();
                let positions = [0].into_iter().chain(places.iter().map(|&place| place as u32 + 1));
                MaskedLmExample::new(ids).with_position_ids(positions.collect())
            })
            .collect()
    }
}

impl Task for Places {
    fn description(&self) -> String {
        format!(
            "A language of {LETTERS} letters at {PLACES} places: a masked letter follows from its position alone."
        )
    }

    fn fingerprint(&self) -> String {
        format!("places, seed {}", self.seed)
    }

    fn model(&self) -> BertForMaskedLmConfig {
        let embeddings = BertEmbeddingsConfig::new()
            .with_vocab_size(SPECIAL_TOKENS.len() + LETTERS)
            .with_hidden_size(32)
            .with_max_position_embeddings(POSITIONS);
        let bert = BertModelConfig::new(embeddings)
            .with_num_hidden_layers(2)
            .with_num_attention_heads(2)
            .with_intermediate_size(64);
        BertForMaskedLmConfig::new(bert)
    }

    fn learning_rate(&self) -> f64 {
        5e-3
    }

    fn default_steps(&self) -> usize {
        400
    }

    fn batch(&self, step: usize) -> Vec<MaskedLmExample> {
        self.sentences(1 + step as u64, BATCH)
    }

    fn held_out(&self) -> Vec<Vec<MaskedLmExample>> {
        let sentences = self.sentences(0, 8 * BATCH);
        sentences.chunks(BATCH).map(<[_]>::to_vec).collect()
    }

    fn blind_guess(&self, _labels: &[u32]) -> f64 {
        (LETTERS as f64).ln()
    }

    fn blind_guess_name(&self) -> &'static str {
        "any letter"
    }

    fn labelled_positions(&self) -> Vec<(usize, String)> {
        let mut places: Vec<usize> = (0..PLACES).collect();
        places.sort_by_key(|&place| self.letters[place]);
        let label = |place: usize| char::from(b'a' + self.letters[place] as u8).to_string();
        places.into_iter().map(|place| (place + 1, label(place))).collect()
    }

    fn position_axis(&self) -> &'static str {
        "position, sorted by its letter"
    }

    fn lesson(&self) -> &'static str {
        "The position embeddings learned."
    }

    fn has_learned(&self, outcome: &Outcome) -> bool {
        outcome.accuracy >= 0.95 && outcome.accuracy_without_positions <= 0.30
    }
}
