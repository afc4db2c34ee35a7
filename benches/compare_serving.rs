//! Requests of a server, as a table: single sentences, texts in and vectors out, asked for by one caller or by several at once,
//! here, in sentence-transformers, and in ONNX Runtime with the `tokenizers` library. No HTTP is between them: it would be the same
//! for all.
//!
//!     BURN_BERT_PYTHON=python RAYON_NUM_THREADS=2 cargo bench --features train --bench compare_serving
//!
//! The contestants have the same weights, tokenizer and texts, the shipped reviews, and what they answer is compared first.

mod race;
mod whole_model;

use burn::prelude::*;
use burn_bert::model::BertForSentenceEmbeddingConfig;
use burn_bert::pipeline::{Pipeline, TextOptions};
use burn_bert::quantize_linear_layers;
use mimalloc::MiMalloc;
use race::{Contestant, Peer, Race, contestants, percentile, time};
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use whole_model::{Exchange, assert_same_loss, models, rate_against};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

type Encoder = Pipeline<burn_bert::model::BertForSentenceEmbedding>;

const RACE: Race = Race { rounds: 5, turn: 1500.0, warm_up: 0 };

/// Who takes part: the engine of the peer, if it is one, and what it holds weights in.
const CONTESTANTS: [(&str, Option<&str>, &str); 7] = [
    ("burn-bert, f32", None, ""),
    ("sentence-transformers, ONNX", Some("sentences"), ""),
    ("ONNX Runtime", Some("requests"), ""),
    ("ONNX Runtime, a thread a request", Some("requests1"), ""),
    ("burn-bert, int8", None, "_int8"),
    ("ONNX Runtime, int8", Some("requests"), "_int8"),
    ("ONNX Runtime, int8, a thread a request", Some("requests1"), "_int8"),
];

fn main() {
    let peer = RefCell::new(Peer::python("bench_inference.py"));
    println!("{}", contestants(&[&peer.borrow()]));
    println!(
        "requests per second, ratios to burn-bert's in the same precision; in brackets the 99th percentile in ms\n"
    );
    let titles = CONTESTANTS.map(|(title, peer, _)| title.to_string() + peer.map_or("", |_| " | ratio"));
    println!("| model | callers | {} |\n|---|---|{}", titles.join(" | "), "---|".repeat(12));
    let texts = texts();
    for (name, config) in models() {
        let device = Device::default();
        device.seed(0);
        let exchange = Exchange::new(
            |dir| {
                std::fs::write(dir.join("vocab.txt"), vocabulary(&texts)).expect("room on the disk");
                std::fs::write(dir.join("tokenizer_config.json"), r#"{"tokenizer_class": "BertTokenizer"}"#)
                    .expect("room on the disk");
                let model = BertForSentenceEmbeddingConfig::new(config).init(&device);
                let tokenizer = burn_bert::text::BertTokenizer::from_pretrained(dir).expect("a vocabulary");
                Pipeline::new(model, tokenizer).unwrap().save_pretrained(dir).expect("a checkpoint");
            },
            json!({ "texts": texts }),
        );
        let dir = exchange.case("");
        let plain = Encoder::from_pretrained(dir.trim(), &device).expect("what was saved");
        let (model, tokenizer) = Encoder::from_pretrained(dir.trim(), &device).unwrap().into_parts();
        let quantized = Pipeline::new(quantize_linear_layers(model), tokenizer).unwrap();
        let own: f64 = texts.iter().map(|text| answer(&plain, text)).sum::<f64>() / texts.len() as f64;
        if let Some(peer) = peer.borrow_mut().as_mut() {
            assert_same_loss(own, peer.loss(&exchange.case("requests@1")));
        }
        for callers in [1, 2, 8] {
            let late = RefCell::new(vec![f64::NAN; CONTESTANTS.len()]);
            let run = |index: usize, runs: usize| {
                let (_, engine, variant) = CONTESTANTS[index];
                let (times, latest) = match engine {
                    None => {
                        let pipeline = if variant.is_empty() { &plain } else { &quantized };
                        let waits = Mutex::new(Vec::new());
                        let times = time(runs, || ask(callers, &texts, pipeline, &waits));
                        (times, percentile(waits.into_inner().unwrap(), 0.99))
                    }
                    Some(engine) => {
                        let case = exchange.case(&format!("{engine}{variant}@{callers}"));
                        let mut peer = peer.borrow_mut();
                        let Some(peer) = peer.as_mut() else { return Vec::new() };
                        (peer.time(&case, runs), peer.latest(&case))
                    }
                };
                late.borrow_mut()[index] = latest;
                times
            };
            let times = RACE.run(std::array::from_fn::<_, { CONTESTANTS.len() }, _>(|index| -> Contestant {
                let run = &run;
                Box::new(move |runs| run(index, runs))
            }));
            let rates = times.map(|time| texts.len() as f64 / time * 1e3);
            let late = late.borrow();
            let mut own = f64::NAN;
            let cells = CONTESTANTS.iter().zip(rates).zip(&*late).map(|(((_, engine, _), rate), late)| {
                if engine.is_none() {
                    own = rate;
                    return format!("{rate:.0} ({late:.1})");
                }
                rate_against(own, rate).replacen(" |", &format!(" ({late:.1}) |"), 1)
            });
            let cells: Vec<_> = cells.collect();
            println!("| {name} | {callers} | {} |", cells.join(" | "));
        }
    }
}

/// The mean of |x| over the vector of a text.
fn answer(pipeline: &Encoder, text: &str) -> f64 {
    let vector = pipeline.encode(&[text], &TextOptions::new()).expect("a text").abs().into_data();
    let vector: Vec<f32> = vector.try_into_vec().expect("f32");
    vector.iter().map(|&x| f64::from(x)).sum::<f64>() / vector.len() as f64
}

/// So many callers ask for the vectors of all texts, one text a request, and note how many milliseconds each took.
fn ask(callers: usize, texts: &[String], pipeline: &Encoder, waits: &Mutex<Vec<f64>>) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                let mut own = Vec::new();
                while let Some(text) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    answer(pipeline, text);
                    own.push(start.elapsed().as_secs_f64() * 1e3);
                }
                waits.lock().unwrap().extend(own);
            });
        }
    });
}

/// The shipped reviews.
fn texts() -> Vec<String> {
    let lines = include_str!("../examples/data/reviews.csv").lines().skip(1);
    lines.filter_map(|line| line.rsplit_once(',')).map(|(text, _)| text.trim_matches('"').into()).collect()
}

/// A vocabulary in which each of their words is a token.
fn vocabulary(texts: &[String]) -> String {
    let words = texts.iter().flat_map(|text| {
        text.split(|character: char| !character.is_alphanumeric()).map(str::to_lowercase).collect::<Vec<_>>()
    });
    let words: BTreeSet<String> = words.filter(|word| !word.is_empty()).collect();
    let special =
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "'", "-", "!", "?"].map(String::from);
    special.into_iter().chain(words).collect::<Vec<_>>().join("\n")
}
