//! Classifies lines: `cargo run --release --features tokenizers --example classify -- --checkpoint DIR <lines.txt`.
//!
//! Reads texts from standard input, one per line, and prints for each the most probable label, its probability and the
//! text, separated by tabs. A multi-label model (`problem_type` is `multi_label_classification`) prints every label with a
//! probability of at least one half, a regression prints its numbers. The directory was saved by `fine_tune_classifier` or
//! by transformers.

#[path = "command_line/input.rs"]
mod input;

use anyhow::{Result, ensure};
use burn::prelude::*;
use burn_bert::model::{BertForSequenceClassification, PretrainedModel, ProblemType};
use burn_bert::text::BertTokenizer;
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;

/// Texts that are classified at once.
const BATCH_SIZE: usize = 16;

#[derive(Parser)]
#[command(about = "Classifies the lines of the standard input")]
struct Args {
    /// A Hugging Face directory of a classifier, with its tokenizer.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// Prints a JSON object for each line of the input.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = Device::default();
    let (model, report) = BertForSequenceClassification::from_pretrained(&args.checkpoint, &device)?;
    eprint!("{report}");
    ensure!(
        report.is_complete(),
        "{} has no trained classifier, and a new one gives random labels; train one with fine_tune_classifier",
        args.checkpoint.display()
    );
    let tokenizer =
        BertTokenizer::from_pretrained(&args.checkpoint)?.for_model(&model.bert.config().embeddings)?;

    let mut lines = input::lines();
    loop {
        let texts = lines.by_ref().take(BATCH_SIZE).collect::<Result<Vec<_>, _>>()?;
        if texts.is_empty() {
            return Ok(());
        }
        let found = model.classify(&tokenizer, &tokenizer.encode_batch(&texts)?)?;
        for (mut labels, text) in found.into_iter().zip(&texts) {
            match model.config().problem_type {
                Some(ProblemType::Regression) => {}
                Some(ProblemType::MultiLabelClassification) => labels.retain(|label| label.score >= 0.5),
                Some(ProblemType::SingleLabelClassification) | None => labels.truncate(1),
            }
            if args.json {
                let labels: Vec<_> = labels
                    .iter()
                    .map(|label| json!({ "label": label.label, "score": label.score }))
                    .collect();
                input::print(json!({ "text": text, "labels": labels }))?;
                continue;
            }
            let names: Vec<_> = labels.iter().map(|label| label.label.as_str()).collect();
            let scores: Vec<_> = labels.iter().map(|label| format!("{:.4}", label.score)).collect();
            input::print(format!("{}\t{}\t{text}", names.join(", "), scores.join(", ")))?;
        }
    }
}
