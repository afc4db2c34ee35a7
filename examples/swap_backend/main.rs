//! Runs one model on every device: forward, backward and an optimizer step, and how much the devices differ.
//! With the default features Flex is the only device, which is then compared with itself.
//!
//! ```sh
//! cargo run --example swap_backend
//! cargo run --features ndarray,wgpu --example swap_backend
//! cargo run --features ndarray,wgpu --example swap_backend -- --batch 2 --seq 32
//! ```
//!
//! The model is built once, on the first device, and saved to a file. Every device that is compiled in loads
//! that file, embeds the same batch, takes the gradient of the same loss and makes one step of gradient
//! descent. Nothing in the model names a backend. A device that does not answer is listed with its reason. With a
//! single device compiled in, a second run of the model is compared with the first. The exit status is 1 if devices
//! disagree, a padding row gets a gradient or, with several devices compiled in, no two of them answer.

#[path = "../command_line/mod.rs"]
mod command_line;
mod devices;
mod trial;

use burn::prelude::*;
use clap::Parser;
use command_line::count;
use devices::Candidate;
use std::error::Error;
use std::process::ExitCode;
use trial::{Outcome, Size, Workload};

/// Run one model on every compiled-in device and compare.
#[derive(Parser)]
struct Args {
    /// How many word embeddings [default: 30522, or 2000 on a software adapter].
    #[arg(long, value_parser = count())]
    vocab_size: Option<usize>,
    /// Length of the vectors [default: 768, or 128 on a software adapter].
    #[arg(long, value_parser = count())]
    hidden_size: Option<usize>,
    /// Sequences in the batch.
    #[arg(long, default_value_t = 8, value_parser = count())]
    batch: usize,
    /// Tokens in a sequence.
    #[arg(long, default_value_t = 128, value_parser = count())]
    seq: usize,
    /// Timed rounds, of which the median is shown; one round before them is not timed.
    #[arg(long, default_value_t = 5, value_parser = count())]
    rounds: usize,
    /// Seed of the parameters.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Args {
    fn size(&self, on_software: bool) -> Size {
        let (vocab, hidden) = if on_software { (2000, 128) } else { (30522, 768) };
        Size {
            vocab: self.vocab_size.unwrap_or(vocab),
            hidden: self.hidden_size.unwrap_or(hidden),
            batch: self.batch,
            seq: self.seq,
        }
    }
}

/// The largest difference that is rounding: ten times what the tests allow on a GPU, for 94 MB tables.
const AGREEMENT: f32 = 1e-3;

fn main() -> ExitCode {
    match compare(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints the table; says whether there was something to compare and all devices that answered agree.
fn compare(args: &Args) -> Result<bool, Box<dyn Error>> {
    let candidates = devices::compiled_in();
    let first = candidates.first().ok_or("no device is compiled in; turn on the feature of one")?;
    println!(
        "{:<22} {:>12} {:>10} {:>10} {:>10} {:>8} {:>9}",
        "device", "table", "output", "gradient", "step", "pad row", "ms"
    );
    let mut references: Vec<(Size, Workload, Outcome)> = Vec::new();
    let mut agree = true;
    let mut answers = 0;
    for candidate in &candidates {
        let device = match candidate.open() {
            Ok(device) => device,
            Err(reason) => {
                println!("{:<22} no answer: {reason}", candidate.name);
                continue;
            }
        };
        let size = args.size(candidate.is_software(&device));
        size.check()?;
        if !references.iter().any(|(known, ..)| *known == size) {
            let device = first.open()?;
            let workload = Workload::build(size, args.seed, &device)?;
            let outcome = reference(first, &workload, &device, args.rounds)?;
            references.push((size, workload, outcome));
        }
        let Some((_, workload, expected)) = references.iter().find(|(known, ..)| *known == size) else {
            continue;
        };
        let found = match devices::caught(|| workload.run(&device, args.rounds)) {
            Ok(outcome) => outcome?,
            Err(reason) => {
                println!("{:<22} no answer: {reason}", candidate.name);
                continue;
            }
        };
        agree &= line(&candidate.name, size, &found, expected);
        answers += 1;
    }
    println!(
        "\ntable: rows × length of the word embeddings; {} × {} tokens, a sixth of them padding.",
        args.batch, args.seq
    );
    println!(
        "output, gradient, step: largest difference to {} (gradient: as a share of the largest).",
        first.name
    );
    println!(
        "pad row: largest gradient in it. ms: forward, backward and step, the median of {}.",
        args.rounds
    );
    let needed = candidates.len().min(2);
    if answers < needed {
        println!("\n{answers} of {} devices answered: there is nothing to compare.", candidates.len());
    } else if needed == 1 {
        println!(
            "\n{} is the only device of this build, so it was compared with itself; --features ndarray,wgpu adds two.",
            first.name
        );
    }
    Ok(agree && answers >= needed)
}

/// The first device's own results, which the others are compared with.
fn reference(
    first: &Candidate,
    workload: &Workload,
    device: &Device,
    rounds: usize,
) -> Result<Outcome, Box<dyn Error>> {
    devices::caught(|| workload.run(device, rounds)).map_err(|reason| format!("{}: {reason}", first.name))?
}

fn line(name: &str, size: Size, found: &Outcome, expected: &Outcome) -> bool {
    let largest = expected.gradient.iter().fold(0.0, |max: f32, value| max.max(value.abs()));
    let output = distance(&found.output, &expected.output);
    let gradient = distance(&found.gradient, &expected.gradient) / largest;
    let step = distance(&found.stepped, &expected.stepped);
    println!(
        "{name:<22} {:>12} {output:>10.1e} {gradient:>10.1e} {step:>10.1e} {:>8} {:>9.1}",
        format!("{}×{}", size.vocab, size.hidden),
        found.pad_gradient,
        found.milliseconds,
    );
    found.pad_gradient == 0.0 && output <= AGREEMENT && gradient <= AGREEMENT && step <= AGREEMENT
}

fn distance(found: &[f32], expected: &[f32]) -> f32 {
    found.iter().zip(expected).fold(0.0, |max, (a, b)| {
        let distance = (a - b).abs();
        // `max` alone would drop a value that is not a number.
        if distance > max || distance.is_nan() { distance } else { max }
    })
}
