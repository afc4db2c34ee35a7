//! Runs a model on lines: `cargo run --release --features hub,tokenizers --example predict -- TASK --model MODEL <lines.txt`.
//!
//! Reads texts from standard input, one per line; `--json` prints an object for each. Without it, columns are separated by
//! tabs, positions in a line count bytes, and the task decides what is printed:
//!
//! - `classify`: the most probable label, its probability and the text; of a multi-label model every label whose probability reaches
//!   the model's threshold, by default one half, of a regression its numbers;
//! - `tag`: for each entity the number of its line, its label, its probability, where it starts and ends, and the entity;
//! - `answer --question "Who wrote it?"`: for each answer the number of its line, its probability, where it starts and ends, and
//!   the answer; with `--no-answer`, for models of SQuAD 2, a line may contain none;
//! - `rank --query "How do cats sleep?"`: the score and the text of the most relevant lines, the best first;
//! - `zero-shot --labels food,travel`, with a model of natural language inference: the columns of `classify`, of labels that no
//!   model was trained with;
//! - `fill-mask`: for each `[MASK]` the most probable words, or with `--targets cat,dog` those words;
//! - `embed`: the embedding of each line as a JSON list; with `--query`, the lines that are most similar to it.
//!
//! `MODEL` is a directory that transformers, sentence-transformers or an example of this crate saved, or with the feature `hub`
//! a name such as `owner/name`. `fine_tune`'s names of the tasks serve here too. How many of up to 32 lines were cut, as they are longer
//! than the model reads, is said on the standard error.

#[path = "command_line/input.rs"]
mod input;

use anyhow::{Context, Result, ensure};
use burn::prelude::*;
use burn_bert::model::{
    BertForMaskedLm, BertForQuestionAnswering, BertForSentenceEmbedding, BertForSequenceClassification,
    BertForTokenClassification, Stored,
};
use burn_bert::pipeline::{Aggregation, FilledMask, Pipeline, ScoredLabel, TextOptions};
use clap::Parser;
use log::{LevelFilter, Log, Metadata, Record};
use serde_json::json;
use std::path::PathBuf;

/// Lines that are read before anything is printed.
const PART: usize = 32;

#[derive(Parser)]
#[command(about = "Runs a model on lines from standard input")]
enum Task {
    /// Classify each line
    #[command(visible_alias = "classifier")]
    Classify {
        #[command(flatten)]
        model: Model,
    },
    /// Classify each line by labels of your own
    ZeroShot {
        #[command(flatten)]
        model: Model,
        /// The labels, separated by commas
        #[arg(long, value_delimiter = ',', required = true)]
        labels: Vec<String>,
        /// The hypothesis, with {} in place of the label
        #[arg(long, default_value = "This example is {}.")]
        template: String,
        /// Prints every label with a probability of at least one half
        #[arg(long)]
        multi_label: bool,
    },
    /// Tag the entities of each line
    #[command(visible_alias = "tokens")]
    Tag {
        #[command(flatten)]
        model: Model,
        /// How tokens become entities: by the words of training, or as in transformers' pipeline
        #[arg(long, default_value = "words", value_parser = ["words", "none", "simple", "first", "average", "max"])]
        aggregation: String,
        /// How many tokens the windows of a long line share
        #[arg(long, default_value_t = 0)]
        stride: usize,
    },
    /// Find answers to a question in each line
    #[command(visible_alias = "answers")]
    Answer {
        #[command(flatten)]
        model: Model,
        #[arg(long)]
        question: String,
        /// Answers for each line
        #[arg(long, default_value_t = 1)]
        top_k: usize,
        /// Allows that a line contains no answer
        #[arg(long)]
        no_answer: bool,
        /// How many tokens the windows of a long line share
        #[arg(long, default_value_t = 128)]
        stride: usize,
    },
    /// Rank the lines for a query
    #[command(visible_alias = "reranker")]
    Rank {
        #[command(flatten)]
        model: Model,
        #[arg(long)]
        query: String,
        #[arg(long, default_value_t = 10)]
        top_k: usize,
    },
    /// Predict the masked words of each line
    #[command(visible_alias = "masked-lm")]
    FillMask {
        #[command(flatten)]
        model: Model,
        /// Words for each mask
        #[arg(long, default_value_t = 5)]
        top_k: usize,
        /// The words that are scored
        #[arg(long, value_delimiter = ',')]
        targets: Vec<String>,
    },
    /// Embed each line, or search the lines for a query
    #[command(visible_alias = "sentences")]
    Embed {
        #[command(flatten)]
        model: Model,
        #[arg(long)]
        query: Option<String>,
        /// Lines that are printed for a query
        #[arg(long, default_value_t = 5)]
        top_k: usize,
    },
}

#[derive(clap::Args)]
struct Model {
    /// A Hugging Face directory, or with the feature hub a name such as owner/name, of a model for the task
    #[arg(long = "model", value_name = "MODEL")]
    dir: PathBuf,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl Model {
    fn load<M: Stored>(&self) -> Result<Pipeline<M>> {
        Ok(Pipeline::from_pretrained(&self.dir, &Device::default())?)
    }
}

/// Prints what the crate warns of.
struct Warnings;

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.target().starts_with("burn_bert")
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            eprintln!("{}", record.args());
        }
    }

    fn flush(&self) {}
}

fn main() -> Result<()> {
    log::set_logger(&Warnings).expect("the only logger of this program");
    log::set_max_level(LevelFilter::Warn);
    match Task::parse() {
        Task::Classify { model } => {
            let pipeline = model.load::<BertForSequenceClassification>()?;
            classify(&model, |texts| Ok(pipeline.classify(texts, &TextOptions::new())?))
        }
        Task::ZeroShot { model, labels, template, multi_label } => {
            let pipeline = model.load::<BertForSequenceClassification>()?;
            let options = TextOptions::new().with_hypothesis_template(template).with_multi_label(multi_label);
            classify(&model, |texts| Ok(pipeline.classify_zero_shot(texts, &labels, &options)?))
        }
        Task::Tag { model, aggregation, stride } => {
            let aggregation = match aggregation.as_str() {
                "none" => Aggregation::None,
                "simple" => Aggregation::Simple,
                "average" => Aggregation::Average,
                "max" => Aggregation::Max,
                "first" => Aggregation::First,
                _ => Aggregation::Words,
            };
            tag(&model, &TextOptions::new().with_aggregation(aggregation).with_stride(stride))
        }
        Task::Answer { model, question, top_k, no_answer, stride } => {
            let options = TextOptions::new().with_top_k(top_k).with_stride(stride);
            answer(
                &model,
                &question,
                &if no_answer { options.with_no_answer_threshold(0.0) } else { options },
            )
        }
        Task::Rank { model, query, top_k } => rank(&model, &query, &TextOptions::new().with_top_k(top_k)),
        Task::FillMask { model, top_k, targets } => {
            let options = TextOptions::new().with_top_k(top_k);
            fill_mask(&model, &if targets.is_empty() { options } else { options.with_targets(targets) })
        }
        Task::Embed { model, query: None, .. } => embed(&model),
        Task::Embed { model, query: Some(query), top_k } => search(&model, &query, top_k),
    }
}

/// Some lines at a time, and the number of the first of them.
fn parts(mut predict: impl FnMut(usize, &[String]) -> Result<()>) -> Result<()> {
    let mut lines = input::lines();
    let mut first = 1;
    loop {
        let texts = lines.by_ref().take(PART).collect::<Result<Vec<_>>>()?;
        if texts.is_empty() {
            return Ok(());
        }
        let last = first + texts.len() - 1;
        predict(first, &texts)
            .with_context(|| format!("in lines {first} to {last}, of which text 0 is the first"))?;
        first += texts.len();
    }
}

fn classify(model: &Model, classify: impl Fn(&[String]) -> Result<Vec<Vec<ScoredLabel>>>) -> Result<()> {
    parts(|_, texts| {
        for (mut labels, text) in classify(texts)?.into_iter().zip(texts) {
            labels.retain(|label| label.is_predicted);
            if model.json {
                let labels = labels.iter().map(|label| json!({ "label": label.label, "score": label.score }));
                input::print(json!({ "text": text, "labels": labels.collect::<Vec<_>>() }))?;
                continue;
            }
            let names: Vec<_> = labels.iter().map(|label| input::shown(&label.label)).collect();
            let scores: Vec<_> = labels.iter().map(|label| format!("{:.4}", label.score)).collect();
            input::print(format!("{}\t{}\t{text}", names.join(", "), scores.join(", ")))?;
        }
        Ok(())
    })
}

fn tag(model: &Model, options: &TextOptions) -> Result<()> {
    let pipeline = model.load::<BertForTokenClassification>()?;
    parts(|first, texts| {
        for ((line, text), entities) in (first..).zip(texts).zip(pipeline.entities(texts, options)?) {
            if model.json {
                let entities = entities.iter().map(|entity| {
                    json!({
                        "label": entity.label, "score": entity.score, "start": entity.start, "end": entity.end,
                        "text": entity.text,
                    })
                });
                input::print(json!({ "text": text, "entities": entities.collect::<Vec<_>>() }))?;
                continue;
            }
            for entity in entities {
                let (start, end) = (entity.start, entity.end);
                let place =
                    format!("{line}\t{}\t{:.4}\t{start}\t{end}", input::shown(&entity.label), entity.score);
                input::print(format!("{place}\t{}", entity.text))?;
            }
        }
        Ok(())
    })
}

fn answer(model: &Model, question: &str, options: &TextOptions) -> Result<()> {
    let pipeline = model.load::<BertForQuestionAnswering>()?;
    parts(|first, texts| {
        let questions: Vec<_> = texts.iter().map(|text| (question, text)).collect();
        for ((line, text), answers) in (first..).zip(texts).zip(pipeline.answers(&questions, options)?) {
            if model.json {
                let answers = answers.iter().map(|answer| {
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
        Ok(())
    })
}

fn rank(model: &Model, query: &str, options: &TextOptions) -> Result<()> {
    let pipeline = model.load::<BertForSequenceClassification>()?;
    let texts = input::lines().collect::<Result<Vec<_>>>()?;
    for ranked in pipeline.rank(query, &texts, options)? {
        let (text, score) = (&texts[ranked.index], ranked.score);
        match model.json {
            true => input::print(json!({ "text": text, "score": score, "line": ranked.index + 1 }))?,
            false => input::print(format!("{score:.4}\t{text}"))?,
        }
    }
    Ok(())
}

fn fill_mask(model: &Model, options: &TextOptions) -> Result<()> {
    let pipeline = model.load::<BertForMaskedLm>()?;
    let tokenizer = pipeline.tokenizer();
    let name = tokenizer.id_to_token(tokenizer.mask_token_id()).unwrap_or_default();
    let word = |found: &FilledMask| match found.word.as_str() {
        // A token without characters, or a row beyond the vocabulary.
        "" => tokenizer
            .id_to_token(found.token_id)
            .unwrap_or_else(|| format!("(no token has id {})", found.token_id)),
        word => word.to_string(),
    };
    let shown = |found: &FilledMask| input::shown(&word(found));
    parts(|_, texts| {
        for masks in pipeline.fill_mask(texts, options)? {
            for (i, words) in masks.iter().enumerate() {
                if model.json {
                    let words =
                        words.iter().map(|found| json!({ "word": word(found), "score": found.score }));
                    input::print(words.collect::<serde_json::Value>())?;
                    continue;
                }
                if masks.len() > 1 {
                    input::print(format!("{} {}:", input::shown(&name), i + 1))?;
                }
                for found in words {
                    let note = found.replaced_target.as_ref().map(|target| format!("  (of {target})"));
                    let note = note.unwrap_or_default();
                    input::print(format!("{:6.2} %  {}{note}", found.score * 100.0, shown(found)))?;
                }
            }
        }
        Ok(())
    })
}

fn embed(model: &Model) -> Result<()> {
    let pipeline = model.load::<BertForSentenceEmbedding>()?;
    parts(|_, texts| {
        let embeddings = pipeline.encode(texts, &TextOptions::new())?;
        let [_, width] = embeddings.dims();
        let values: Vec<f32> = embeddings.into_data().iter().collect();
        for (text, vector) in texts.iter().zip(values.chunks(width)) {
            match model.json {
                true => input::print(json!({ "text": text, "vector": vector }))?,
                false => input::print(serde_json::to_string(vector)?)?,
            }
        }
        Ok(())
    })
}

fn search(model: &Model, query: &str, top_k: usize) -> Result<()> {
    let pipeline = model.load::<BertForSentenceEmbedding>()?;
    let texts = input::lines().collect::<Result<Vec<_>>>()?;
    ensure!(!texts.is_empty(), "there is no line to compare with");
    let query = pipeline.encode_query(&[query], &TextOptions::new())?;
    let corpus = pipeline.encode_document(&texts, &TextOptions::new())?;
    for found in &pipeline.search(&query, &corpus, top_k)?[0] {
        let (text, score) = (&texts[found.index], found.score);
        match model.json {
            true => input::print(json!({ "text": text, "score": score }))?,
            false => input::print(format!("{score:.4}\t{text}"))?,
        }
    }
    Ok(())
}
