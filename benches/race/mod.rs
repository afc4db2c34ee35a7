//! Contestants that are interleaved, so that they run under the same conditions, and peers in processes of their own.

#![allow(dead_code)] // every benchmark takes what it needs

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Does so many runs and says how many milliseconds each took; none if there is nobody to do them.
pub type Contestant<'a> = Box<dyn FnMut(usize) -> Vec<f64> + 'a>;

/// How long a race is.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    /// Turns that each contestant gets.
    pub rounds: usize,
    /// Milliseconds that a turn should take.
    pub turn: f64,
    /// Runs before the race, beside two or four that show how long one takes.
    pub warm_up: usize,
}

/// Milliseconds of a run beyond which a contestant is left out, such as PyTorch's bf16 on a CPU without instructions for it.
const LONGEST_RUN: f64 = 30e3;

impl Race {
    /// The median milliseconds of each contestant's runs; NaN for one that does none, or takes too long.
    pub fn run<const N: usize>(&self, mut contestants: [Contestant; N]) -> [f64; N] {
        let runs = contestants.each_mut().map(|contestant| {
            // A first run may compile kernels; one that takes so long twice is not in the race.
            let once = match contestant(2).last() {
                Some(&time) if time < self.turn => median(contestant(2)),
                Some(&time) if time < LONGEST_RUN => time,
                _ => return 0,
            };
            let runs = (self.turn / once).clamp(1.0, 200.0) as usize;
            if runs > 1 {
                contestant(self.warm_up);
            }
            runs
        });
        let mut times = [const { Vec::new() }; N];
        for _ in 0..self.rounds {
            for ((contestant, times), &runs) in contestants.iter_mut().zip(&mut times).zip(&runs) {
                if runs > 0 {
                    times.extend(contestant(runs));
                }
            }
        }
        times.map(median)
    }
}

/// Milliseconds of each of `runs` runs.
pub fn time(runs: usize, mut run: impl FnMut()) -> Vec<f64> {
    let mut once = || {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..runs).map(|_| once()).collect()
}

pub fn median(numbers: Vec<f64>) -> f64 {
    percentile(numbers, 0.5)
}

/// The number above so large a part of them; NaN without any.
pub fn percentile(mut numbers: Vec<f64>, part: f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get((numbers.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}

/// The first line of a table: who takes part.
pub fn contestants(peers: &[&Option<Peer>]) -> String {
    let allocator = std::env::var("BURN_BERT_ALLOCATOR").unwrap_or_else(|_| "default".into());
    let peers = peers.iter().flat_map(|peer| peer.as_ref()).map(|peer| format!("; {}", peer.versions));
    let threads = rayon::current_num_threads();
    let device = device();
    let peers = peers.collect::<String>();
    format!("Burn 0.22.1 on {device}{peers}; {threads} threads each; {allocator} allocator")
}

/// The default device, with what a GPU calls itself or what the CPU multiplies matrices with.
fn device() -> String {
    let device = burn::prelude::Device::default();
    #[cfg(feature = "_cubecl")]
    if let Some(identity) = device.identity() {
        return format!("{device:?}, {}", identity.name);
    }
    format!(
        "{device:?}, matrix products on {}",
        burn_bert::functional::matrix_kernel(burn_bert::functional::Precision::F32)
    )
}

/// `time | ratio`, the ratio to `own`; dashes for a contestant that does not take part.
pub fn against(own: f64, time: f64) -> String {
    if time.is_nan() { "— | —".into() } else { format!("{time:.2} | {:.1}×", time / own) }
}

/// A program that is asked line by line: `time CASE RUNS` for the milliseconds of each run, `peak CASE` for the most
/// bytes that one run allocates, `loss CASE` for the loss, `latest CASE` for how long requests took. Its first line says which versions it runs.
pub struct Peer {
    versions: String,
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// One of the scripts in `benches/peers`, with the interpreter that `BURN_BERT_PYTHON` names, if it is set. They lie
    /// in the checkout, or in the folder that `BURN_BERT_ROOT` names.
    pub fn python(script: &str) -> Option<Self> {
        let mut command = Command::new(std::env::var_os("BURN_BERT_PYTHON")?);
        let root = std::env::var_os("BURN_BERT_ROOT").map(PathBuf::from);
        let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).into());
        command.arg(root.join("benches/peers").join(script));
        Some(Self::start(command))
    }

    /// The program of `benches/peers/candle` that `BURN_BERT_CANDLE` names, if it is set.
    pub fn candle() -> Option<Self> {
        Some(Self::start(Command::new(std::env::var_os("BURN_BERT_CANDLE")?)))
    }

    fn start(mut command: Command) -> Self {
        let mut process = command
            .arg(rayon::current_num_threads().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let ask = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut peer = Self { versions: String::new(), process, ask, answers };
        peer.versions = peer.answer();
        peer
    }

    pub fn time(&mut self, case: &str, runs: usize) -> Vec<f64> {
        writeln!(self.ask, "time {case} {runs}").expect("the peer listens");
        self.answer().split_whitespace().map(|time| time.parse().expect("milliseconds")).collect()
    }

    pub fn peak(&mut self, case: &str) -> usize {
        writeln!(self.ask, "peak {case}").expect("the peer listens");
        self.answer().parse().expect("bytes")
    }

    /// The 99th percentile of the milliseconds that a request took in the case's last runs.
    pub fn latest(&mut self, case: &str) -> f64 {
        writeln!(self.ask, "latest {case}").expect("the peer listens");
        self.answer().parse().expect("a number")
    }

    /// What the case's loss is, without dropout.
    pub fn loss(&mut self, case: &str) -> f64 {
        writeln!(self.ask, "loss {case}").expect("the peer listens");
        self.answer().parse().expect("a number")
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the peer answers");
        assert!(answer.ends_with('\n'), "the peer stopped; what it wrote stands above");
        answer.trim().into()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
