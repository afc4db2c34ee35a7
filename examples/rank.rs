//! Ranks lines by their relevance for a query: `cargo run --release --features tokenizers --example rank -- --checkpoint
//! DIR --query "How do cats sleep?" <lines.txt`.
//!
//! Reads texts from standard input, one per line, and prints the score and the text of the most relevant ones, the best
//! first, separated by a tab. The directory holds a cross-encoder, such as that of ms-marco-MiniLM-L6-v2, as
//! sentence-transformers or transformers saves it.

#[path = "command_line/input.rs"]
mod input;

use anyhow::{Result, ensure};
use burn::prelude::*;
use burn_bert::model::{BertForSequenceClassification, PretrainedModel};
use burn_bert::text::BertTokenizer;
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;

#[derive(Parser)]
#[command(about = "Ranks the lines of the standard input")]
struct Args {
    /// A directory of a cross-encoder, with its tokenizer.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// What the lines are compared with.
    #[arg(long)]
    query: String,
    /// How many lines are printed.
    #[arg(long, default_value_t = 10)]
    top: usize,
    /// Prints each line as a JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.top > 0, "--top is 0, but must be at least 1");
    let device = Device::default();
    let (model, report) = BertForSequenceClassification::from_pretrained(&args.checkpoint, &device)?;
    eprint!("{report}");
    ensure!(
        report.is_complete(),
        "{} has no trained classifier, and a new one gives random scores",
        args.checkpoint.display()
    );
    let tokenizer =
        BertTokenizer::from_pretrained(&args.checkpoint)?.for_model(&model.bert.config().embeddings)?;
    let texts = input::lines().collect::<Result<Vec<_>>>()?;
    for ranked in model.rank(&tokenizer, &args.query, &texts)?.iter().take(args.top) {
        let (text, score) = (&texts[ranked.index], ranked.score);
        match args.json {
            true => input::print(json!({ "text": text, "score": score, "line": ranked.index + 1 }))?,
            false => input::print(format!("{score:.4}\t{text}"))?,
        }
    }
    Ok(())
}
