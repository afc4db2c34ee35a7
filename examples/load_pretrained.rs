//! Shows the embedding layer of a Hugging Face checkpoint: `cargo run --example load_pretrained -- DIRECTORY`.
//!
//! Lists the nearest neighbours of a few words by the cosine of their rows, embeds two sentences, and prints tables,
//! padding row and config. Words are shown if the directory has a `vocab.txt`, else ids.

use anyhow::{Result, anyhow, bail, ensure};
use burn::prelude::*;
use burn_bert::{BertEmbeddings, BertEmbeddingsInput};
use clap::Parser;
use std::path::{Path, PathBuf};

#[derive(Parser)]
#[command(about = "Loads the embedding layer of a BERT or RoBERTa checkpoint and shows what is in it")]
struct Args {
    /// A directory with config.json and weights, or a weights file (safetensors or PyTorch).
    checkpoint: PathBuf,

    /// A sentence to embed, as token ids separated by commas; may be given several times. By default two:
    /// "hello world" and "goodbye world" where the table is as large as BERT's.
    #[arg(long = "sentence", value_name = "IDS")]
    sentences: Vec<String>,

    /// Words (with a vocab.txt) or ids whose neighbours are listed; by default a few of the vocabulary.
    #[arg(long, value_delimiter = ',', value_name = "WORDS")]
    words: Vec<String>,

    /// Neighbours of each word.
    #[arg(long, default_value_t = 5)]
    neighbours: usize,
}

/// Common words, of which those that the vocabulary has are looked at.
const WORDS: [&str; 6] = ["king", "monday", "france", "seven", "running", "green"];

fn main() -> Result<()> {
    run(&Args::parse())
}

fn run(args: &Args) -> Result<()> {
    let device = Device::default();
    let embeddings = BertEmbeddings::from_pretrained(&args.checkpoint, &device)?;
    let vocabulary = Vocabulary::beside(&args.checkpoint)?;
    let rows = embeddings.word_embeddings.num_embeddings();
    let sentences = if args.sentences.is_empty() {
        default_sentences(rows)
    } else {
        args.sentences.iter().map(|sentence| parse_ids(sentence)).collect::<Result<_>>()?
    };
    let words = if args.words.is_empty() {
        vocabulary.defaults(rows)
    } else {
        args.words.iter().map(|word| vocabulary.id(word, rows)).collect::<Result<_>>()?
    };

    neighbours(&embeddings, &words, args.neighbours, &vocabulary);
    for ids in sentences {
        embed(&embeddings, &ids, &vocabulary, &device)?;
    }
    describe(&embeddings);
    Ok(())
}

/// "hello world" and "goodbye world" in BERT's uncased vocabulary, or what a smaller vocabulary has.
fn default_sentences(rows: usize) -> Vec<Vec<i32>> {
    let sentences = [[101, 7592, 2088, 102], [101, 9119, 2088, 102]];
    sentences.map(|ids| ids.map(|id| if rows > 9119 { id } else { id % rows as i32 }).to_vec()).into()
}

fn parse_ids(sentence: &str) -> Result<Vec<i32>> {
    let parse = |id: &str| {
        id.trim().parse().map_err(|_| anyhow!("{id:?} in the sentence {sentence:?} is not a token id"))
    };
    sentence.split(',').map(parse).collect()
}

fn describe(embeddings: &BertEmbeddings) {
    println!("{:#?}\n", embeddings.config());
    let mut tables = vec![("word", &embeddings.word_embeddings)];
    tables.extend(embeddings.position_embeddings.as_ref().map(|table| ("position", table)));
    tables.extend(embeddings.token_type_embeddings.as_ref().map(|table| ("token type", table)));
    println!("{:<12} {:>8} {:>6}  {:<5} {:>10}", "table", "rows", "width", "dtype", "mean norm");
    for (name, table) in tables {
        let weight = table.weight.val();
        let [rows, width] = weight.dims();
        let norm = norms(weight.clone()).mean().into_scalar::<f32>();
        println!("{name:<12} {rows:>8} {width:>6}  {:<5} {norm:>10.4}", weight.dtype().name());
    }
    println!("\n{} parameters", embeddings.num_params());
    match embeddings.word_embeddings.padding_idx() {
        Some(row) => {
            let norm = norms(embeddings.word_embeddings.weight.val().narrow(0, row, 1)).into_scalar::<f32>();
            println!("padding row {row} has norm {norm:.4}\n");
        }
        None => println!("no padding row\n"),
    }
}

fn embed(embeddings: &BertEmbeddings, ids: &[i32], vocabulary: &Vocabulary, device: &Device) -> Result<()> {
    let vectors = embeddings.try_forward(&BertEmbeddingsInput::from_rows(&[ids], device)?)?;
    let words: Vec<String> = ids.iter().map(|&id| vocabulary.word(id as usize)).collect();
    println!("{} -> {:?}", words.join(" "), vectors.dims());
    let shown = 4.min(embeddings.hidden_size());
    let values: Vec<f32> = vectors.narrow(2, 0, shown).into_data().iter().collect();
    for (word, values) in words.iter().zip(values.chunks(shown)) {
        let values: Vec<String> = values.iter().map(|value| format!("{value:>8.4}")).collect();
        println!("  {word:<14} {} …", values.join(" "));
    }
    println!();
    Ok(())
}

/// The rows that point most nearly the way of each id's row.
fn neighbours(embeddings: &BertEmbeddings, ids: &[usize], count: usize, vocabulary: &Vocabulary) {
    let weight = embeddings.word_embeddings.weight.val();
    let unit = weight.clone() / norms(weight).clamp_min(1e-12);
    println!("{:<14} nearest rows by cosine", "word");
    for &id in ids {
        let row = unit.clone().narrow(0, id, 1).transpose(); // [H, 1]
        let cosines: Vec<f32> = unit.clone().matmul(row).into_data().iter().collect(); // [V, 1]
        let mut others: Vec<usize> = (0..cosines.len()).filter(|&other| other != id).collect();
        others.sort_by(|&a, &b| cosines[b].total_cmp(&cosines[a]));
        let nearest: Vec<String> = others
            .iter()
            .take(count)
            .map(|&other| format!("{:<16}", format!("{} {:.3}", vocabulary.word(other), cosines[other])))
            .collect();
        println!("{:<14} {}", vocabulary.word(id), nearest.join(" ").trim_end());
    }
}

/// Length of every row: [V, H] → [V, 1].
fn norms(table: Tensor<2>) -> Tensor<2> {
    table.square().sum_dim(1).sqrt()
}

/// The lines of `vocab.txt`, if there is one.
struct Vocabulary(Vec<String>);

impl Vocabulary {
    fn beside(checkpoint: &Path) -> Result<Self> {
        let directory =
            if checkpoint.is_dir() { checkpoint } else { checkpoint.parent().unwrap_or(Path::new("")) };
        let path = directory.join("vocab.txt");
        if !path.is_file() {
            return Ok(Self(Vec::new()));
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| anyhow!("cannot read {}: {error}", path.display()))?;
        Ok(Self(text.lines().map(str::to_string).collect()))
    }

    fn word(&self, id: usize) -> String {
        self.0.get(id).cloned().unwrap_or_else(|| id.to_string())
    }

    fn id(&self, word: &str, rows: usize) -> Result<usize> {
        let id = match self.0.iter().position(|known| known == word) {
            Some(id) => id,
            None => match word.parse() {
                Ok(id) => id,
                Err(_) => bail!("{word:?} is neither an id nor a word of the directory's vocab.txt"),
            },
        };
        ensure!(id < rows, "id {id} has no row; there are {rows} word embeddings");
        Ok(id)
    }

    /// Words that everyone knows, or else ids spread over the table.
    fn defaults(&self, rows: usize) -> Vec<usize> {
        let known: Vec<usize> = WORDS.iter().filter_map(|word| self.id(word, rows).ok()).collect();
        if known.is_empty() { (1..=4).map(|part| rows * part / 5).collect() } else { known }
    }
}
