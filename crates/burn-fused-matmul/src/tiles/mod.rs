//! Products of operands packed in tiles: for AMX and AVX512-BF16.
//!
//! A tile is 16 × 16 words of 32 bits, 1 KiB. A word holds two bf16 values that follow each other along K, the first in its
//! lower half: what `tdpbf16ps` and `vdpbf16ps` multiply.
//!
//! ```text
//! tile of A: word (i, p) = (A[i, 2p], A[i, 2p + 1])      16 rows of 32 values
//! tile of B: word (p, j) = (B[2p, j], B[2p + 1, j])      32 values of 16 columns
//! ```
//!
//! Two tiles side by side are a panel of 32 rows of A or 32 columns of B, filled up with zeros. The values along K of
//! the first half of a panel come first, then those of the second.

pub(crate) mod amx;
pub(crate) mod avx512;
mod pack;
mod schedule;

pub(crate) use schedule::multiply;

/// Rows of a panel of A, columns of a panel of B.
const PANEL: usize = 32;

/// Values along K in a tile.
const DEPTH: usize = 32;

/// A tile, aligned to a cache line as AMX likes it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Tile([u32; 256]);

/// The instructions that multiply two panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instructions {
    Amx,
    Avx512,
}

/// Two panels and where their product goes.
struct Panels {
    /// The first tile of the first half of each panel, and of the second.
    a: [*const Tile; 2],
    b: [*const Tile; 2],
    /// Tiles to multiply.
    depth: usize,
    /// 32 × 32 values, of which a row begins `row` values after the one before.
    c: *mut f32,
    row: usize,
    /// Whether the product is added to C.
    add: bool,
}
