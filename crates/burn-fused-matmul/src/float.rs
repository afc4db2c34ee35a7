//! Products in f32, by the crate `gemm`.

use crate::Output;
use crate::matrix::{Matrix, Values};
use gemm::Parallelism;
use half::bf16;
use rayon::prelude::*;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The instructions of `gemm`'s f32 kernel. Source: `init_gemm_fn` of `gemm-common` 0.19.0.
pub(crate) fn name() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if cfg!(feature = "x86-v4") && is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if is_x86_feature_detected!("fma") {
            return "AVX2 + FMA";
        }
    }
    if cfg!(target_arch = "aarch64") { "NEON" } else { "scalar" }
}

/// Multiples of the rows and columns of C that `gemm`'s kernels compute at a time: 6 × 64 with AVX-512, 6 × 16 with AVX2.
const ROWS: usize = 6;
const COLUMNS: usize = 64;

/// The fewest rows or columns that are split off; with [`range`]'s rounding, a part has more than [`COLUMNS`] less.
const PART: usize = 128;

/// `gemm` adds up in another order if C has so many entries or fewer, or is at most 64 by 64.
const FEW: usize = 256;

/// Below so many multiplications one thread is faster than several.
const PARALLEL_FROM: usize = 192 * 192 * 192;

/// Multiplies, operands rounded to bf16 if `rounded`.
///
/// # Safety
///
/// That of [`Kernel::run`](crate::Kernel::run).
pub(crate) unsafe fn multiply(a: Matrix, b: Matrix, output: Output, rounded: bool) {
    let [m, n] = [a.shape()[0], b.shape()[1]];
    match output {
        // SAFETY: the caller's promise.
        Output::F32 { c, add } => unsafe { multiply_f32(a, b, c, add, rounded) },
        Output::Bf16 { c, bias } => {
            let mut sums = vec![0.0; m * n];
            // SAFETY: there are M · N sums, and as many places in C.
            let c = unsafe {
                multiply_f32(a, b, sums.as_mut_ptr(), true, rounded);
                std::slice::from_raw_parts_mut(c.cast::<MaybeUninit<bf16>>(), m * n)
            };
            for (c, sums) in c.chunks_exact_mut(n).zip(sums.chunks_exact(n)) {
                for (j, (c, sum)) in c.iter_mut().zip(sums).enumerate() {
                    c.write(bf16::from_f32(sum + bias.map_or(0.0, |bias| bias[j])));
                }
            }
        }
    }
}

/// C = A · B, or C += A · B if `add`.
///
/// # Safety
///
/// That of [`multiply`].
unsafe fn multiply_f32(a: Matrix, b: Matrix, c: *mut f32, add: bool, rounded: bool) {
    let [m, k] = a.shape();
    let [_, n] = b.shape();
    let (a, [a_row, a_column]) = values(&a, rounded);
    let (b, [b_row, b_column]) = values(&b, rounded);
    if m == 1 || n == 1 || m * n <= FEW && a_column == 1 && b_row == 1 {
        // `gemm` adds up a single row or column and few entries in orders of their own. With a row or column that is there
        // twice, and B row by row, an entry of C is the same whatever is beside it.
        let [rows, columns] = [m.max(2), n.max(2)];
        let of_copy = [columns as isize, 1];
        let (b, [b_row, b_column]): (Cow<[f32]>, _) = if n == 1 || rows * columns <= FEW {
            let entry =
                |i: usize| b[i / columns * b_row as usize + (i % columns).min(n - 1) * b_column as usize];
            ((0..k * columns).map(entry).collect::<Vec<_>>().into(), of_copy)
        } else {
            (b, [b_row, b_column])
        };
        let a_row = if m == 1 { 0 } else { a_row };
        let mut sums = vec![0.0; rows * columns];
        let (a, b) = (Entries(a.as_ptr().cast_mut()), Entries(b.as_ptr().cast_mut()));
        // SAFETY: all entries of A and B are among their values, and the sums are `rows` by `columns`.
        unsafe {
            let c = sums.as_mut_ptr();
            in_pieces(
                [rows, columns, k],
                (a, [a_row, a_column]),
                (b, [b_row, b_column]),
                (c, columns),
                false,
            );
        }
        for (i, sums) in sums.chunks_exact(columns).take(m).enumerate() {
            for (j, sum) in sums.iter().take(n).enumerate() {
                // SAFETY: C has M · N entries, which are initialised if they are added to.
                unsafe {
                    let entry = c.add(i * n + j);
                    entry.write(if add { *entry + sum } else { *sum });
                }
            }
        }
        return;
    }
    let (a, b, c) = (Entries(a.as_ptr().cast_mut()), Entries(b.as_ptr().cast_mut()), Entries(c));
    let [part_rows, part_columns] = parts([m, k, n]);
    let part = |part: usize| {
        let rows = range(m, ROWS, part / part_columns, part_rows);
        let columns = range(n, COLUMNS, part % part_columns, part_columns);
        // SAFETY: all entries of A and B are among their values, and C is the caller's promise; each part writes entries of
        // its own.
        unsafe {
            in_pieces(
                [rows.len(), columns.len(), k],
                (Entries(a.at(rows.start, a_row, 0, 0)), [a_row, a_column]),
                (Entries(b.at(0, 0, columns.start, b_column)), [b_row, b_column]),
                (c.at(rows.start, n as isize, columns.start, 1), n),
                add,
            );
        }
    };
    let count = part_rows * part_columns;
    if count == 1 {
        return part(0);
    }
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(i) = Some(next.fetch_add(1, Relaxed)).filter(|&i| i < count) {
            part(i);
        }
    };
    rayon::in_place_scope(|scope| {
        (1..count).for_each(|_| scope.spawn(|_| run()));
        run();
    });
}

/// C = A · B, or C += A · B if `add`: with the strides of rows and columns of A and B, and of the rows of C.
///
/// # Safety
///
/// All entries are valid, those of C for writes, and initialised if they are added to.
unsafe fn in_pieces(
    [m, n, k]: [usize; 3],
    (a, [a_row, a_column]): (Entries, [isize; 2]),
    (b, [b_row, b_column]): (Entries, [isize; 2]),
    (c, c_row): (*mut f32, usize),
    add: bool,
) {
    // Of so few columns `gemm` cuts sums at 512 if there are few rows as well, and elsewhere otherwise.
    let piece = if n <= COLUMNS { 512 } else { k.max(1) };
    let mut start = 0;
    loop {
        // SAFETY: the caller's promise. `gemm` reads C only if told to, and fills it with zeros if K is 0.
        unsafe {
            gemm::gemm(
                m,
                n,
                piece.min(k - start),
                c,
                1,
                c_row as isize,
                add || start > 0,
                a.at(0, 0, start, a_column),
                a_column,
                a_row,
                b.at(start, b_row, 0, 0),
                b_column,
                b_row,
                1.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
        start += piece;
        if start >= k {
            return;
        }
    }
}

/// Entries of a matrix that threads share.
#[derive(Clone, Copy)]
struct Entries(*mut f32);

// SAFETY: what threads write is of disjoint parts.
unsafe impl Send for Entries {}
// SAFETY: as above.
unsafe impl Sync for Entries {}

impl Entries {
    fn at(self, i: usize, row: isize, j: usize, column: isize) -> *mut f32 {
        self.0.wrapping_offset(i as isize * row + j as isize * column)
    }
}

/// Into how many ranges of rows and of columns C is split for the threads: as many parts as there are threads, if they are
/// large enough, and with the least to pack, since each part packs its rows of A and its columns of B.
///
/// `gemm` on several threads takes up to twice as long: it packs B on one thread, and does not split long sums.
fn parts([m, k, n]: [usize; 3]) -> [usize; 2] {
    if m.saturating_mul(n).saturating_mul(k) < PARALLEL_FROM {
        return [1, 1];
    }
    let threads = rayon::current_num_threads();
    // Of `count` rows or columns: all parts are large enough to be added up as the whole.
    let most = |count: usize, other: usize| threads.min(count / PART.max(FEW / other + COLUMNS)).max(1);
    let grids = (1..=most(m, n)).map(|rows| [rows, most(n, m).min(threads / rows)]);
    let cost = |&[rows, columns]: &[usize; 2]| (Reverse(rows * columns), columns * m + rows * n);
    grids.min_by_key(cost).expect("one row of parts")
}

/// Range `part` of `count` values in `parts` of about the same size, multiples of `unit`.
fn range(count: usize, unit: usize, part: usize, parts: usize) -> Range<usize> {
    let [start, end] = [part, part + 1].map(|part| (count * part / parts).next_multiple_of(unit).min(count));
    start..end
}

/// The values in f32, and the strides of rows and columns: those of the matrix, or of a copy of its entries alone.
fn values<'a>(matrix: &Matrix<'a>, rounded: bool) -> (Cow<'a, [f32]>, [isize; 2]) {
    // A slice of f32 has no more than `isize::MAX` bytes, so that strides fit.
    let [row, column] = matrix.strides().map(|stride| stride as isize);
    if row < column {
        let (values, [column, row]) = values(&matrix.transpose(), rounded);
        return (values, [row, column]);
    }
    let copy = match matrix.values() {
        Values::F32(values) if !rounded => return (values.into(), [row, column]),
        Values::F32(values) => copied(matrix, values, round),
        Values::Bf16(values) => copied(matrix, values, |value| value.to_f32()),
    };
    (copy.into(), [matrix.shape()[1] as isize, 1])
}

/// All entries, row by row.
fn copied<T: Copy + Sync>(matrix: &Matrix, values: &[T], to_f32: impl Fn(T) -> f32 + Sync) -> Vec<f32> {
    /// Values of a task, about.
    const TASK: usize = 32 * 1024;
    let ([rows, columns], [row, column]) = (matrix.shape(), matrix.strides());
    let mut copy = vec![0.0; rows * columns];
    let rows_per_task = (TASK / columns.max(1)).max(1);
    let task = |(task, copy): (usize, &mut [f32])| {
        for (i, copy) in copy.chunks_exact_mut(columns).enumerate() {
            let values = &values[(task * rows_per_task + i) * row..];
            if column == 1 {
                copy.iter_mut().zip(values).for_each(|(copy, &value)| *copy = to_f32(value));
            } else {
                copy.iter_mut().enumerate().for_each(|(j, copy)| *copy = to_f32(values[j * column]));
            }
        }
    };
    // `chunks` takes no 0.
    let size = (rows_per_task * columns).max(1);
    if copy.len() <= 2 * TASK {
        copy.chunks_mut(size).enumerate().for_each(task);
    } else {
        copy.par_chunks_mut(size).enumerate().for_each(task);
    }
    copy
}

/// Rounded to bf16, to nearest, ties to even: as the crate `half` does it, for vectors.
fn round(value: f32) -> f32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    // A NaN stays one, also if its upper half alone would be infinity.
    let bits = if value.is_nan() { bits | 1 << 22 } else { rounded };
    f32::from_bits(bits & 0xffff_0000)
}
