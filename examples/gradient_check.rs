//! Checks every gradient of `BertEmbeddings` against central differences and prints the table.
//!
//! ```sh
//! cargo run --example gradient_check
//! cargo run --example gradient_check -- --vocab-size 30522 --hidden-size 768
//! BURN_DEVICE=ndarray cargo run --features ndarray --example gradient_check
//! ```
//!
//! The batch has padding at the end and inside, two token types and words that occur twice. The padding row is
//! the one row where both numbers differ by design: its gradient through the lookup is exactly 0, though the
//! output depends on it. The exit status is 1 if a gradient is wrong and 2 if nothing could be checked.

use anstyle::{AnsiColor, Style};
use burn::prelude::*;
use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput, PositionEmbeddingType};
use burn_gradcheck::{GradCheck, GradCheckReport};
use clap::Parser;
use std::error::Error;
use std::process::ExitCode;

/// Check every gradient of BertEmbeddings against central differences.
#[derive(Parser)]
struct Args {
    /// Word embeddings.
    #[arg(long, default_value_t = 16)]
    vocab_size: usize,
    /// Length of the vectors.
    #[arg(long, default_value_t = 8)]
    hidden_size: usize,
    /// Parameters of up to so many values are checked entry by entry, larger ones along random directions.
    #[arg(long, default_value_t = 1024)]
    max_entries: usize,
    /// Seed of the parameters and of the random directions.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> ExitCode {
    match check_all(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            anstream::eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints one table for each position scheme; says whether all gradients are right.
fn check_all(args: &Args) -> Result<bool, Box<dyn Error>> {
    use PositionEmbeddingType::{Absolute, AfterPadding, RelativeKey};
    let device = Device::default().autodiff();
    device.seed(args.seed);
    let mut passes = true;
    for scheme in [Absolute, AfterPadding, RelativeKey] {
        let report = check(args, scheme, &device)?;
        passes &= report.passes();
        anstream::println!("{}", painted(&format!("{scheme:?}: {report}")));
    }
    if passes {
        println!("All gradients agree with central differences.");
    }
    Ok(passes)
}

fn check(
    args: &Args,
    scheme: PositionEmbeddingType,
    device: &Device,
) -> Result<GradCheckReport, Box<dyn Error>> {
    let module = BertEmbeddingsConfig::new()
        .with_vocab_size(args.vocab_size)
        .with_hidden_size(args.hidden_size)
        .with_max_position_embeddings(12)
        .with_hidden_dropout_prob(0.0)
        .with_position_embedding_type(scheme)
        .try_init(device)?;
    let input = BertEmbeddingsInput::from_rows(&[[2, 7, 0, 7, 3, 0], [2, 5, 4, 6, 1, 3]], device)?
        .with_token_type_ids(&[[0, 0, 0, 1, 1, 0], [0, 0, 1, 1, 1, 1]])?;
    module.try_forward(&input)?; // a table too small for the batch is an error here, not a panic below

    let check = GradCheck::new().with_seed(args.seed).with_max_entries(args.max_entries);
    let check = check.with_excluded_row("word_embeddings.weight", 0, 0.0);
    let check = match scheme {
        PositionEmbeddingType::AfterPadding => check.with_excluded_row("position_embeddings.weight", 0, 0.0),
        _ => check,
    };
    Ok(check.run(&module, |module, probe| probe.weighted_sum(module.forward(&input)))?)
}

/// The table with its head in bold and its verdicts in green and red. `anstream` takes the colours out again
/// where the output is not a terminal or `NO_COLOR` is set.
fn painted(table: &str) -> String {
    let paint = |style: Style, text: &str| format!("{style}{text}{style:#}");
    let verdicts = [
        ("pass", AnsiColor::Green),
        ("FAIL", AnsiColor::Red),
        ("LOST IN ROUNDING", AnsiColor::Red),
        ("frozen", AnsiColor::Yellow),
        ("not compared", AnsiColor::Yellow),
    ];
    let line = |(number, line): (usize, &str)| {
        if number < 2 {
            return paint(Style::new().bold(), line) + "\n";
        }
        let found = verdicts.iter().find_map(|&(verdict, color)| {
            Some((line.strip_suffix(verdict)?, paint(color.on_default().bold(), verdict)))
        });
        match found {
            Some((start, verdict)) => format!("{start}{verdict}\n"),
            None => format!("{line}\n"),
        }
    };
    table.lines().enumerate().map(line).collect()
}
