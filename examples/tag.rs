//! Finds entities in lines: `cargo run --release --features tokenizers --example tag -- --checkpoint DIR <lines.txt`.
//!
//! Reads texts from standard input, one per line, and prints a line for each entity: the number of its line, its label,
//! its probability, where it starts and ends in the line (in bytes), and the entity, separated by tabs. The directory
//! holds a token classifier, as transformers saves it. Lines of any length are read, in windows.

#[path = "command_line/input.rs"]
mod input;

use anyhow::{Result, ensure};
use burn::prelude::*;
use burn_bert::model::{Aggregation, BertForTokenClassification, EntitiesConfig, PretrainedModel};
use burn_bert::text::BertTokenizer;
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;

/// Lines that are read at once.
const BATCH_SIZE: usize = 16;

#[derive(Parser)]
#[command(about = "Finds the entities in the lines of the standard input")]
struct Args {
    /// A Hugging Face directory of a token classifier, with its tokenizer.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// How tokens become entities, as in transformers' pipeline.
    #[arg(long, default_value = "first", value_parser = ["none", "simple", "first", "average", "max"])]
    aggregation: String,
    /// How many tokens the windows of a long line share.
    #[arg(long, default_value_t = 0)]
    stride: usize,
    /// Prints a JSON object for each line of the input.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = Device::default();
    let (model, report) = BertForTokenClassification::from_pretrained(&args.checkpoint, &device)?;
    eprint!("{report}");
    ensure!(
        report.is_complete(),
        "{} has no trained classifier, and a new one gives random labels",
        args.checkpoint.display()
    );
    let tokenizer =
        BertTokenizer::from_pretrained(&args.checkpoint)?.for_model(&model.bert.config().embeddings)?;
    let aggregation = match args.aggregation.as_str() {
        "none" => Aggregation::None,
        "simple" => Aggregation::Simple,
        "average" => Aggregation::Average,
        "max" => Aggregation::Max,
        _ => Aggregation::First,
    };
    let config = EntitiesConfig::new().with_aggregation(aggregation).with_stride(args.stride);

    let mut lines = (1..).zip(input::lines());
    loop {
        let texts = lines.by_ref().take(BATCH_SIZE).map(|(line, text)| text.map(|text| (line, text)));
        let (numbers, texts): (Vec<u64>, Vec<String>) =
            texts.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        if texts.is_empty() {
            return Ok(());
        }
        let found = model.entities(&tokenizer, &texts, &config)?;
        for ((line, text), entities) in numbers.iter().zip(&texts).zip(found) {
            if args.json {
                let entities: Vec<_> = entities
                    .iter()
                    .map(|entity| {
                        json!({
                            "label": entity.label, "score": entity.score, "start": entity.start, "end": entity.end,
                            "text": entity.text,
                        })
                    })
                    .collect();
                input::print(json!({ "text": text, "entities": entities }))?;
                continue;
            }
            for entity in entities {
                let (start, end) = (entity.start, entity.end);
                let place = format!("{line}\t{}\t{:.4}\t{start}\t{end}", entity.label, entity.score);
                input::print(format!("{place}\t{}", entity.text))?;
            }
        }
    }
}
