//! A training step of the layer, row-sparse and dense, here and in PyTorch, as one table.
//!
//!     BURN_BERT_PYTHON=python RAYON_NUM_THREADS=2 cargo bench --bench compare_sparse
//!
//! The four take turns, so that they see the same machine; the sparse steps of the smallest and the largest
//! vocabulary are then timed in turns as well, for their ratio. Without `BURN_BERT_PYTHON` PyTorch's columns are empty.
//! Takes about 16 GB of memory at the largest vocabulary, nearly all of it for the dense contestants;
//! `BURN_BERT_VOCABULARIES=30522,119547` leaves that out.
//!
//! Where the C library is glibc, `MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184` tells it to
//! keep its pages, for all contestants; `BURN_BERT_ALLOCATOR` is what the table's head calls the allocator.

mod training;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;
use training::{BATCHES, Training, VOCABULARIES};

/// Turns that each contestant gets.
const ROUNDS: usize = 5;
/// Milliseconds that a turn should take.
const TURN: f64 = 300.0;

fn main() {
    let threads = rayon::current_num_threads();
    let mut torch = Torch::start(threads);
    let versions = torch.as_ref().map_or("no PyTorch: set BURN_BERT_PYTHON", |torch| &torch.versions);
    let allocator = std::env::var("BURN_BERT_ALLOCATOR").unwrap_or_else(|_| "default".into());
    println!("Burn 0.22.1 on Flex; {versions}; {threads} threads each; {allocator} allocator");
    println!(
        "BERT-base, 8 × 128 uniform ids, dropout 0.1; medians of ms a step, ratios to the sparse step\n"
    );
    println!("| vocabulary | sparse | dense | ratio | PyTorch dense | ratio | PyTorch sparse | ratio |");
    println!("|---|---|---|---|---|---|---|---|");
    let vocabularies = vocabularies();
    for &vocabulary in &vocabularies {
        let [sparse, others @ ..] = race(vocabulary, torch.as_mut());
        let cells = others.map(|time| match time.is_nan() {
            true => "— | —".into(),
            false => format!("{time:.1} | {:.1}×", time / sparse),
        });
        println!("| {vocabulary} | {sparse:.2} | {} |", cells.join(" | "));
    }
    drop(torch);
    if let [small, .., large] = vocabularies[..] {
        let [at_small, at_large] = growth([small, large]);
        let percent = 100.0 * (at_large / at_small - 1.0);
        println!("\nsparse, in turns: {at_small:.2} at {small}, {at_large:.2} at {large}: {percent:+.1} %");
    }
}

fn vocabularies() -> Vec<usize> {
    match std::env::var("BURN_BERT_VOCABULARIES") {
        Ok(list) => list.split(',').map(|size| size.trim().parse().expect("a number of rows")).collect(),
        Err(_) => VOCABULARIES.to_vec(),
    }
}

/// A contestant does so many steps and says how many milliseconds each took.
type Contestant<'a> = Box<dyn FnMut(usize) -> Vec<f64> + 'a>;

/// Median milliseconds of sparse, dense, PyTorch dense and PyTorch sparse (NaN without it).
fn race(vocabulary: usize, torch: Option<&mut Torch>) -> [f64; 4] {
    let (mut sparse, mut dense) = (Training::new(vocabulary), Training::new(vocabulary));
    let torch = std::cell::RefCell::new(torch);
    let ask = |case, steps| {
        torch.borrow_mut().as_mut().map_or_else(Vec::new, |torch| torch.time(case, vocabulary, steps))
    };
    let contestants: [Contestant; 4] = [
        Box::new(|steps| time(steps, || sparse.sparse_step())),
        Box::new(|steps| time(steps, || dense.dense_step())),
        Box::new(|steps| ask("dense", steps)),
        Box::new(|steps| ask("sparse", steps)),
    ];
    take_turns(contestants)
}

/// Median milliseconds of the sparse step at two vocabularies.
fn growth(vocabularies: [usize; 2]) -> [f64; 2] {
    take_turns(vocabularies.map(|vocabulary| -> Contestant {
        let mut training = Training::new(vocabulary);
        Box::new(move |steps| time(steps, || training.sparse_step()))
    }))
}

fn take_turns<const N: usize>(mut contestants: [Contestant; N]) -> [f64; N] {
    let steps = contestants.each_mut().map(|contestant| {
        contestant(2); // makes the optimiser's state
        let once = median(contestant(2));
        let steps = (TURN / once).clamp(1.0, 50.0) as usize;
        if steps > 1 {
            contestant(2 * BATCHES); // every row that will be touched, touched
        }
        steps
    });
    let mut times = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for ((contestant, times), &steps) in contestants.iter_mut().zip(&mut times).zip(&steps) {
            times.extend(contestant(steps));
        }
    }
    times.map(median)
}

fn time(steps: usize, mut step: impl FnMut()) -> Vec<f64> {
    let mut once = || {
        let start = Instant::now();
        step();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..steps).map(|_| once()).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// PyTorch in a process of its own, asked line by line.
struct Torch {
    versions: String,
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Torch {
    fn start(threads: usize) -> Option<Self> {
        let python = std::env::var_os("BURN_BERT_PYTHON")?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/bench_sparse_torch.py");
        let mut process = Command::new(python)
            .args([script, &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("BURN_BERT_PYTHON names a Python with torch and transformers");
        let ask = process.stdin.take().expect("a pipe");
        let mut answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut versions = String::new();
        answers.read_line(&mut versions).expect("PyTorch answers");
        Some(Self { versions: versions.trim().into(), process, ask, answers })
    }

    fn time(&mut self, case: &str, vocabulary: usize, steps: usize) -> Vec<f64> {
        writeln!(self.ask, "{case} {vocabulary} {steps}").expect("PyTorch is running");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("PyTorch is running");
        answer.split_whitespace().map(|time| time.parse().expect("milliseconds")).collect()
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
