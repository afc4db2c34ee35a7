//! A language in which a letter follows from its position and from nothing else.
//!
//! Forty-eight places each have one of sixteen letters, three places to a letter, shuffled by the seed. A sentence is a
//! random choice of places, read from left to right: the letter of each, at the position of each. The other letters
//! say next to nothing about a masked one, so a model without positions can only guess.

use burn_bert::data::MaskedLmExample;
use rand::seq::{SliceRandom, index};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]`; the letters follow.
pub const SPECIAL_TOKENS: std::ops::Range<u32> = 0..5;
const CLS: u32 = 2;
pub const MASK: u32 = 4;
pub const LETTERS: u32 = 16;
pub const PLACES: u32 = 48;

pub struct Language {
    seed: u64,
    /// The letter of each place, 0..16.
    letters: Vec<u32>,
}

impl Language {
    pub fn new(seed: u64) -> Self {
        let mut letters: Vec<u32> = (0..PLACES).map(|place| place % LETTERS).collect();
        letters.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        Self { seed, letters }
    }

    /// Sentences, `[CLS]` at position 0 and place p at position p + 1; the same at every call with this stream.
    pub fn sentences(&self, stream: u64, count: usize) -> Vec<MaskedLmExample> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(stream);
        let sentence = |_| {
            let length = rng.random_range(12..=24);
            let mut places = index::sample(&mut rng, PLACES as usize, length).into_vec();
            places.sort_unstable();
            let letters = places.iter().map(|&place| SPECIAL_TOKENS.end + self.letters[place]);
            let positions = places.iter().map(|&place| place as u32 + 1);
            MaskedLmExample::new([CLS].into_iter().chain(letters).collect())
                .with_position_ids([0].into_iter().chain(positions).collect())
        };
        (0..count).map(sentence).collect()
    }

    /// The positions of all places, those of one letter together.
    pub fn positions_by_letter(&self) -> Vec<i32> {
        let mut positions: Vec<i32> = (1..=PLACES as i32).collect();
        positions.sort_by_key(|&position| self.letters[position as usize - 1]);
        positions
    }
}
