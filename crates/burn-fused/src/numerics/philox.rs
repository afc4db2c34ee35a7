//! Philox4x32-10, the counter-based random generator behind dropout.
//!
//! Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Random numbers are a
//! function of key and counter: nothing is kept between calls, so any part of a mask can be computed again.

/// Counters that are worked on side by side; each gives four words.
pub(crate) const LANES: usize = 16;

/// Mask elements that one group of counters decides.
pub(crate) const GROUP: usize = 4 * LANES;

/// Arithmetic on words of 32 bits, several side by side.
pub(crate) trait Arithmetic: Copy {
    /// One word per lane.
    type Words: Copy;

    /// `word` in every lane.
    fn splat(self, word: u32) -> Self::Words;

    fn xor(self, a: Self::Words, b: Self::Words) -> Self::Words;

    /// The lower and the upper halves of `words` · `factor`.
    fn multiply(self, words: Self::Words, factor: u32) -> [Self::Words; 2];
}

/// Plain integers, lane by lane.
#[derive(Clone, Copy)]
struct Plain<const L: usize>;

impl<const L: usize> Arithmetic for Plain<L> {
    type Words = [u32; L];

    fn splat(self, word: u32) -> [u32; L] {
        [word; L]
    }

    fn xor(self, a: [u32; L], b: [u32; L]) -> [u32; L] {
        std::array::from_fn(|l| a[l] ^ b[l])
    }

    fn multiply(self, words: [u32; L], factor: u32) -> [[u32; L]; 2] {
        let products = words.map(|word| u64::from(word) * u64::from(factor));
        [products.map(|product| product as u32), products.map(|product| (product >> 32) as u32)]
    }
}

/// The four words at `counter`, in each lane.
#[inline(always)]
fn philox4x32_10<A: Arithmetic>(a: A, counter: [A::Words; 4], mut key: [u32; 2]) -> [A::Words; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    for round in 0..10 {
        if round > 0 {
            // The paper's constants, here and below.
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        let [low0, high0] = a.multiply(c0, 0xD251_1F53);
        let [low1, high1] = a.multiply(c2, 0xCD9E_8D57);
        c0 = a.xor(a.xor(high1, c1), a.splat(key[0]));
        c1 = low1;
        c2 = a.xor(a.xor(high0, c3), a.splat(key[1]));
        c3 = low0;
    }
    [c0, c1, c2, c3]
}

/// Which elements of [tokens, columns] dropout keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mask {
    key: [u32; 2],
    /// An element whose word is below is dropped.
    threshold: u32,
    /// 1 / (1 − p).
    pub(crate) scale: f64,
}

impl Mask {
    /// The mask of four seed integers in 0..65536 at drop probability `prob` in [0, 1), rounded to a multiple of 2⁻³².
    pub(crate) fn new(seed: [u32; 4], prob: f64) -> Self {
        // What is out of range wraps, and does not reach into the other half of a word.
        let [a, b, c, d] = seed.map(|word| word & 0xFFFF);
        let (threshold, scale) = threshold_and_scale(prob);
        Self { key: [a | b << 16, c | d << 16], threshold, scale }
    }

    /// The random words of `token` in columns `GROUP · group ..`: that of column `GROUP · group + LANES · i + l` is word i at
    /// counter (`LANES · group + l`, token, 0).
    pub(crate) fn words(&self, token: u64, group: u32) -> [u32; GROUP] {
        let words = self.words_at(Plain::<LANES>, self::columns(group), token);
        std::array::from_fn(|column| words[column / LANES][column % LANES])
    }

    /// The four words of `token` at each of the counters `columns`.
    #[inline(always)]
    pub(crate) fn words_at<A: Arithmetic>(&self, a: A, columns: A::Words, token: u64) -> [A::Words; 4] {
        // Two words: a batch's rows of attention weights may be more than 2³².
        let token = [token as u32, (token >> 32) as u32].map(|half| a.splat(half));
        philox4x32_10(a, [columns, token[0], token[1], a.splat(0)], self.key)
    }

    /// Whether the element with this word is kept.
    #[inline(always)]
    pub(crate) fn keeps(&self, word: u32) -> bool {
        word >= self.threshold
    }
}

/// The counters of a group.
#[inline(always)]
pub(crate) fn columns(group: u32) -> [u32; LANES] {
    std::array::from_fn(|lane| group * LANES as u32 + lane as u32)
}

/// The word below which an element is dropped, and 1 / (1 − `prob`).
pub(crate) fn threshold_and_scale(prob: f64) -> (u32, f64) {
    // `as` saturates: next to a probability of 1 the threshold is the largest word.
    ((prob * 2f64.powi(32)).round() as u32, 1.0 / (1.0 - prob))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of Random123, the authors' implementation (`examples/kat_vectors`, "philox4x32 10").
    #[test]
    fn philox_gives_the_published_words_whatever_counters_are_beside() {
        let answers = [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ];
        for (counter, key, words) in answers {
            let lanes = philox4x32_10(Plain, counter.map(|word| [word ^ 1, word, word ^ 2]), key);
            assert_eq!(lanes.map(|[_, word, _]| word), words);
        }
    }
}
