//! One token: plain loops over H, which the compiler vectorises for the CPU that pulp finds at run time.
//!
//! Dropout's words are the exception: pulp multiplies them, for the compiler takes packed words apart with shuffles. Left
//! to it, a forward of 8 × 128 tokens of BERT-base in training takes 0.70 ms; with pulp 0.55 (AVX2, two cores), and with
//! AVX-512 0.32, or 0.25 where two groups of words are drawn side by side.

use super::scalar::{Scalar, Wide};
use crate::operator::philox::{self, Arithmetic, GROUP, LANES as COUNTERS, Mask};
use pulp::Simd;
use std::ops::Add;

/// Partial sums that are carried side by side: four AVX2 registers of f32.
const LANES: usize = 32;

/// Groups of dropout's words that are drawn side by side: more gain little, and AVX2 has no registers for them.
const ABREAST: usize = 2;

/// LayerNorm's and dropout's constants.
pub(super) struct Norm<W> {
    pub(super) gamma: Vec<W>,
    pub(super) beta: Vec<W>,
    pub(super) epsilon: f64,
    pub(super) mask: Option<Mask>,
}

/// y of one token. Returns its mean and rstd; `sum` is scratch of length H.
#[inline(always)]
pub(super) fn forward<S: Simd, T: Scalar>(
    simd: S,
    token: u64,
    rows: [Option<&[T]>; 3],
    norm: &Norm<T::Wide>,
    sum: &mut [T::Wide],
    y: &mut [T],
) -> (T::Wide, T::Wide) {
    add_rows(rows, sum);
    let hidden = sum.len() as f64;
    let mean = T::Wide::from_f64(sum_of(sum, |x| x).to_f64() / hidden);
    let squares = sum_of(sum, |x| (x - mean) * (x - mean)).to_f64();
    let rstd = T::Wide::from_f64(1.0 / (squares / hidden + norm.epsilon).sqrt());
    let scaled = |x: T::Wide, gamma, beta| (x - mean) * rstd * gamma + beta;
    match &norm.mask {
        None => {
            for (((&x, &gamma), &beta), y) in sum.iter().zip(&norm.gamma).zip(&norm.beta).zip(y) {
                *y = T::narrow(scaled(x, gamma, beta));
            }
        }
        Some(mask) => {
            for ((x, &gamma), &beta) in sum.iter_mut().zip(&norm.gamma).zip(&norm.beta) {
                *x = scaled(*x, gamma, beta);
            }
            for_groups(simd, mask, token, y, sum, |factor, y, x| *y = T::narrow(x * factor));
        }
    }
    (mean, rstd)
}

/// Where the backward of one token adds and stores, each of length H.
pub(super) struct Gradients<'a, W> {
    /// Scratch: x̂.
    pub(super) normalized: &'a mut [W],
    /// ∂L/∂x, if `sources` asks for it.
    pub(super) sum: &'a mut [W],
    pub(super) sources: bool,
    pub(super) gamma: &'a mut [W],
    pub(super) beta: &'a mut [W],
}

/// The backward of one token.
#[inline(always)]
pub(super) fn backward<S: Simd, T: Scalar>(
    simd: S,
    token: u64,
    rows: [Option<&[T]>; 3],
    norm: &Norm<T::Wide>,
    [mean, rstd]: [T::Wide; 2],
    grad: &[T],
    out: &mut Gradients<T::Wide>,
) {
    add_rows(rows, out.normalized);
    out.normalized.iter_mut().for_each(|x| *x = (*x - mean) * rstd);
    match &norm.mask {
        Some(mask) => {
            for_groups(simd, mask, token, out.sum, grad, |factor, d, grad| *d = grad.widen() * factor)
        }
        None => out.sum.iter_mut().zip(grad).for_each(|(d, grad)| *d = grad.widen()),
    }
    for (((&d, &x), gamma), beta) in
        out.sum.iter().zip(&*out.normalized).zip(&mut *out.gamma).zip(&mut *out.beta)
    {
        *gamma += d * x;
        *beta += d;
    }
    if !out.sources {
        return;
    }
    out.sum.iter_mut().zip(&norm.gamma).for_each(|(d, &gamma)| *d = *d * gamma);
    let hidden = out.sum.len() as f64;
    let average = T::Wide::from_f64(sum_of(out.sum, |g| g).to_f64() / hidden);
    let along = T::Wide::from_f64(dot(out.sum, out.normalized).to_f64() / hidden);
    for (d, &x) in out.sum.iter_mut().zip(&*out.normalized) {
        *d = rstd * (*d - average - x * along);
    }
}

/// `to += from`.
#[inline(always)]
pub(super) fn accumulate<W: Wide>(to: &mut [W], from: &[W]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to += from);
}

/// `sum` = the rows added up, each addition rounded to `T`.
#[inline(always)]
fn add_rows<T: Scalar>(rows: [Option<&[T]>; 3], sum: &mut [T::Wide]) {
    let round = |wide: T::Wide| T::narrow(wide).widen();
    let mut present = rows.into_iter().flatten();
    match (present.next(), present.next(), present.next()) {
        (Some(a), Some(b), Some(c)) => {
            for (((x, a), b), c) in sum.iter_mut().zip(a).zip(b).zip(c) {
                *x = round(round(a.widen() + b.widen()) + c.widen());
            }
        }
        (Some(a), Some(b), None) => {
            sum.iter_mut().zip(a).zip(b).for_each(|((x, a), b)| *x = round(a.widen() + b.widen()));
        }
        (Some(a), None, None) => sum.iter_mut().zip(a).for_each(|(x, a)| *x = a.widen()),
        _ => sum.fill(T::Wide::ZERO),
    }
}

/// Calls `f` with the mask's factor (0 or the scale) and each pair of values.
#[inline(always)]
fn for_groups<S: Simd, W: Wide, A, B: Copy>(
    simd: S,
    mask: &Mask,
    token: u64,
    to: &mut [A],
    from: &[B],
    f: impl Fn(W, &mut A, B) + Copy,
) {
    let scale = W::from_f64(mask.scale);
    let apply = |to: &mut [A], from: &[B], words: &[u32]| {
        for ((to, &from), &word) in to.iter_mut().zip(from).zip(words) {
            f(if mask.keeps(word) { scale } else { W::ZERO }, to, from);
        }
    };
    let (to_blocks, to_rest) = to.as_chunks_mut::<{ ABREAST * GROUP }>();
    let (from_blocks, from_rest) = from.as_chunks::<{ ABREAST * GROUP }>();
    let mut group = 0;
    for (to, from) in to_blocks.iter_mut().zip(from_blocks) {
        apply(to, from, words::<S, ABREAST>(simd, mask, token, group).as_flattened());
        group += ABREAST as u32;
    }
    for (to, from) in to_rest.chunks_mut(GROUP).zip(from_rest.chunks(GROUP)) {
        apply(to, from, words::<S, 1>(simd, mask, token, group).as_flattened());
        group += 1;
    }
}

/// [`Mask::words`] of `N` groups from `group` on, by vectors.
///
/// Loops over references, here and in [`Vectors`]: what arrays' `map`, `from_fn` and `into_iter` call is not compiled
/// for the CPU that was found.
#[inline(always)]
fn words<S: Simd, const N: usize>(simd: S, mask: &Mask, token: u64, group: u32) -> [[u32; GROUP]; N] {
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

/// Words in `N` vectors of the CPU at a time: each round waits for the one before, and several vectors fill each
/// other's gaps.
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
        let factor = self.0.splat_u32s(factor);
        let [mut low, mut high] = [words; 2];
        for ((low, high), words) in low.iter_mut().zip(&mut high).zip(&words) {
            (*low, *high) = self.0.widening_mul_u32s(*words, factor);
        }
        [low, high]
    }
}

/// Σ term(x), in an order that depends on the length alone.
#[inline(always)]
fn sum_of<W: Wide>(values: &[W], term: impl Fn(W) -> W) -> W {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [W::ZERO; LANES];
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(lane, &x)| *lane += term(x));
    }
    let rest = rest.iter().fold(W::ZERO, |sum, &x| sum + term(x));
    lanes.into_iter().fold(rest, Add::add)
}

/// Σ a · b, in the same order.
#[inline(always)]
fn dot<W: Wide>(a: &[W], b: &[W]) -> W {
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [W::ZERO; LANES];
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest = a_rest.iter().zip(b_rest).fold(W::ZERO, |sum, (&a, &b)| sum + a * b);
    lanes.into_iter().fold(rest, Add::add)
}
