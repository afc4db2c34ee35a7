//! Classifies lines: `cargo run --release --features tokenizers --example classify -- --checkpoint DIR <lines.txt`.
//!
//! Reads texts from standard input, one per line, and prints for each the most probable label, its probability and the
//! text, separated by tabs. The directory was saved by `fine_tune_classifier` or by transformers.

use anyhow::Result;
use burn::prelude::*;
use burn::tensor::activation::softmax;
use burn_bert::model::{BertForSequenceClassification, PretrainedModel};
use burn_bert::text::{BertTokenizer, TextBatch};
use clap::Parser;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;

/// Texts that are classified at once.
const BATCH_SIZE: usize = 16;

#[derive(Parser)]
#[command(about = "Classifies the lines of the standard input")]
struct Args {
    /// A Hugging Face directory of a classifier, with its tokenizer.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = Device::default();
    let (model, report) = BertForSequenceClassification::from_pretrained(&args.checkpoint, &device)?;
    eprint!("{report}");
    let tokenizer =
        BertTokenizer::from_pretrained(&args.checkpoint)?.for_model(&model.bert.config().embeddings)?;

    let mut lines = stdin().lock().lines();
    loop {
        let texts = lines.by_ref().take(BATCH_SIZE).collect::<Result<Vec<_>, _>>()?;
        if texts.is_empty() {
            return Ok(());
        }
        let TextBatch { input, padding } = tokenizer.batch(&tokenizer.encode_batch(&texts)?, &device)?;
        let probabilities = softmax(model.try_logits(&input, padding.as_ref())?, 1);
        let (best, classes) = probabilities.max_dim_with_indices(1);
        let best = best.into_data().iter::<f64>().zip(classes.into_data().iter::<i64>()).collect::<Vec<_>>();
        let mut output = stdout().lock();
        for ((probability, class), text) in best.into_iter().zip(&texts) {
            writeln!(output, "{}\t{probability:.4}\t{text}", model.id2label()[class as usize])?;
        }
    }
}
