//! Classifies lines: `cargo run --release --features tokenizers --example classify -- --checkpoint DIR <lines.txt`.
//!
//! Reads texts from standard input, one per line, and prints for each the most probable label, its probability and the
//! text, separated by tabs. A multi-label model (`problem_type` is `multi_label_classification`) prints every label with a
//! probability of at least one half, a regression prints its values. The directory was saved by `fine_tune_classifier` or
//! by transformers.

#[path = "command_line/input.rs"]
mod input;

use anyhow::{Result, ensure};
use burn::prelude::*;
use burn_bert::model::{BertForSequenceClassification, PretrainedModel, ProblemType};
use burn_bert::text::{BertTokenizer, TextBatch};
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
    let problem = problem_of(&model);
    let tokenizer =
        BertTokenizer::from_pretrained(&args.checkpoint)?.for_model(&model.bert.config().embeddings)?;

    let mut lines = input::lines();
    loop {
        let texts = lines.by_ref().take(BATCH_SIZE).collect::<Result<Vec<_>, _>>()?;
        if texts.is_empty() {
            return Ok(());
        }
        let TextBatch { input, padding } = tokenizer.batch(&tokenizer.encode_batch(&texts)?, &device)?;
        let logits = model.logits(&input, padding.as_ref())?; // [B, labels]
        let logits: Vec<f64> = logits.into_data().iter().collect();
        for (logits, text) in logits.chunks(model.id2label().len()).zip(&texts) {
            if args.json {
                let labels: Vec<_> = answer(problem, logits)
                    .into_iter()
                    .map(|(class, score)| json!({ "label": model.id2label()[class], "score": score }))
                    .collect();
                input::print(json!({ "text": text, "labels": labels }))?;
                continue;
            }
            let (labels, numbers): (Vec<_>, Vec<_>) = answer(problem, logits)
                .into_iter()
                .map(|(class, number)| (model.id2label()[class].as_str(), format!("{number:.4}")))
                .unzip();
            input::print(format!("{}\t{}\t{text}", labels.join(", "), numbers.join(", ")))?;
        }
    }
}

/// What the config says or, as in transformers, what follows from the number of labels.
fn problem_of(model: &BertForSequenceClassification) -> ProblemType {
    model.config().problem_type.unwrap_or(match model.id2label().len() {
        1 => ProblemType::Regression,
        _ => ProblemType::SingleLabelClassification,
    })
}

/// The classes of one text, each with its probability or, in a regression, its value.
fn answer(problem: ProblemType, logits: &[f64]) -> Vec<(usize, f64)> {
    let classes = logits.iter().copied().enumerate();
    match problem {
        ProblemType::Regression => classes.collect(),
        ProblemType::MultiLabelClassification => {
            let probabilities = classes.map(|(class, logit)| (class, 1.0 / (1.0 + (-logit).exp())));
            probabilities.filter(|&(_, probability)| probability >= 0.5).collect()
        }
        ProblemType::SingleLabelClassification => {
            let best = classes.max_by(|a, b| a.1.total_cmp(&b.1));
            let probability = |best: f64| 1.0 / logits.iter().map(|logit| (logit - best).exp()).sum::<f64>();
            best.map(|(class, logit)| (class, probability(logit))).into_iter().collect()
        }
    }
}
