//! Predicts the words in place of `[MASK]`: `cargo run --features tokenizers --example fill_mask -- --checkpoint DIR
//! "The capital of [MASK] is Paris."`.

#[path = "command_line/input.rs"]
mod input;

use anyhow::{Result, ensure};
use burn::prelude::*;
use burn::tensor::activation::softmax;
use burn_bert::model::{BertForMaskedLm, PretrainedModel};
use burn_bert::text::BertTokenizer;
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;

#[derive(Parser)]
#[command(about = "Predicts the masked words of a text")]
struct Args {
    /// A Hugging Face directory with a masked-language-model head and a tokenizer.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,

    /// Words for each mask.
    #[arg(long, default_value_t = 5)]
    top: usize,

    /// Prints a JSON list for each mask.
    #[arg(long)]
    json: bool,

    /// A text with at least one mask token, [MASK] for BERT and <mask> for RoBERTa.
    text: String,
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.top > 0, "--top is 0, but must be at least 1");
    let device = Device::default();
    let (model, report) = BertForMaskedLm::from_pretrained(&args.checkpoint, &device)?;
    eprint!("{report}");
    ensure!(
        report.is_complete(),
        "{} has no trained head for masked words, and a new one gives random words",
        args.checkpoint.display()
    );
    let tokenizer =
        BertTokenizer::from_pretrained(&args.checkpoint)?.for_model(&model.bert.embeddings.config())?;
    let mask = tokenizer.mask_token_id();
    let name = tokenizer.id_to_token(mask).unwrap_or_default();
    let encoding = tokenizer.encode(&args.text)?;
    let ids = encoding.input_ids();
    let places: Vec<i32> = (0..).zip(ids).filter(|&(_, &id)| id == mask).map(|(place, _)| place).collect();
    ensure!(
        !places.is_empty(),
        "there is no {name} in the text, or it lies beyond the {} tokens read",
        ids.len()
    );

    let batch = tokenizer.batch(std::slice::from_ref(&encoding), &device)?;
    let output = model.bert.try_forward(&batch.input, batch.padding.as_ref())?;
    let hidden = output.last_hidden_state.squeeze_dim::<2>(0); // [S, H]
    let places = Tensor::<1, Int>::from_data(places.as_slice(), &device);
    let probabilities = softmax(model.scores(hidden.select(0, places))?, 1); // [N, V]
    let [masks, vocab_size] = probabilities.dims();
    let (best, words) = probabilities.topk_with_indices(args.top.min(vocab_size), 1);
    let best: Vec<f32> = best.into_data().iter().collect();
    ensure!(best.iter().all(|best| best.is_finite()), "the scores are not finite; is the model trained?");
    let words: Vec<u32> = words.into_data().iter().collect();
    let top = best.len() / masks;
    for (i, (best, words)) in best.chunks(top).zip(words.chunks(top)).enumerate() {
        if masks > 1 && !args.json {
            input::print(format!("{name} {}:", i + 1))?;
        }
        let mut found = Vec::new();
        for (probability, &word) in best.iter().zip(words) {
            let mut text = tokenizer.decode(&[word])?;
            if text.is_empty() {
                // A special token, or a row beyond the vocabulary.
                text = tokenizer.id_to_token(word).unwrap_or_else(|| format!("(no token has id {word})"));
            }
            match args.json {
                true => found.push(json!({ "word": text, "score": probability })),
                false => input::print(format!("{:6.2} %  {text}", probability * 100.0))?,
            }
        }
        if args.json {
            input::print(serde_json::Value::from(found))?;
        }
    }
    Ok(())
}
