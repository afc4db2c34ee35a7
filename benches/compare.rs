//! The operator, Burn's own operations and PyTorch side by side, as one table.
//!
//!     BURN_BERT_PYTHON=python cargo bench --bench compare
//!
//! The three take turns, so that they see the same machine. Without `BURN_BERT_PYTHON` the column of PyTorch is
//! empty. See `benches/compare.sh`, which runs it under several allocators.

mod bert_base;

use bert_base::{Bench, Path, SHAPES, WORKLOADS, Workload};
use rayon::prelude::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Turns that each contestant gets.
const ROUNDS: usize = 7;
/// Milliseconds that a turn should take.
const TURN: f64 = 60.0;

pub(crate) fn main() {
    let threads = rayon::current_num_threads();
    let mut torch = Torch::start(threads);
    let versions = torch.as_ref().map_or("no PyTorch: set BURN_BERT_PYTHON", |torch| &torch.versions);
    let allocator = std::env::var("BURN_BERT_ALLOCATOR").unwrap_or_else(|_| "default".into());
    let bandwidth = copy_bandwidth();
    println!("Burn 0.22.1 on Flex; {versions}; {threads} threads each; {allocator} allocator");
    println!("copy bandwidth {bandwidth:.1} GB/s; medians of ms, GB/s of the least traffic\n");
    println!("| B × S | | fused | GB/s | Burn composed | ratio | PyTorch | ratio |");
    println!("|---|---|---|---|---|---|---|---|");
    for shape @ [batch, seq] in SHAPES {
        for workload in WORKLOADS {
            let [fused, composed, peer] = race(workload, shape, torch.as_mut());
            let gigabytes = least_traffic(workload, shape) / 1e6 / fused;
            let against = |other: Option<f64>| match other {
                Some(time) => format!("{time:.2} | {:.1}×", time / fused),
                None => "— | —".into(),
            };
            let [composed, peer] = [against(Some(composed)), against((!peer.is_nan()).then_some(peer))];
            println!("| {batch} × {seq} | {workload} | {fused:.2} | {gigabytes:.1} | {composed} | {peer} |");
        }
    }
}

/// Median milliseconds of fused, composed and PyTorch (NaN without it).
fn race(workload: Workload, shape: [usize; 2], mut torch: Option<&mut Torch>) -> [f64; 3] {
    let mut fused = Bench::new(workload, Path::Fused, shape);
    let mut composed = Bench::new(workload, Path::Composed, shape);
    let mut contestants: [Box<dyn FnMut(usize) -> Vec<f64>>; 3] = [
        Box::new(|runs| time(&mut fused, runs)),
        Box::new(|runs| time(&mut composed, runs)),
        Box::new(|runs| torch.as_mut().map_or_else(Vec::new, |torch| torch.time(workload, shape, runs))),
    ];
    let runs = contestants.each_mut().map(|contestant| {
        let warm = median(contestant(3)); // also the first touch of memory
        (TURN / warm).clamp(1.0, 200.0) as usize
    });
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for ((contestant, times), &runs) in contestants.iter_mut().zip(&mut times).zip(&runs) {
            times.extend(contestant(runs));
        }
    }
    times.map(median)
}

fn time(bench: &mut Bench, runs: usize) -> Vec<f64> {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            bench.run();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Bytes that must be read and written once, were every table row in a batch distinct.
fn least_traffic(workload: Workload, [batch, seq]: [usize; 2]) -> f64 {
    let row = 768.0 * 4.0;
    let tokens = (batch * seq) as f64 * row; // one [B, S, H]
    let positions = seq as f64 * row;
    let parameters = (30_522.0 + 512.0 + 4.0) * row;
    let forward = 2.0 * tokens + positions;
    match workload {
        Workload::Forward | Workload::Train => forward,
        // Rows and the gradient are read, rows of the gradient written; the ones from above written before.
        Workload::Backward => forward + 4.0 * tokens + 2.0 * positions,
        // AdamW reads parameter, gradient and two moments, and writes all but the gradient.
        Workload::Step => forward + 4.0 * tokens + 2.0 * positions + 7.0 * parameters,
    }
}

/// GB/s, read and written, of copying 256 MiB on all threads.
fn copy_bandwidth() -> f64 {
    let from = vec![1u8; 256 << 20];
    let mut to = vec![0u8; from.len()];
    let times = (0..7)
        .map(|_| {
            let start = Instant::now();
            to.par_chunks_mut(1 << 20)
                .zip(from.par_chunks(1 << 20))
                .for_each(|(to, from)| to.copy_from_slice(from));
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    2.0 * from.len() as f64 / 1e6 / median(times)
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
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/bench_transformers.py");
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

    fn time(&mut self, workload: Workload, [batch, seq]: [usize; 2], runs: usize) -> Vec<f64> {
        let name = format!("{workload:?}").to_lowercase();
        writeln!(self.ask, "{name} {batch} {seq} {runs}").expect("PyTorch is running");
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
