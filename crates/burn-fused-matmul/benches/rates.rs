//! Rates of products of the shapes of a training step, interleaved, and beside them the rate of f32 multiply-adds in registers.
//!
//!     [BURN_BERT_PYTHON=python] cargo bench -p burn-fused-matmul [-- PART OF A NAME]
//!
//! With an interpreter that has PyTorch and transformers, PyTorch's as well.

use burn_fused_matmul::{
    Int8Kernel, Int8Matrix, Kernel, Matrix, add_product, bf16, on_threads, product_bf16, product_int8,
};
use pulp::{Arch, Simd, WithSimd};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Tokens of a batch, and those that the head of masked-language modelling scores.
const TOKENS: usize = 1024;
const MASKED: usize = 150;
const VOCABULARY: usize = 30522;
const ROUNDS: usize = 15;

/// Rows of a weight in 8 bits that share a scale.
const BLOCK: usize = 192;

/// Steps of the loop that shows what the CPU can do: about a millisecond.
const STEPS: usize = 1 << 20;

/// Name, and M, K, N. The vocabulary's weight is a table of word embeddings, so that its forward pass is nt, and the gradient of the
/// input nn.
fn shapes() -> Vec<(String, [usize; 3])> {
    let mut shapes = Vec::new();
    for (model, hidden) in [("MiniLM", 384), ("BERT-base", 768)] {
        for (part, rows, from, to) in [
            ("attention", TOKENS, hidden, hidden),
            ("up", TOKENS, hidden, 4 * hidden),
            ("down", TOKENS, 4 * hidden, hidden),
            ("vocabulary", MASKED, VOCABULARY, hidden),
        ] {
            shapes.push((format!("{model} {part}"), [rows, from, to]));
        }
    }
    shapes
}

/// The operands of a forward pass and of both gradients, of x, w and dy.
fn passes<'a>([x, w, dy]: [Matrix<'a>; 3]) -> [(Matrix<'a>, Matrix<'a>); 3] {
    [(x, w), (dy, w.transpose()), (x.transpose(), dy)]
}

/// Multiply-adds of f32 vectors in registers, without memory: what the CPU can do at most.
struct MultiplyAdds {
    steps: usize,
}

/// Enough chains for the latency of two units.
const CHAINS: usize = 12;

impl WithSimd for MultiplyAdds {
    /// How many, of single values.
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        let factor = black_box(simd.splat_f32s(0.5));
        let mut sums = black_box([simd.splat_f32s(1.0); CHAINS]);
        for _ in 0..self.steps {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f32s(*sum, factor, factor);
            }
        }
        black_box(sums);
        self.steps * CHAINS * S::F32_LANES
    }
}

/// Seconds that all threads need for so many multiply-adds.
fn multiply_adds(steps: usize) -> f64 {
    let start = Instant::now();
    on_threads(rayon::current_num_threads(), || {
        black_box(Arch::new().dispatch(MultiplyAdds { steps }));
    });
    start.elapsed().as_secs_f64()
}

/// The program of `benches/peers/bench_matmul_torch.py`.
struct Torch {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Drop for Torch {
    fn drop(&mut self) {
        // It ends when nobody asks any more.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

impl Torch {
    fn start() -> Option<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/peers/bench_matmul_torch.py");
        let mut command = Command::new(std::env::var_os("BURN_BERT_PYTHON")?);
        command.args([script, &rayon::current_num_threads().to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut torch = Self { process, answers };
        println!("{}", torch.answer());
        Some(torch)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim_end().into()
    }

    /// Seconds of each run.
    fn times(&mut self, case: &str) -> Vec<f64> {
        let ask = self.process.stdin.as_mut().expect("a pipe");
        writeln!(ask, "time {case} {ROUNDS}").expect("the peer listens");
        let answer = self.answer();
        // Its threads keep their cores for a while: who comes next would pay for it.
        sleep(Duration::from_millis(300));
        answer.split_whitespace().map(|time| time.parse::<f64>().expect("milliseconds") / 1e3).collect()
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let kernels = [Kernel::all_f32(), Kernel::all_bf16()].concat();
    let threads = rayon::current_num_threads();
    let mut torch = Torch::start();
    let dtypes: &[&str] = if torch.is_some() { &["f32", "bf16"] } else { &[] };
    println!("GFLOP/s, medians of {ROUNDS} rounds, {threads} threads");
    print!("{:25}{:>12}", "", "multiply-add");
    let int8 = Int8Kernel::all();
    let names = kernels.iter().map(|kernel| kernel.name().into());
    names
        .chain(["bf16 alone".into()])
        .chain(int8.iter().map(|kernel| format!("8 bits {kernel}")))
        .chain(dtypes.iter().map(|dtype| format!("PyTorch {dtype}")))
        .for_each(|name: String| print!("{name:>24}"));
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
        let shapes = [[m, k], [k, n], [m, n]];
        let values = [0, 1, 2].map(|i| random(shapes[i].iter().product(), i as u32 + 1));
        let rounded =
            values.each_ref().map(|values| values.iter().copied().map(bf16::from_f32).collect::<Vec<_>>());
        let operands = [0, 1, 2].map(|i| Matrix::rows(&values[i][..], shapes[i]));
        let rounded = [0, 1, 2].map(|i| Matrix::rows(&rounded[i][..], shapes[i]));
        let integers: Vec<i8> = random(k * n, 4).iter().map(|value| (127.0 * value) as i8).collect();
        let scales = vec![1e-2; k / BLOCK * n];
        // Forward passes alone have weights in 8 bits, and tables of embeddings have none.
        let quantised = k.is_multiple_of(BLOCK).then(|| Int8Matrix::new(&integers, &scales, [k, n], BLOCK));
        for (i, pass) in ["nn", "nt", "tn"].into_iter().enumerate() {
            let [(a, b), (a_rounded, b_rounded)] = [operands, rounded].map(|operands| passes(operands)[i]);
            let name = format!("{name} {pass}");
            let case = format!("{pass} {} {} {}", a.shape()[0], a.shape()[1], b.shape()[1]);
            if !name.contains(&filter) {
                continue;
            }
            // There before: the system takes a tenth of a product's time to hand out new memory.
            let mut c = vec![0.0; a.shape()[0] * b.shape()[1]];
            let mut times = vec![Vec::new(); kernels.len() + 1 + int8.len() + dtypes.len()];
            let mut limits = Vec::new();
            for _ in 0..ROUNDS {
                limits.push(multiply_adds(STEPS));
                for (kernel, times) in kernels.iter().zip(&mut times) {
                    let start = Instant::now();
                    add_product(&mut c, a, b, *kernel);
                    times.push(start.elapsed().as_secs_f64());
                }
                // As a model in bf16 has them, with results in bf16.
                let start = Instant::now();
                black_box(product_bf16(a_rounded, b_rounded, None, Kernel::bf16()));
                times[kernels.len()].push(start.elapsed().as_secs_f64());
                if let Some(quantised) = quantised.filter(|_| pass == "nn") {
                    for (kernel, times) in int8.iter().zip(&mut times[kernels.len() + 1..]) {
                        let start = Instant::now();
                        black_box(product_int8(a, quantised, None, *kernel));
                        times.push(start.elapsed().as_secs_f64());
                    }
                }
            }
            for (dtype, times) in dtypes.iter().zip(&mut times[kernels.len() + 1 + int8.len()..]) {
                times.extend(torch.iter_mut().flat_map(|torch| torch.times(&format!("{dtype} {case}"))));
            }
            let median = |times: &mut Vec<f64>| {
                times.sort_by(f64::total_cmp);
                times[ROUNDS / 2]
            };
            let all = threads * Arch::new().dispatch(MultiplyAdds { steps: STEPS });
            let limit = 2e-9 * all as f64 / median(&mut limits);
            print!("{name:25}{limit:12.0}");
            for times in &mut times {
                if times.is_empty() {
                    print!("{:>24}", "–");
                    continue;
                }
                let rate = 2e-9 * (m * n * k) as f64 / median(times);
                print!("{rate:18.0} {:3.0} %", 100.0 * rate / limit);
            }
            println!();
        }
    }
}
