//! Rates of products of the shapes of a training step, interleaved.
//!
//!     cargo bench -p burn-fused-matmul [-- PART OF A NAME]

use burn_fused_matmul::{Kernel, Matrix, product};
use std::hint::black_box;
use std::time::Instant;

/// Tokens of a batch, and those that the head of masked-language modelling scores.
const TOKENS: usize = 1024;
const MASKED: usize = 150;
const VOCABULARY: usize = 30522;
const ROUNDS: usize = 15;

/// Name, and M, K, N.
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
    shapes
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let kernels: Vec<_> = [Kernel::F32].into_iter().chain(Kernel::all_bf16()).collect();
    let threads = rayon::current_num_threads();
    println!("GFLOP/s, medians of {ROUNDS} rounds, {threads} threads");
    print!("{:30}", "");
    kernels.iter().for_each(|kernel| print!("{kernel:>24}"));
    println!();
    for (name, [m, k, n]) in shapes() {
        let random = |count: usize, seed: u32| -> Vec<f32> {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            };
            (0..count).map(|_| next()).collect()
        };
        let (x, w, dy) = (random(m * k, 1), random(k * n, 2), random(m * n, 3));
        let [x, w, dy] =
            [(&x, [m, k]), (&w, [k, n]), (&dy, [m, n])].map(|(v, shape)| Matrix::rows(&v[..], shape));
        for (pass, a, b) in [("nn", x, w), ("nt", dy, w.transpose()), ("tn", x.transpose(), dy)] {
            let name = format!("{name} {pass}");
            if !name.contains(&filter) {
                continue;
            }
            let mut times = vec![Vec::new(); kernels.len()];
            for _ in 0..ROUNDS {
                for (kernel, times) in kernels.iter().zip(&mut times) {
                    let start = Instant::now();
                    black_box(product(a, b, *kernel));
                    times.push(start.elapsed().as_secs_f64());
                }
            }
            print!("{name:30}");
            for times in &mut times {
                times.sort_by(f64::total_cmp);
                print!("{:24.0}", 2e-9 * (m * n * k) as f64 / times[ROUNDS / 2]);
            }
            println!();
        }
    }
}
