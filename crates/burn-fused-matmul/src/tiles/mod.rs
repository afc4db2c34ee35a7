//! Matmuls of operands packed in tiles. A tile is 16 × 16 words of 32 bits, 1 KiB. A word is a value in f32 or, for AMX and
//! AVX512-BF16, two bf16 values that follow each other along K, the first in its lower half: what `tdpbf16ps` and `vdpbf16ps`
//! multiply.
//!
//! ```text
//!                          f32       two of bf16
//! tile of A: word (i, p) = A[i, p]  (A[i, 2p], A[i, 2p + 1])      16 rows of 16 or 32 values
//! tile of B: word (p, j) = B[p, j]  (B[2p, j], B[2p + 1, j])      16 or 32 values of 16 columns
//! ```
//!
//! Tiles of A are AMX's. For the others, words of a row follow each other.
//!
//! Two tiles side by side are a panel of 32 rows of A or 32 columns of B, filled up with zeros. The values along K of
//! the first half of a panel come first, then those of the second.
//!
//! Threads share two lists of items: parts of A to pack, then blocks of C to compute. Each packs the columns of B that it multiplies for
//! itself, into its own cache. What is too large for the buffers is packed and multiplied in several phases. The values of an entry of C are
//! added up in an order that follows from K alone, so that results depend neither on threads nor on blocks.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod float;
mod in_place;
mod operand;
mod packed;
#[cfg(target_arch = "x86_64")]
mod pairs;
mod product;

use half::bf16;
pub(crate) use in_place::tiles as tiles_in_place;
pub use packed::PackedMatrix;
pub(crate) use product::{multiply, prefetch};

/// Rows of a panel of A, columns of a panel of B.
pub(crate) const PANEL: usize = 32;

/// A tile, aligned to a cache line as AMX likes it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Tile(pub(crate) [Words; 16]);

/// A row of a tile.
type Words = [u32; 16];

/// What multiplies tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // other CPUs have f32's alone
pub(crate) enum Instructions {
    F32,
    /// f32's without AVX-512.
    F32Avx2,
    /// f32's on operands rounded to bf16.
    F32OnRounded,
    Avx512,
    Amx,
}

impl Instructions {
    /// Values in a word.
    fn values(self) -> usize {
        match self {
            Self::Avx512 | Self::Amx => 2,
            _ => 1,
        }
    }

    /// Whether a word is a value in f32 as it is in the operand.
    fn words_are_f32(self) -> bool {
        self.values() == 1 && self != Self::F32OnRounded
    }

    /// Rows of A and columns of B that are multiplied at a time: words of the rows stay in a near cache while panels of B pass by.
    fn block(self) -> [usize; 2] {
        match self {
            Self::Amx => [PANEL, PANEL],
            Self::Avx512 => [8, PANEL],
            _ => [float::ROWS, 2 * PANEL],
        }
    }

    /// Rows that are multiplied where so many of a block's are left.
    fn rows(self, left: usize) -> usize {
        match self.block() {
            [float::ROWS, _] => left.next_multiple_of(2),
            [height, _] => height,
        }
    }

    /// Multiplies a [`block`](Self::block), and rounds the sums of the one before.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions, for AMX this thread its registers, and the height be one of [`rows`](Self::rows); rows of A
    /// and panels of B must have their words to read, C must be valid for what is written and, if it is added to, read, and the block
    /// before may be rounded.
    unsafe fn multiply(self, panels: Panels, before: Option<&Rounding>) {
        // SAFETY: the caller's promise, here and below.
        if let Some(before) = before.filter(|_| self != Self::Amx) {
            unsafe { before.round(self) };
        }
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => unsafe { amx::Registers::multiply(panels, before) },
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { avx512::multiply(panels) },
            vectors => unsafe { float::multiply(vectors, &panels) },
        }
    }
}

/// Words along K whose products are added up in one chain, at most. The rounding error of a sum grows with the length of its chains:
/// with this one it is that of MKL's sums, and C is added to from the first cache.
const CHAIN: usize = 384;

/// The length of the chains of `words` along K, which are of about the same length; 1 if there are none.
fn chain(words: usize) -> usize {
    words.div_ceil(words.div_ceil(CHAIN).max(1)).max(1)
}

/// Fetches what lies at an address, if anything does, into the first or the second cache.
#[inline(always)]
pub(crate) fn fetch<const CACHE: u8>(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every address may be fetched.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        if CACHE == 1 { _mm_prefetch::<_MM_HINT_T0>(address) } else { _mm_prefetch::<_MM_HINT_T1>(address) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Rows of A, one panel of B or two, and where their product goes.
struct Panels {
    /// The first word of each row; for AMX, the first tile of each half of a panel.
    a: [*const u32; 8],
    /// The first words of each half of one panel or two, 16 of which follow each other.
    b: [*const u32; 4],
    /// Words along K to multiply.
    words: usize,
    /// The block's `height` rows of `width` values, 32 or 64, of which a row begins `row` values after the one before.
    c: *mut f32,
    row: usize,
    height: usize,
    width: usize,
    /// Whether the product is added to C.
    add: bool,
}

/// Sums that are to be rounded to entries of C.
struct Rounding<'a> {
    sums: *const f32,
    /// Sums from one row to the next.
    to_sums: usize,
    bias: Option<&'a [f32]>,
    c: *mut bf16,
    /// Entries of C from one row to the next.
    to_row: usize,
    /// Rows and columns, as many as `bias` has values.
    shape: [usize; 2],
}

impl Rounding<'_> {
    /// Rounds row by row.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions; sums must be valid for reads, and the entries of C for writes.
    unsafe fn round(&self, instructions: Instructions) {
        for row in 0..self.shape[0] {
            for first in (0..self.shape[1]).step_by(PANEL) {
                let count = PANEL.min(self.shape[1] - first);
                let bias = self.bias.map_or(&[0.0; PANEL][..count], |bias| &bias[first..][..count]);
                // SAFETY: the caller's promise.
                unsafe {
                    let sums = std::slice::from_raw_parts(self.sums.add(row * self.to_sums + first), count);
                    let to = self.c.add(row * self.to_row + first);
                    match instructions {
                        #[cfg(target_arch = "x86_64")]
                        Instructions::Avx512 | Instructions::Amx => pairs::narrow(sums, bias, to),
                        _ => float::narrow(sums, bias, to),
                    }
                }
            }
        }
    }
}
