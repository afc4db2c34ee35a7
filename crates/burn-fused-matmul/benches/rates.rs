//! Rates of the matmuls of a training step, beside what the CPU's multiply-adds reach and beside the crate gemm.
//!
//!     RAYON_NUM_THREADS=2 cargo bench -p burn-fused-matmul [-- PART OF A NAME]
//!
//! GFLOP/s of the fastest of many interleaved runs, and in brackets per cent of the rate that a loop of the CPU's own
//! multiply-adds (f32's, or `vdpbf16ps`) reaches in the same run. `1` is one thread, `all` is rayon's, and `apart` are as many
//! matmuls at once, on one thread each: what several processes reach. In bf16 operands and results are bf16. Results are new allocations: set
//! `MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184`, or the time to clear pages is measured too.
//! `rates_torch.py` prints PyTorch's rates of the same matmuls.

use burn_fused_matmul::{Kernel, Matrix, Values, bf16, product, product_bf16};
use gemm::{Parallelism, gemm};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::hint::black_box;
use std::time::Instant;

/// Tokens of a batch, and those that the head of masked language modelling scores.
const TOKENS: usize = 1024;
const MASKED: usize = 150;
const VOCABULARY: usize = 30522;

/// Each contestant runs for so long in total, and at least so many times.
const SECONDS: f64 = 0.3;
const RUNS: usize = 4;

/// What is multiplied: values in f32 and rounded, shape and strides.
#[derive(Clone, Copy)]
struct Operand<'a>(&'a [f32], &'a [bf16], [usize; 2], [usize; 2]);

impl<'a> Operand<'a> {
    fn rows((values, rounded): &'a (Vec<f32>, Vec<bf16>), shape: [usize; 2]) -> Self {
        Self(values, rounded, shape, [shape[1], 1])
    }

    fn transpose(self) -> Self {
        let Self(values, rounded, [rows, columns], [row, column]) = self;
        Self(values, rounded, [columns, rows], [column, row])
    }

    fn matrix(self, values: impl Into<Values<'a>>) -> Matrix<'a> {
        Matrix::new(values, self.2, self.3)
    }
}

/// Name, and M, K, N of the forward.
fn shapes() -> Vec<(String, [usize; 3])> {
    let mut shapes = Vec::new();
    for (model, hidden) in [("MiniLM", 384), ("BERT-base", 768)] {
        for (part, rows, from, to) in [
            ("attention", TOKENS, hidden, hidden),
            ("up", TOKENS, hidden, 4 * hidden),
            ("down", TOKENS, 4 * hidden, hidden),
            ("vocabulary", MASKED, hidden, VOCABULARY),
        ] {
            shapes.push((format!("{model} {part}"), [rows, from, to]));
        }
    }
    shapes.extend([32, 64].map(|size| (format!("attention head of {size}"), [128, size, 128])));
    shapes
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let threads = rayon::current_num_threads();
    let single = |_| ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let pools: Vec<ThreadPool> = (0..threads).map(single).collect();
    let alone = |work: &(dyn Fn() + Sync)| pools[0].install(work);
    let apart = |work: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| pools.iter().for_each(|pool| drop(scope.spawn(|| pool.install(work)))));
    };
    let kernels = [Kernel::f32(), Kernel::bf16()];
    println!("GFLOP/s (% of multiply-adds), {threads} threads");
    let title = kernels.map(|kernel| format!("{kernel}: 1 | all | apart"));
    println!("{:36}{:>30}{:>22}{:>36}", "", title[0], "gemm: 1 | all", title[1]);
    for (name, [m, k, n]) in shapes() {
        let (x, w, dy) = (random(m * k), random(k * n), random(m * n));
        let (x, dy) = (Operand::rows(&x, [m, k]), Operand::rows(&dy, [m, n]));
        // The head of masked language modelling multiplies by the transposed word embeddings.
        let w = match m {
            MASKED => Operand::rows(&w, [n, k]).transpose(),
            _ => Operand::rows(&w, [k, n]),
        };
        for (pass, a, b) in
            [("forward", x, w), ("input gradient", dy, w.transpose()), ("weight gradient", x.transpose(), dy)]
        {
            let name = format!("{name}, {pass}");
            if !name.contains(&filter) {
                continue;
            }
            let f32 = || drop(black_box(product(a.matrix(a.0), b.matrix(b.0), kernels[0])));
            let bf16 = || drop(black_box(product_bf16(a.matrix(a.1), b.matrix(b.1), None, kernels[1])));
            let gemm = |threads| move || drop(black_box(by_gemm(a, b, threads)));
            let times = race(&[
                &|| alone(&f32),
                &f32,
                &|| apart(&f32),
                &|| alone(&gemm(Parallelism::None)),
                &gemm(Parallelism::Rayon(0)),
                &|| alone(&bf16),
                &bf16,
                &|| apart(&bf16),
                &|| alone(&|| multiply_adds(false)),
                &|| apart(&|| multiply_adds(false)),
                &|| alone(&|| multiply_adds(true)),
                &|| apart(&|| multiply_adds(true)),
            ]);
            let flop = 2e-9 * (m * n * k) as f64;
            let many = threads as f64;
            // `vdpbf16ps` multiplies two values in each place.
            let loops = [(8, 1.0), (9, many), (10, 2.0), (11, 2.0 * many)];
            let peaks = loops.map(|(i, count)| count * MULTIPLY_ADDS / times[i]);
            print!("{name:36}");
            // Of each contestant: matmuls in a run, and what it is compared with.
            for (i, (count, peak)) in
                [(1.0, 0), (1.0, 1), (many, 1), (1.0, 0), (1.0, 1), (1.0, 2), (1.0, 3), (many, 3)]
                    .into_iter()
                    .enumerate()
            {
                let rate = count * flop / times[i];
                print!("{:>12}", format!("{rate:.0} ({:.0})", 100.0 * rate / peaks[peak]));
            }
            println!();
        }
    }
}

/// The fastest run of each contestant, in seconds.
fn race(contestants: &[&dyn Fn()]) -> Vec<f64> {
    let mut best = vec![f64::INFINITY; contestants.len()];
    let start = Instant::now();
    let mut runs = 0;
    while runs < RUNS || start.elapsed().as_secs_f64() < SECONDS * contestants.len() as f64 {
        for (contestant, best) in contestants.iter().zip(&mut best) {
            let start = Instant::now();
            contestant();
            *best = best.min(start.elapsed().as_secs_f64());
        }
        runs += 1;
    }
    best
}

/// Values, and the same rounded.
fn random(count: usize) -> (Vec<f32>, Vec<bf16>) {
    let mut state = count as u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).map(|value| (value, bf16::from_f32(value))).unzip()
}

fn by_gemm(a: Operand, b: Operand, parallelism: Parallelism) -> Vec<f32> {
    let (Operand(a, _, [m, k], a_strides), Operand(b, _, [_, n], b_strides)) = (a, b);
    let mut c = Vec::with_capacity(m * n);
    let [[a_row, a_column], [b_row, b_column]] = [a_strides, b_strides].map(|s| s.map(|s| s as isize));
    let (to, a, b) = (c.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    // SAFETY: shapes and strides are those of the operands, and C has room for M · N values, which are written.
    unsafe {
        gemm(
            m,
            n,
            k,
            to,
            1,
            n as isize,
            false,
            a,
            a_column,
            a_row,
            b,
            b_column,
            b_row,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
        c.set_len(m * n);
    }
    c
}

/// Gigaflops of [`multiply_adds`].
const MULTIPLY_ADDS: f64 = 1e-9 * 24.0 * 32.0 * 20_000.0;

/// Multiply-adds of registers, in 24 independent sums: 20,000 of 16 values or of 16 pairs of bf16 each.
fn multiply_adds(is_bf16: bool) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        use std::array::from_fn;

        #[target_feature(enable = "avx512f")]
        fn f32s() {
            let x = black_box(_mm512_set1_ps(0.5));
            let mut sums: [_; 24] = from_fn(|_| _mm512_setzero_ps());
            (0..20_000).for_each(|_| sums.iter_mut().for_each(|sum| *sum = _mm512_fmadd_ps(x, x, *sum)));
            black_box(sums);
        }

        #[target_feature(enable = "avx512f,avx512bf16")]
        fn pairs() {
            let x = black_box(_mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5), _mm512_set1_ps(0.5)));
            let mut sums: [_; 24] = from_fn(|_| _mm512_setzero_ps());
            (0..20_000).for_each(|_| sums.iter_mut().for_each(|sum| *sum = _mm512_dpbf16_ps(*sum, x, x)));
            black_box(sums);
        }

        #[target_feature(enable = "avx2,fma")]
        fn halves() {
            let x = black_box(_mm256_set1_ps(0.5));
            let mut sums: [_; 12] = from_fn(|_| _mm256_setzero_ps());
            (0..80_000).for_each(|_| sums.iter_mut().for_each(|sum| *sum = _mm256_fmadd_ps(x, x, *sum)));
            black_box(sums);
        }

        // SAFETY (of the calls): the CPU has the instructions.
        if is_bf16 && is_x86_feature_detected!("avx512bf16") {
            return unsafe { pairs() };
        }
        if is_x86_feature_detected!("avx512f") {
            return unsafe { f32s() };
        }
        if is_x86_feature_detected!("fma") {
            return unsafe { halves() };
        }
    }
    let mut sums = [0.0_f32; 24 * 16];
    let x = black_box(0.5);
    (0..20_000).for_each(|_| sums.iter_mut().for_each(|sum| *sum += x * x));
    black_box((sums, is_bf16));
}
