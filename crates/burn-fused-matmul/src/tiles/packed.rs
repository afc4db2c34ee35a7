//! Columns of B that stay packed.

use super::operand::{InPlace, Operand};
use super::{Instructions, PANEL, Tile};
use crate::kernel::Kernel;
use crate::matrix::{Matrix, Values};
use crate::threads::on_threads;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A right operand B that stays as a kernel reads it, in as much memory as its values: weights that many products share. Results have the
/// bits of those of the values themselves.
///
/// ```
/// use burn_fused_matmul::{Kernel, Matrix, PackedMatrix, product};
///
/// let a = Matrix::rows(&[0.5; 32][..], [1, 32]);
/// let b = Matrix::rows(&[2.0; 32 * 64][..], [32, 64]);
/// let packed = PackedMatrix::new(b, Kernel::F32).expect("a kernel for f32, and whole tiles");
/// assert_eq!(product(a, &packed, Kernel::F32), product(a, b, Kernel::F32));
/// ```
pub struct PackedMatrix {
    /// Half a panel after the other, along K.
    tiles: Vec<Tile>,
    shape: [usize; 2],
    instructions: Instructions,
}

impl PackedMatrix {
    /// `b` packed for `kernel`; `None` where it would not take the same memory: if 32 does not divide its rows and columns, or the kernel
    /// rounds or widens its values.
    pub fn new(b: Matrix, kernel: Kernel) -> Option<Self> {
        let (instructions, shape) = (kernel.0, b.shape());
        let is_kept = match b.values {
            Values::F32(_) => instructions.words_are_f32(),
            Values::Bf16(_) => instructions.values() == 2,
        };
        if !is_kept || shape.iter().any(|&size| size == 0 || !size.is_multiple_of(PANEL)) {
            return None;
        }
        let [depth, halves] = [shape[0] / (16 * instructions.values()), shape[1] / 16];
        let mut tiles = vec![Tile([[0; 16]; 16]); depth * halves];
        let items = Mutex::new(tiles.chunks_mut(depth).enumerate());
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        on_threads(rayon::current_num_threads(), || {
            let operand = Operand::columns(b.into(), instructions, usize::MAX);
            while let Some((half, tiles)) = next() {
                for (tile, to) in tiles.iter_mut().enumerate() {
                    // SAFETY: a kernel exists only where its instructions do.
                    unsafe { operand.pack_tile(16 * half, tile, to) };
                }
            }
        });
        Some(Self { tiles, shape, instructions })
    }

    /// What multiplies it.
    pub fn kernel(&self) -> Kernel {
        Kernel(self.instructions)
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    #[cfg(feature = "burn-std")]
    pub(crate) fn values_of_word(&self) -> usize {
        self.instructions.values()
    }

    /// The bytes of its values, row by row.
    pub fn to_rows(&self) -> Vec<u8> {
        let ([k, n], values) = (self.shape, self.instructions.values());
        let (depth, size) = (k / (16 * values), 4 / values);
        let mut rows = vec![0; k * n * size];
        for (half, tiles) in self.tiles.chunks_exact(depth).enumerate() {
            for (step, words) in tiles.iter().flat_map(|tile| &tile.0).enumerate() {
                for (column, word) in words.iter().enumerate() {
                    for (value, bytes) in word.to_le_bytes().chunks_exact(size).enumerate() {
                        let index = (values * step + value) * n + 16 * half + column;
                        rows[index * size..][..size].copy_from_slice(bytes);
                    }
                }
            }
        }
        rows
    }

    /// A matrix of this shape, without values.
    pub(super) fn matrix(&self) -> Matrix<'static> {
        Matrix::without_values(self.shape)
    }

    pub(super) fn words(&self) -> InPlace {
        let depth = self.shape[0] / (16 * self.instructions.values());
        InPlace { first: self.tiles.as_ptr().cast(), half: depth * size_of::<Tile>(), line: 4, step: 64 }
    }
}

impl fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("PackedMatrix").field("shape", &self.shape).field("kernel", &self.kernel()).finish()
    }
}
