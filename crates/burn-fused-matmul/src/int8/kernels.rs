//! Sums of products of 8-bit integers in 32 bits, with the instructions that the CPU has.

use crate::tiles::PANEL;
#[cfg(target_arch = "x86_64")]
use crate::tiles::amx::{self, Registers};
use pulp::Simd;
#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::fmt;
use std::sync::OnceLock;

/// Rows of A that are multiplied at a time, but with AMX a panel.
const ROWS: usize = 8;

/// What multiplies matrices in 8 bits. Only a kernel that this CPU can run exists, and all return the same bits for rows of finite values.
/// [`Int8Matrix`](crate::Int8Matrix) has an example.
#[derive(Clone, Copy, Debug)]
pub struct Int8Kernel(Instructions);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // other CPUs have the last alone
enum Instructions {
    Amx,
    Avx512Vnni,
    AvxVnni,
    Avx2,
    Portable,
}

impl Int8Kernel {
    /// The fastest on this CPU.
    pub fn best() -> Self {
        static BEST: OnceLock<Int8Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::all()[0])
    }

    /// Every kernel that this CPU has, the fastest first: to compare them.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx512 = V4::is_available() && is_x86_feature_detected!("avx512vnni");
            let avx2 = V3::is_available();
            let avx_vnni = avx2 && is_x86_feature_detected!("avxvnni");
            all.extend((avx512 && amx::is_available()).then_some(Instructions::Amx));
            all.extend(avx512.then_some(Instructions::Avx512Vnni));
            all.extend(avx_vnni.then_some(Instructions::AvxVnni));
            all.extend(avx2.then_some(Instructions::Avx2));
        }
        all.push(Instructions::Portable);
        all.into_iter().map(Self).collect()
    }

    /// Itself, or the next that multiplies blocks of so many words.
    pub(super) fn for_blocks(self, words: usize) -> Self {
        // A tile is not cut.
        if self.is_amx() && !words.is_multiple_of(16) { Self(Instructions::Avx512Vnni) } else { self }
    }

    pub(super) fn is_amx(self) -> bool {
        self.0 == Instructions::Amx
    }

    pub(super) fn rows(self) -> usize {
        if self.is_amx() { PANEL } else { ROWS }
    }

    /// Multiplies rows and a panel.
    ///
    /// # Safety
    ///
    /// `panels` must point to packed panels, C must be valid for writes of its rows, and for AMX this thread must have `Registers`.
    pub(super) unsafe fn multiply(self, panels: &Panels) {
        // SAFETY: the caller's promise; a kernel exists only where its instructions do.
        unsafe {
            match self.0 {
                #[cfg(target_arch = "x86_64")]
                Instructions::Amx => with_amx(panels),
                #[cfg(target_arch = "x86_64")]
                Instructions::Avx512Vnni => with_avx512(panels),
                #[cfg(target_arch = "x86_64")]
                Instructions::AvxVnni => with_avx_vnni(panels),
                #[cfg(target_arch = "x86_64")]
                Instructions::Avx2 => with_avx2(panels),
                _ => panels.multiply(pulp::Scalar, |a, b, words, to| portable(a, b, words, to)),
            }
        }
    }
}

/// The instructions that it runs on.
impl fmt::Display for Int8Kernel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self.0 {
            Instructions::Amx => "AMX",
            Instructions::Avx512Vnni => "AVX512-VNNI",
            Instructions::AvxVnni => "AVX-VNNI",
            Instructions::Avx2 => "AVX2 on widened integers",
            Instructions::Portable => "scalar",
        })
    }
}

/// A panel of A, of which some rows are multiplied, one of W, and where their product goes.
pub(super) struct Panels<'a> {
    pub(super) a: *const u32,
    /// The first of the rows.
    pub(super) row: usize,
    pub(super) b: *const u32,
    /// Blocks along K, and words of each.
    pub(super) blocks: usize,
    pub(super) words: usize,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) c: *mut f32,
    /// Values from one row of C to the next.
    pub(super) to_row: usize,
    /// Rows and columns of C.
    pub(super) shape: [usize; 2],
}

/// Sums of some rows and 32 columns, which are integers.
type Sums<const COUNT: usize = ROWS> = [[f32; PANEL]; COUNT];

/// Rows of A: where their words begin.
type Rows<const COUNT: usize = ROWS> = [*const u32; COUNT];

impl Panels<'_> {
    /// Multiplies with what writes the sums of so many words of rows of A and of a panel. Safe where [`Int8Kernel::multiply`] is.
    #[inline(always)]
    unsafe fn multiply<S: Simd, const COUNT: usize>(
        &self,
        simd: S,
        add_up: impl Fn(Rows<COUNT>, *const u32, usize, &mut Sums<COUNT>),
    ) {
        let floats = |words: *const u32| words.cast::<[f32; PANEL]>();
        // SAFETY: a panel of A begins with the steps and the zero points of its rows, one of W with totals and scales.
        let [steps, zeros] = [0, 1].map(|i| unsafe { &*floats(self.a).add(i) });
        let (totals, scales) = unsafe { (&*floats(self.b), floats(self.b).add(1)) };
        let len = self.blocks * self.words;
        let rows = self.a.wrapping_add(PANEL * 2 + self.row * len);
        let columns = self.b.wrapping_add(PANEL * (1 + self.blocks));
        let [mut products, mut sums] = [[[0.0; PANEL]; COUNT]; 2];
        for block in 0..self.blocks {
            let first = block * self.words;
            let a = std::array::from_fn(|i| rows.wrapping_add(i * len + first));
            add_up(a, columns.wrapping_add(PANEL * first), self.words, &mut sums);
            // SAFETY: each block has its scales.
            let scales = S::as_simd_f32s(unsafe { &*scales.add(block) }).0;
            for (products, sums) in products.iter_mut().zip(&sums) {
                let products = S::as_mut_simd_f32s(products).0;
                for ((product, &sum), &scale) in products.iter_mut().zip(S::as_simd_f32s(sums).0).zip(scales)
                {
                    *product = simd.mul_add_f32s(sum, scale, *product);
                }
            }
        }
        let [height, width] = self.shape;
        let mut bias = [0.0; PANEL];
        if let Some(from) = self.bias {
            bias[..width].copy_from_slice(from);
        }
        for (i, products) in products.iter_mut().enumerate().take(height) {
            let [step, minus_zero] = [steps[self.row + i], -zeros[self.row + i]].map(|x| simd.splat_f32s(x));
            let of_columns = S::as_simd_f32s(totals).0.iter().zip(S::as_simd_f32s(&bias).0);
            for (product, (&total, &bias)) in S::as_mut_simd_f32s(products).0.iter_mut().zip(of_columns) {
                *product = simd.mul_add_f32s(minus_zero, total, *product);
                *product = simd.mul_add_f32s(step, *product, bias);
            }
            let c = self.c.wrapping_add(i * self.to_row);
            // SAFETY: row i of C has `width` values. The usual width apart: it is written as vectors.
            match width {
                PANEL => unsafe { c.cast::<[f32; PANEL]>().write_unaligned(*products) },
                _ => unsafe { c.copy_from_nonoverlapping(products.as_ptr(), width) },
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn with_amx(panels: &Panels) {
    let to_row = panels.blocks * panels.words;
    let add_up = |rows: Rows<PANEL>, b: *const u32, words: usize, sums: &mut Sums<PANEL>| {
        // SAFETY: a panel has 32 words for each step along K, and rows have one, in whole tiles. An integer has a float's place,
        // 16 of them a vector's.
        unsafe {
            Registers::multiply_int8(rows[0], to_row, b, words / 16, sums.as_mut_ptr().cast());
            for vector in sums.as_flattened_mut().chunks_exact_mut(16) {
                let integers = _mm512_loadu_si512(vector.as_ptr().cast());
                _mm512_storeu_ps(vector.as_mut_ptr(), _mm512_cvtepi32_ps(integers));
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { panels.multiply(V4::new_unchecked(), add_up) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn with_avx512(panels: &Panels) {
    let add_up = |rows: Rows, b: *const u32, words: usize, to: &mut Sums| {
        let mut sums = [[_mm512_setzero_si512(); 2]; ROWS];
        for word in 0..words {
            // SAFETY: a panel has 32 words for each step along K, and a row has one.
            let b = [0, 1].map(|half| unsafe { _mm512_load_si512(b.add(PANEL * word + 16 * half).cast()) });
            for (sums, row) in sums.iter_mut().zip(rows) {
                let a = _mm512_set1_epi32(unsafe { *row.add(word) } as i32);
                *sums = [0, 1].map(|half| _mm512_dpbusd_epi32(sums[half], a, b[half]));
            }
        }
        for (to, sums) in to.iter_mut().zip(sums) {
            for (half, sums) in sums.into_iter().enumerate() {
                // SAFETY: there are 16 floats in each half.
                unsafe { _mm512_storeu_ps(to.as_mut_ptr().add(16 * half), _mm512_cvtepi32_ps(sums)) };
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { panels.multiply(V4::new_unchecked(), add_up) }
}

/// Sums of four rows and 16 columns at a time, in vectors of eight, with what adds four products to each.
#[cfg(target_arch = "x86_64")]
#[inline(always)] // into what has the instructions
unsafe fn in_quarters(
    rows: Rows,
    b: *const u32,
    words: usize,
    add: impl Fn(__m256i, __m256i, __m256i) -> __m256i,
    all: &mut Sums,
) {
    for (from, rows) in rows.as_chunks::<4>().0.iter().enumerate() {
        for column in [0, 16] {
            // SAFETY: the caller's promise, here and below.
            let mut sums = [[unsafe { _mm256_setzero_si256() }; 2]; 4];
            for word in 0..words {
                // SAFETY: a panel has 32 words for each step along K, and a row has one.
                let b = [0, 8]
                    .map(|half| unsafe { _mm256_load_si256(b.add(PANEL * word + column + half).cast()) });
                for (sums, row) in sums.iter_mut().zip(rows) {
                    let a = unsafe { _mm256_set1_epi32(*row.add(word) as i32) };
                    *sums = [0, 1].map(|half| add(sums[half], a, b[half]));
                }
            }
            for (to, sums) in all[4 * from..].iter_mut().zip(sums) {
                for (half, sums) in sums.into_iter().enumerate() {
                    // SAFETY: there are eight floats from there on.
                    unsafe {
                        _mm256_storeu_ps(to.as_mut_ptr().add(column + 8 * half), _mm256_cvtepi32_ps(sums))
                    };
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avxvnni")]
unsafe fn with_avx_vnni(panels: &Panels) {
    let add = |sum, a, b| _mm256_dpbusd_avx_epi32(sum, a, b);
    // SAFETY: the caller's promise.
    unsafe { panels.multiply(V3::new_unchecked(), |a, b, words, to| in_quarters(a, b, words, add, to)) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn with_avx2(panels: &Panels) {
    // Products of bytes, added in pairs, do not fit into 16 bits: even and odd bytes are widened, and multiplied apart.
    let add = |sum, a, b| {
        let low = _mm256_set1_epi16(0xff);
        let even =
            _mm256_madd_epi16(_mm256_and_si256(a, low), _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(b)));
        let odd = _mm256_madd_epi16(_mm256_srli_epi16::<8>(a), _mm256_srai_epi16::<8>(b));
        _mm256_add_epi32(sum, _mm256_add_epi32(even, odd))
    };
    // SAFETY: the caller's promise.
    unsafe { panels.multiply(V3::new_unchecked(), |a, b, words, to| in_quarters(a, b, words, add, to)) }
}

#[inline(always)]
unsafe fn portable(rows: Rows, b: *const u32, words: usize, to: &mut Sums) {
    let mut sums = [[0_i32; PANEL]; ROWS];
    for word in 0..words {
        // SAFETY: a panel has 32 words for each step along K, and a row has one.
        let b = unsafe { &*b.add(PANEL * word).cast::<[[i8; 4]; PANEL]>() };
        for (sums, row) in sums.iter_mut().zip(rows) {
            let a = unsafe { *row.add(word) }.to_ne_bytes().map(i32::from);
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum += a[0] * i32::from(b[0])
                    + a[1] * i32::from(b[1])
                    + a[2] * i32::from(b[2])
                    + a[3] * i32::from(b[3]);
            }
        }
    }
    for (to, &sum) in to.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        *to = sum as f32;
    }
}
