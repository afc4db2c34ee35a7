//! Sentences to vectors: `cargo run --release --features tokenizers --example embed_sentences -- --checkpoint DIR
//! <lines.txt`.
//!
//! Reads sentences from standard input, one per line, and prints the vector of each as a JSON list; with `--query`,
//! prints the lines most similar to it and their cosines instead. The directory says how token vectors are pooled, as
//! sentence-transformers writes it; if it does not, the vector is their mean.

#[path = "command_line/input.rs"]
mod input;

use anyhow::{Result, ensure};
use burn::prelude::*;
use burn_bert::model::{BertForSentenceEmbedding, EncodeConfig, PretrainedModel};
use burn_bert::text::BertTokenizer;
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;

/// Sentences that are embedded at once.
const BATCH_SIZE: usize = 16;

#[derive(Parser)]
#[command(about = "Embeds the lines of the standard input")]
struct Args {
    /// A directory of sentence-transformers, such as that of all-MiniLM-L6-v2, or of transformers.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,

    /// Prints the lines that are most similar to this sentence.
    #[arg(long, value_name = "SENTENCE")]
    query: Option<String>,

    /// How many of them.
    #[arg(long, default_value_t = 5)]
    top: usize,

    /// Prints each line as a JSON object, with its vector or its cosine.
    #[arg(long)]
    json: bool,
}

/// A model and its tokenizer.
struct Embedder {
    model: BertForSentenceEmbedding,
    tokenizer: BertTokenizer,
}

impl Embedder {
    /// One vector for each sentence.
    fn embed(&self, sentences: &[String]) -> Result<Vec<Vec<f32>>> {
        let vectors = self.model.encode(&self.tokenizer, sentences, &EncodeConfig::new())?; // [B, H]
        let [_, width] = vectors.dims();
        let values: Vec<f32> = vectors.into_data().iter().collect();
        ensure!(
            values.iter().all(|value| value.is_finite()),
            "the vectors are not finite; is the model trained?"
        );
        Ok(values.chunks(width).map(<[f32]>::to_vec).collect())
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(1e-12)
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.top > 0, "--top is 0, but must be at least 1");
    let device = Device::default();
    let (model, _) = BertForSentenceEmbedding::from_pretrained(&args.checkpoint, &device)?;
    let tokenizer = model.limit_tokenizer(BertTokenizer::from_pretrained(&args.checkpoint)?)?;
    let embedder = Embedder { model, tokenizer };
    let query = args.query.as_ref().map(|query| embedder.embed(std::slice::from_ref(query))).transpose()?;

    let mut lines = input::lines();
    let mut found: Vec<(f32, String)> = Vec::new();
    loop {
        let sentences = lines.by_ref().take(BATCH_SIZE).collect::<Result<Vec<_>, _>>()?;
        if sentences.is_empty() {
            break;
        }
        let vectors = embedder.embed(&sentences)?;
        match &query {
            None => {
                for (text, vector) in sentences.iter().zip(vectors) {
                    match args.json {
                        true => input::print(json!({ "text": text, "vector": vector }))?,
                        false => input::print(serde_json::to_string(&vector)?)?,
                    }
                }
            }
            Some(query) => {
                found.extend(vectors.iter().map(|vector| cosine(vector, &query[0])).zip(sentences));
                found.sort_by(|a, b| b.0.total_cmp(&a.0));
                found.truncate(args.top);
            }
        }
    }
    ensure!(query.is_none() || !found.is_empty(), "there is no line to compare with");
    for (cosine, sentence) in found {
        match args.json {
            true => input::print(json!({ "text": sentence, "score": cosine }))?,
            false => input::print(format!("{cosine:.4}\t{sentence}"))?,
        }
    }
    Ok(())
}
