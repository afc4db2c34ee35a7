//! A toy masked-language-model training run that shows learned position embeddings updating.
//!
//! Two models see the same batches from the same start. One learns its position embeddings, the other has its
//! position table held at zero. In the synthetic language of `places.rs` a masked letter follows from its
//! position and from nothing else, so only the first can solve the task. With `--text FILE` both train on the
//! words of any UTF-8 text instead.
//!
//! ```sh
//! cargo run --example toy_mlm
//! cargo run --example toy_mlm -- --text some_english.txt
//! cargo run --example toy_mlm -- --steps 200 --save target/run
//! cargo run --example toy_mlm -- --steps 400 --resume target/run
//! BURN_DEVICE=ndarray cargo run --features ndarray --example toy_mlm
//! ```

mod checkpoint;
mod corpus;
mod pictures;
mod places;
mod report;
mod run;
mod task;

use anyhow::{Context, Result};
use burn::prelude::*;
use clap::Parser;
use run::Run;
use std::path::PathBuf;
use std::process::ExitCode;
use task::Task;

/// Train a small BERT by masked language modelling and show what its position embeddings learn.
#[derive(Parser)]
struct Args {
    /// Seed of the data, the initial weights and dropout.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Total number of training steps, those of a resumed run included [default: 400, or 1500 with --text].
    #[arg(long)]
    steps: Option<usize>,
    /// Train on the words of this UTF-8 file instead of the synthetic language.
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Save both models, their optimisers and the losses to this folder at the end.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Continue the run that --save stored in this folder; seed and text must be the same.
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
}

fn main() -> ExitCode {
    match train(&Args::parse()) {
        Ok(learned) if learned => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Trains, reports, and says whether the model learned what it should.
fn train(args: &Args) -> Result<bool> {
    let device = Device::default();
    let task: Box<dyn Task> = match &args.text {
        Some(path) => Box::new(corpus::Corpus::read(path, args.seed)?),
        None => Box::new(places::Places::new(args.seed)),
    };
    let steps = args.steps.unwrap_or(task.default_steps());
    println!("{}", task.description());
    println!("device {:?}, seed {}, {steps} steps\n", device, args.seed);

    let mut run = Run::new(task.as_ref(), args.seed, &device)?;
    if let Some(dir) = &args.resume {
        run.resume(dir).with_context(|| format!("cannot resume from {}", dir.display()))?;
    }
    run.train_until(steps)?;
    if let Some(dir) = &args.save {
        run.save(dir).with_context(|| format!("cannot save to {}", dir.display()))?;
        println!("saved to {}", dir.display());
    }

    let report = report::Report::new(&run)?;
    println!("{report}");
    let folder = PathBuf::from("target").join("toy_mlm");
    pictures::draw(&run, &folder).with_context(|| format!("cannot draw into {}", folder.display()))?;
    println!("pictures in {}", folder.display());
    Ok(report.has_learned())
}
