//! Dropout's factors, row by row.

use super::scalar::Wide;
use crate::numerics::philox::{self, Arithmetic, GROUP, LANES as COUNTERS, Mask};
use pulp::Simd;

/// Groups of words that are drawn side by side: more gain little, and AVX2 has no registers for them.
const ABREAST: usize = 2;

/// The mask's factors (0 or the scale) of a row from column `GROUP · group` on.
#[inline(always)]
pub(crate) fn factors<S: Simd, W: Wide>(simd: S, mask: &Mask, token: u64, mut group: u32, factors: &mut [W]) {
    let scale = W::from_f64(mask.scale);
    let fill = |factors: &mut [W], words: &[u32]| {
        for (factor, &word) in factors.iter_mut().zip(words) {
            *factor = if mask.keeps(word) { scale } else { W::ZERO };
        }
    };
    let (blocks, rest) = factors.as_chunks_mut::<{ ABREAST * GROUP }>();
    for block in blocks {
        fill(block, words::<S, ABREAST>(simd, mask, token, group).as_flattened());
        group += ABREAST as u32;
    }
    for rest in rest.chunks_mut(GROUP) {
        fill(rest, words::<S, 1>(simd, mask, token, group).as_flattened());
        group += 1;
    }
}

/// [`Mask::words`] of `N` groups from `group` on, by vectors.
#[inline(always)]
fn words<S: Simd, const N: usize>(simd: S, mask: &Mask, token: u64, group: u32) -> [[u32; GROUP]; N] {
    // Loops over references, here and in `Vectors`: what arrays' `map`, `from_fn` and `into_iter` call is not compiled for
    // the CPU that was found.
    let mut words = [[0; GROUP]; N];
    let apart = COUNTERS / S::U32_LANES;
    for i in 0..apart {
        let mut counters = [simd.splat_u32s(0); N];
        for (counters, group) in counters.iter_mut().zip(group..) {
            let columns = philox::columns(group);
            let columns: &[S::u32s] = bytemuck::cast_slice(&columns);
            *counters = columns[i];
        }
        let drawn = mask.words_at(Vectors::<S, N>(simd), counters, token);
        for (word, of_groups) in drawn.iter().enumerate() {
            for (words, of_group) in words.iter_mut().zip(of_groups) {
                let vectors: &mut [S::u32s] = bytemuck::cast_slice_mut(words);
                vectors[i + word * apart] = *of_group;
            }
        }
    }
    words
}

/// Words in `N` vectors of the CPU at a time.
// Each round waits for the one before, and several vectors fill each other's gaps.
#[derive(Clone, Copy)]
struct Vectors<S, const N: usize>(S);

impl<S: Simd, const N: usize> Arithmetic for Vectors<S, N> {
    type Words = [S::u32s; N];

    #[inline(always)]
    fn splat(self, word: u32) -> Self::Words {
        [self.0.splat_u32s(word); N]
    }

    #[inline(always)]
    fn xor(self, a: Self::Words, b: Self::Words) -> Self::Words {
        let mut both = a;
        for (both, b) in both.iter_mut().zip(&b) {
            *both = self.0.xor_u32s(*both, *b);
        }
        both
    }

    #[inline(always)]
    fn multiply(self, words: Self::Words, factor: u32) -> [Self::Words; 2] {
        // By pulp, for the compiler takes packed words apart with shuffles. Left to it, a forward of `embed_layer_norm` on
        // 8 × 128 tokens of BERT-base in training takes 0.70 ms; with pulp 0.55 (AVX2, two cores), and with AVX-512 0.32, or
        // 0.25 where two groups of words are drawn side by side.
        let factor = self.0.splat_u32s(factor);
        let [mut low, mut high] = [words; 2];
        for ((low, high), words) in low.iter_mut().zip(&mut high).zip(&words) {
            (*low, *high) = self.0.widening_mul_u32s(*words, factor);
        }
        [low, high]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_words<S: Simd>(simd: S) {
        let mask = Mask::new([1, 2, 3, 4], 0.5);
        for (token, group) in [(0, 0), (7, 2), (1 << 40, 5)] {
            let [first, second] = words::<S, 2>(simd, &mask, token, group);
            assert_eq!((first, second), (mask.words(token, group), mask.words(token, group + 1)));
        }
    }

    #[test]
    fn words_are_the_same_in_vectors_of_every_width() {
        assert_words(pulp::Scalar);
        #[cfg(target_arch = "x86_64")]
        {
            pulp::x86::V3::try_new().into_iter().for_each(assert_words);
            pulp::x86::V4::try_new().into_iter().for_each(assert_words);
        }
    }
}
