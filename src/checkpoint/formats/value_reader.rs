//! The values of a tensor, read in the order in which they lie row by row.

use super::{StoredTensor, WeightFile, to_little_endian};
use crate::error::Result;
use burn::tensor::{Bytes, DType, TensorData};
use bytemuck::{Pod, cast_slice_mut, zeroed_vec};
use crc32fast::Hasher;

/// Reads the values of a tensor, from the first one on.
pub(crate) struct ValueReader<'a> {
    origin: Origin<'a>,
    /// Bytes that were read.
    position: u64,
}

enum Origin<'a> {
    /// A tensor of a file, with the checksum of what was read if the file states one.
    File {
        file: &'a WeightFile,
        key: &'a str,
        tensor: &'a StoredTensor,
        checksum: Hasher,
    },
    Memory(Vec<u8>),
}

impl<'a> ValueReader<'a> {
    pub(in crate::checkpoint) fn from_file(
        file: &'a WeightFile,
        key: &'a str,
        tensor: &'a StoredTensor,
    ) -> Self {
        Self { origin: Origin::File { file, key, tensor, checksum: Hasher::new() }, position: 0 }
    }

    /// A reader of little-endian values that lie row by row.
    pub(in crate::checkpoint) fn from_memory(bytes: Vec<u8>) -> Self {
        Self { origin: Origin::Memory(bytes), position: 0 }
    }

    /// The next tensor's values, or of a matrix its transpose's.
    pub(in crate::checkpoint) fn read(
        &mut self,
        shape: &[usize],
        dtype: DType,
        is_transposed: bool,
    ) -> Result<TensorData> {
        // Numbers lie in memory as Burn aligns them; it would copy bytes that need not.
        let bytes = match (dtype.size(), shape) {
            (2, &[rows, columns]) if is_transposed => self.transposed::<u16>(rows, columns)?,
            (4, &[rows, columns]) if is_transposed => self.transposed::<u32>(rows, columns)?,
            (_, &[rows, columns]) if is_transposed => self.transposed::<u64>(rows, columns)?,
            (2, _) => self.in_order::<u16>(shape.iter().product())?,
            (4, _) => self.in_order::<u32>(shape.iter().product())?,
            _ => self.in_order::<u64>(shape.iter().product())?,
        };
        let mut shape = shape.to_vec();
        if is_transposed && shape.len() == 2 {
            shape.reverse();
        }
        Ok(TensorData::from_bytes(bytes, shape, dtype))
    }

    fn in_order<T: Pod + Send + Sync>(&mut self, count: usize) -> Result<Bytes> {
        let mut values = zeroed_vec::<T>(count);
        self.fill_values(&mut values)?;
        Ok(Bytes::from_elems(values))
    }

    fn transposed<T: Pod + Send + Sync>(&mut self, rows: usize, columns: usize) -> Result<Bytes> {
        let mut values = zeroed_vec::<T>(rows * columns);
        let mut strip = zeroed_vec::<T>(STRIP.min(rows) * columns);
        for top in (0..rows).step_by(STRIP) {
            let strip = &mut strip[..STRIP.min(rows - top) * columns];
            self.fill_values(strip)?;
            transpose_strip(strip, columns, &mut values[top..], rows);
        }
        Ok(Bytes::from_elems(values))
    }

    fn fill_values<T: Pod>(&mut self, to: &mut [T]) -> Result<()> {
        self.fill(cast_slice_mut(to))?;
        to_little_endian(cast_slice_mut(to), size_of::<T>());
        Ok(())
    }

    /// Fills `to` with the next bytes.
    pub(super) fn fill(&mut self, to: &mut [u8]) -> Result<()> {
        let start = self.position;
        self.position += to.len() as u64;
        match &mut self.origin {
            Origin::Memory(bytes) => {
                to.copy_from_slice(&bytes[start as usize..self.position as usize]);
            }
            Origin::File { file, key, tensor, checksum } => {
                file.fill(tensor.start + start, to)?;
                let Some(expected) = tensor.checksum else { return Ok(()) };
                checksum.update(to);
                if self.position == tensor.length && checksum.clone().finalize() != expected {
                    let problem = format!("{key} does not have the checksum that the file states");
                    return Err(file.corrupt(problem));
                }
            }
        }
        Ok(())
    }
}

/// Rows that are read and turned at a time: they stay in the second cache, and whole cache lines of the transpose are written.
const STRIP: usize = 32;

/// Writes the columns of some rows as the first values of the rows of a matrix whose rows are `to_row` values apart.
fn transpose_strip<T: Pod>(rows: &[T], columns: usize, to: &mut [T], to_row: usize) {
    /// Columns that are turned at a time: what is read of each row is a cache line, or two.
    const COLUMNS: usize = 16;
    let height = rows.len() / columns.max(1);
    for left in (0..columns).step_by(COLUMNS) {
        let width = COLUMNS.min(columns - left);
        // A copy: rows that lie a power of two apart are in few sets of a cache.
        let mut tile = [[T::zeroed(); COLUMNS]; STRIP];
        for (tile, row) in tile.iter_mut().zip(rows.chunks_exact(columns)) {
            tile[..width].copy_from_slice(&row[left..][..width]);
        }
        for column in 0..width {
            let line = &mut to[(left + column) * to_row..][..height];
            line.iter_mut().zip(&tile).for_each(|(to, row)| *to = row[column]);
        }
    }
}

/// The bytes of a matrix's transpose, whose values are of `size` bytes.
pub(in crate::checkpoint) fn transposed(bytes: &[u8], [rows, columns]: [usize; 2], size: usize) -> Vec<u8> {
    fn transposed_values<const N: usize>(bytes: &[u8], rows: usize, columns: usize) -> Vec<u8>
    where
        [u8; N]: Pod,
    {
        let (values, _) = bytes.as_chunks::<N>();
        let mut to = zeroed_vec::<[u8; N]>(values.len());
        for (top, strip) in (0..).step_by(STRIP).zip(values.chunks((STRIP * columns).max(1))) {
            transpose_strip(strip, columns, &mut to[top..], rows);
        }
        to.into_flattened()
    }
    match size {
        2 => transposed_values::<2>(bytes, rows, columns),
        4 => transposed_values::<4>(bytes, rows, columns),
        _ => transposed_values::<8>(bytes, rows, columns),
    }
}
