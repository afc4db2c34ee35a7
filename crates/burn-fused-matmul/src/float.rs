//! Products in f32, by the crate `gemm`.

use crate::Output;
use crate::matrix::{Matrix, Values};
use crate::threads::on_threads;
use gemm::Parallelism;
use half::bf16;
use std::borrow::Cow;
use std::cmp::Reverse;
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

/// The most rows of a part: `gemm` packs all of a part's, which of a vocabulary's are as many bytes as its logits.
const MOST_ROWS: usize = 4096;

/// `gemm` adds up in another order if C has so many entries or fewer, or is at most 64 by 64.
const FEW: usize = 256;

/// Below so many multiplications one thread is faster than several.
const PARALLEL_FROM: usize = 192 * 192 * 192;

/// Rows, columns and depth of what is widened at a time, about: in 16 bits a matmul needs no copy of a whole weight.
const BLOCK: usize = 192;
/// `gemm` never cuts so short a sum, so an entry of C is the same in whatever block it is.
const DEPTH: usize = 512;

/// Multiplies, operands rounded to bf16 if `rounded`: C in parts, each with its rows of A and columns of B in f32.
///
/// # Safety
///
/// That of [`Kernel::run`](crate::Kernel::run).
pub(crate) unsafe fn multiply(a: Matrix, b: Matrix, output: Output, rounded: bool) {
    let ([m, k], [_, n]) = (a.shape(), b.shape());
    let is_large = m.saturating_mul(n).saturating_mul(k) >= PARALLEL_FROM;
    let (grid, depth_step) = match (a.values, b.values, output) {
        // What is read as it is and written once needs no small blocks.
        (Values::F32(_), Values::F32(_), Output::F32 { .. }) if !rounded => {
            (if is_large { parts([m, n]) } else { [1; 2] }, k.max(1))
        }
        _ => ([m, n].map(|count| count.div_ceil(BLOCK)), DEPTH),
    };
    // Of bf16 if nothing is said about adding.
    let (c, add, bias) = match output {
        Output::F32 { c, add } => (c, Some(add), None),
        Output::Bf16 { c, bias } => (c.cast(), None, bias),
    };
    let c = Entries { first: c, strides: [n as isize, 1] };
    let multiply_part = |row: usize, column: usize| {
        let rows = range(m, ROWS, row, grid[0]);
        let columns = range(n, COLUMNS, column, grid[1]);
        // C += A · B of the part.
        let add_up = |to: Entries, add: bool| {
            for start in (0..k.max(1)).step_by(depth_step) {
                let depth = start..k.min(start + depth_step);
                let (a, a_strides) = values(&a.part(rows.clone(), depth.clone()), rounded);
                let (b, b_strides) = values(&b.part(depth.clone(), columns.clone()), rounded);
                let (a, b) = (Entries::new(&a, a_strides), Entries::new(&b, b_strides));
                let shape = [rows.len(), columns.len(), depth.len()];
                // SAFETY: all entries of A and B are among their values; C is the caller's promise, or the sums below, and
                // each part writes entries of its own.
                unsafe { in_one_order(shape, a, b, to, add || start > 0) }
            }
        };
        if let Some(add) = add {
            return add_up(c.from(rows.start, columns.start), add);
        }
        let width = columns.len();
        let mut sums = vec![0.0; rows.len() * width];
        add_up(Entries { first: sums.as_mut_ptr(), strides: [width as isize, 1] }, true);
        for (i, sums) in sums.chunks_exact(width).enumerate() {
            for (j, sum) in sums.iter().enumerate() {
                let place = (rows.start + i) * n + columns.start + j;
                let sum = sum + bias.map_or(0.0, |bias| bias[columns.start + j]);
                // SAFETY: the part is in C, whose values are bf16.
                unsafe { c.from(0, 0).first.cast::<bf16>().add(place).write(bf16::from_f32(sum)) }
            }
        }
    };
    let (next, count) = (AtomicUsize::new(0), grid[0] * grid[1]);
    on_threads(if is_large { rayon::current_num_threads().min(count) } else { 1 }, || {
        while let Some(part) = Some(next.fetch_add(1, Relaxed)).filter(|&part| part < count) {
            multiply_part(part / grid[1], part % grid[1]);
        }
    });
}

/// C = A · B, or C += A · B if `add`, on one thread: an entry of C is the same whatever is beside it.
///
/// # Safety
///
/// All entries of A and B are valid; those of C are valid for writes, and initialised if they are added to.
unsafe fn in_one_order([m, n, k]: [usize; 3], a: Entries, b: Entries, c: Entries, add: bool) {
    if !(m == 1 || n == 1 || m * n <= FEW && a.strides[1] == 1 && b.strides[0] == 1) {
        // SAFETY: the caller's promise.
        return unsafe { in_pieces([m, n, k], a, b, c, add) };
    }
    // `gemm` adds up a single row or column and few entries in orders of their own. With a row or column that is there
    // twice, and B row by row, an entry of C is the same whatever is beside it.
    let [rows, columns] = [m.max(2), n.max(2)];
    let copy: Vec<f32>;
    let b = if n == 1 || rows * columns <= FEW {
        // SAFETY: the caller's promise.
        let entry = |i: usize| unsafe { *b.from(i / columns, (i % columns).min(n - 1)).first };
        copy = (0..k * columns).map(entry).collect();
        Entries::new(&copy, [columns as isize, 1])
    } else {
        b
    };
    let a = Entries { strides: [if m == 1 { 0 } else { a.strides[0] }, a.strides[1]], ..a };
    let mut sums = vec![0.0; rows * columns];
    let to = Entries { first: sums.as_mut_ptr(), strides: [columns as isize, 1] };
    // SAFETY: the caller's promise, and the sums are `rows` by `columns`.
    unsafe { in_pieces([rows, columns, k], a, b, to, false) };
    for (i, sums) in sums.chunks_exact(columns).take(m).enumerate() {
        for (j, sum) in sums.iter().take(n).enumerate() {
            let entry = c.from(i, j).first;
            // SAFETY: the caller's promise.
            unsafe { entry.write(if add { *entry + sum } else { *sum }) };
        }
    }
}

/// [`in_one_order`], for more than a few entries of C.
///
/// # Safety
///
/// That of [`in_one_order`].
unsafe fn in_pieces([m, n, k]: [usize; 3], a: Entries, b: Entries, c: Entries, add: bool) {
    // Of so few columns `gemm` cuts sums at 512 if there are few rows as well, and elsewhere otherwise.
    let piece = if n <= COLUMNS { 512 } else { k.max(1) };
    let mut start = 0;
    loop {
        let (a, b) = (a.from(0, start), b.from(start, 0));
        // SAFETY: the caller's promise. `gemm` reads C only if told to, and fills it with zeros if K is 0.
        unsafe {
            gemm::gemm(
                m,
                n,
                piece.min(k - start),
                c.first,
                c.strides[1],
                c.strides[0],
                add || start > 0,
                a.first,
                a.strides[1],
                a.strides[0],
                b.first,
                b.strides[1],
                b.strides[0],
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

/// Entries of a matrix that threads share, with the strides of rows and columns.
#[derive(Clone, Copy)]
struct Entries {
    first: *mut f32,
    strides: [isize; 2],
}

// SAFETY: what threads write is of disjoint parts.
unsafe impl Send for Entries {}
// SAFETY: as above.
unsafe impl Sync for Entries {}

impl Entries {
    /// Of an operand, which is only read.
    fn new(values: &[f32], strides: [isize; 2]) -> Self {
        Self { first: values.as_ptr().cast_mut(), strides }
    }

    /// Those from row i and column j on, which may be none. A method, so that closures share all of `self`.
    fn from(self, i: usize, j: usize) -> Self {
        let [row, column] = self.strides;
        Self { first: self.first.wrapping_offset(i as isize * row + j as isize * column), ..self }
    }
}

/// Into how many ranges of rows and of columns C is split for the threads: as many parts as there are threads, if they are
/// large enough, and with the least to pack, since each part packs its rows of A and its columns of B; more of many rows.
///
/// `gemm` on several threads takes up to twice as long: it packs B on one thread, and does not split long sums.
fn parts([m, n]: [usize; 2]) -> [usize; 2] {
    // What is added up in an order of its own is so on any number of threads.
    if m.min(n) == 1 || m * n <= FEW {
        return [1; 2];
    }
    let threads = rayon::current_num_threads();
    // Of `count` rows or columns: all parts are large enough to be added up as the whole.
    let most = |count: usize, other: usize| threads.min(count / PART.max(FEW / other + COLUMNS)).max(1);
    let grids = (1..=most(m, n)).map(|rows| [rows, most(n, m).min(threads / rows)]);
    let cost = |&[rows, columns]: &[usize; 2]| (Reverse(rows * columns), columns * m + rows * n);
    let [rows, columns] = grids.min_by_key(cost).expect("one row of parts");
    [rows.max(m.div_ceil(MOST_ROWS)), columns]
}

/// Range `part` of `count` values in `parts` of about the same size, multiples of `unit`.
fn range(count: usize, unit: usize, part: usize, parts: usize) -> Range<usize> {
    let [start, end] = [part, part + 1].map(|part| (count * part / parts).next_multiple_of(unit).min(count));
    start..end
}

fn strides(matrix: &Matrix) -> [isize; 2] {
    // A slice of f32 has no more than `isize::MAX` bytes, so that strides fit.
    matrix.strides.map(|stride| stride as isize)
}

/// The values in f32, and the strides of rows and columns: those of the matrix, or of a copy of its entries alone.
fn values<'a>(matrix: &Matrix<'a>, rounded: bool) -> (Cow<'a, [f32]>, [isize; 2]) {
    let [row, column] = strides(matrix);
    if row < column {
        let (values, [column, row]) = values(&matrix.transpose(), rounded);
        return (values, [row, column]);
    }
    let copy = match matrix.values {
        Values::F32(values) if !rounded => return (values.into(), [row, column]),
        Values::F32(values) => copied(matrix, values, round),
        Values::Bf16(values) => copied(matrix, values, |value| value.to_f32()),
    };
    (copy.into(), [matrix.shape()[1] as isize, 1])
}

/// All entries, row by row.
fn copied<T: Copy>(matrix: &Matrix, values: &[T], to_f32: impl Fn(T) -> f32) -> Vec<f32> {
    let ([rows, columns], [row, column]) = (matrix.shape(), matrix.strides);
    let mut copy = Vec::with_capacity(rows * columns);
    for i in 0..rows {
        let values = &values[(i * row).min(values.len())..];
        match column {
            1 => copy.extend(values.iter().take(columns).map(|&value| to_f32(value))),
            _ => copy.extend((0..columns).map(|j| to_f32(values[j * column]))),
        }
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
