//! Answers a question from lines: `cargo run --release --features tokenizers --example answer -- --checkpoint DIR
//! --question "Who wrote it?" <lines.txt`.
//!
//! Reads texts from standard input, one per line, and prints for each answer the number of its line, its probability, where
//! it starts and ends in the line (in bytes), and the answer, separated by tabs. With `--no-answer`, for models of
//! SQuAD 2, a line may contain no answer; what is printed is then empty. The directory holds a model for question
//! answering, as transformers saves it. Lines of any length are read, in windows.

#[path = "command_line/input.rs"]
mod input;

use anyhow::{Result, ensure};
use burn::prelude::*;
use burn_bert::model::{AnswersConfig, BertForQuestionAnswering, PretrainedModel};
use burn_bert::text::BertTokenizer;
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;

/// Lines that are read at once.
const BATCH_SIZE: usize = 16;

#[derive(Parser)]
#[command(about = "Answers a question from each line of the standard input")]
struct Args {
    /// A Hugging Face directory of a model for question answering, with its tokenizer.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// The question.
    #[arg(long)]
    question: String,
    /// Answers for each line.
    #[arg(long, default_value_t = 1)]
    top: usize,
    /// Allows that a text contains no answer.
    #[arg(long)]
    no_answer: bool,
    /// How many tokens the windows of a long line share.
    #[arg(long, default_value_t = 128)]
    doc_stride: usize,
    /// Prints a JSON object for each line of the input.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.top > 0, "--top is 0, but must be at least 1");
    let device = Device::default();
    let (model, report) = BertForQuestionAnswering::from_pretrained(&args.checkpoint, &device)?;
    eprint!("{report}");
    ensure!(
        report.is_complete(),
        "{} has no trained head for questions, and a new one gives random answers",
        args.checkpoint.display()
    );
    let tokenizer =
        BertTokenizer::from_pretrained(&args.checkpoint)?.for_model(&model.bert.config().embeddings)?;
    let config = AnswersConfig::new()
        .with_doc_stride(args.doc_stride)
        .with_no_answer_threshold(args.no_answer.then_some(0.0));

    let mut lines = input::lines();
    let mut line = 0;
    loop {
        let texts = lines.by_ref().take(BATCH_SIZE).collect::<Result<Vec<_>>>()?;
        if texts.is_empty() {
            return Ok(());
        }
        let questions: Vec<_> = texts.iter().map(|text| (&args.question, text)).collect();
        for (text, answers) in texts.iter().zip(model.answers(&tokenizer, &questions, &config)?) {
            line += 1;
            let answers = answers.iter().take(args.top);
            if args.json {
                let answers = answers.map(|answer| {
                    json!({ "score": answer.score, "start": answer.start, "end": answer.end, "text": answer.text })
                });
                input::print(json!({ "text": text, "answers": answers.collect::<Vec<_>>() }))?;
                continue;
            }
            for answer in answers {
                let (start, end) = (answer.start, answer.end);
                input::print(format!("{line}\t{:.4}\t{start}\t{end}\t{}", answer.score, answer.text))?;
            }
        }
    }
}
