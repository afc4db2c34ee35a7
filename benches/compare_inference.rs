//! Inference of an encoder on 16 sequences of 128 tokens, here and in what people deploy on CPUs, as a table: PyTorch, ONNX
//! Runtime and OpenVINO. With `-- encoders [PART OF A ROW]`, newer families on short and long sequences, beside PyTorch; with
//! `-- single [PART OF A ROW]`, what a server computes for one request: one text, short or longer, or a few.
//!
//!     BURN_BERT_PYTHON=python RAYON_NUM_THREADS=2 cargo bench --bench compare_inference
//!
//! Python needs the packages `onnx`, `onnxscript`, `onnxruntime` and `openvino` for it. The contestants have the same weights
//! and batches, and what they compute is compared first. They are interleaved, so that they run under the same conditions,
//! each engine in a process of its own. Without `BURN_BERT_PYTHON` their columns are empty, as are those of an engine whose
//! results are NaN, and without instructions for bf16 those of bf16.

mod race;
mod whole_model;

use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::functional::{Precision, matrix_kernel};
use burn_bert::model::{BertModel, PretrainedModel};
use burn_bert::{
    BertEmbeddingsInput, PaddingMask, cast_module, prepare_linear_layers, quantize_linear_layers,
};
use mimalloc::MiMalloc;
use race::{Contestant, Peer, Race, contestants, time};
use serde_json::json;
use std::cell::RefCell;
use std::hint::black_box;
use whole_model::{Exchange, SHAPE, assert_same_loss, attention_mask, full, lengths, padded};
use whole_model::{models_and_modern_bert, newer_encoders, part_after, rate, time_against};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const RACE: Race = Race { rounds: 5, turn: 1500.0, warm_up: 0 };
const ENGINES: [&str; 3] = ["torch", "onnxruntime", "openvino"];

/// Who takes part: the engine, none for burn-bert, and what it holds weights in. burn-bert comes before those that are compared
/// with it.
const CONTESTANTS: [(&str, Option<usize>, &str); 9] = [
    ("burn-bert, f32", None, ""),
    ("PyTorch", Some(0), ""),
    ("ONNX Runtime", Some(1), ""),
    ("OpenVINO", Some(2), ""),
    ("burn-bert, bf16", None, "_bf16"),
    ("PyTorch, bf16", Some(0), "_bf16"),
    ("OpenVINO, bf16", Some(2), "_bf16"),
    ("burn-bert, int8", None, "_int8"),
    ("ONNX Runtime, int8", Some(1), "_int8"),
];

fn main() {
    let (models, shapes, engines, part) = match (part_after("encoders"), part_after("single")) {
        (Some(part), _) => (newer_encoders(), vec![[8, 128], [8, 512], [1, 4096]], 1, part),
        (_, Some(part)) => (models_and_modern_bert(), vec![[1, 16], [1, 128], [4, 32]], ENGINES.len(), part),
        (None, None) => (models_and_modern_bert(), vec![SHAPE], ENGINES.len(), String::new()),
    };
    let peers: Vec<_> = (0..engines).map(|_| RefCell::new(Peer::python("bench_inference.py"))).collect();
    println!("{}", contestants(&[&peers[0].borrow()]));
    println!("medians of milliseconds, ratios to burn-bert in the same precision\n");
    let shown = |engine: Option<usize>| engine.is_none_or(|engine| engine < engines);
    let mut titles = vec!["model", "batch"];
    for (title, engine, _) in CONTESTANTS.into_iter().filter(|contestant| shown(contestant.1)) {
        titles.push(title);
        titles.extend(engine.map(|_| "ratio"));
    }
    println!("| {} |\n|{}", titles.join(" | "), "---|".repeat(titles.len()));
    for (name, config) in models {
        let device = Device::default();
        device.seed(0);
        let model = config.init(&device);
        // Without instructions for bf16 everybody computes in f32, and some take minutes.
        let has_bf16 = !matrix_kernel(Precision::Bf16).starts_with("f32");
        let cast = || cast_module(model.clone(), FloatDType::BF16).expect("floats of Flex");
        let narrow = has_bf16.then(|| prepare_linear_layers(cast()));
        let quantized = quantize_linear_layers(model.clone());
        // As a `Pipeline` holds it.
        let prepared = prepare_linear_layers(model.clone());
        let longest = config.embeddings.max_position_embeddings;
        let batches = shapes.iter().filter(|shape| shape[1] <= longest).flat_map(|&shape| {
            // A single sequence has no padding, and a few texts of a request are alike.
            [(shape, false), (shape, true)].into_iter().take(if shape[0] < 8 { 1 } else { 2 })
        });
        for (shape, is_padded) in batches {
            let [batch, seq] = shape;
            let padding = if is_padded { "half padding" } else { "no padding" };
            let row = format!("{name} | {batch} × {seq}, {padding}");
            if !row.contains(&part) {
                continue;
            }
            let (rows, lengths) =
                if is_padded { (padded(shape), lengths(shape)) } else { (full(shape), vec![seq; batch]) };
            let exchange = Exchange::new(
                |dir| model.save_pretrained(dir).expect("a checkpoint"),
                json!({ "input_ids": rows, "attention_mask": attention_mask(&lengths, seq) }),
            );
            let padding = is_padded.then(|| PaddingMask::from_lengths(&lengths, seq).unwrap());
            let input = BertEmbeddingsInput::from_rows(&rows, &device).expect("rows of one length");
            let hidden = |model: &BertModel| model.forward(&input, padding.as_ref()).last_hidden_state;
            let own = mean_absolute(hidden(&prepared), &lengths);
            // What an engine computes wrongly it does not race.
            let races: Vec<bool> = ENGINES
                .iter()
                .zip(&peers)
                .map(|(engine, peer)| {
                    let mut peer = peer.borrow_mut();
                    let theirs = peer.as_mut().map(|peer| peer.loss(&exchange.case(engine)));
                    theirs.filter(|theirs| !theirs.is_nan()).is_some_and(|theirs| {
                        assert_same_loss(own, theirs);
                        true
                    })
                })
                .collect();
            let infer = |model: &BertModel| {
                black_box(hidden(model));
                device.sync().expect("the device works");
            };
            let run = |engine: Option<usize>, variant: &str, runs| {
                let Some(engine) = engine else {
                    let model = match variant {
                        "" => Some(&prepared),
                        "_bf16" => narrow.as_ref(),
                        _ => Some(&quantized),
                    };
                    return model.map_or_else(Vec::new, |model| time(runs, || infer(model)));
                };
                if races.get(engine) != Some(&true) || variant == "_bf16" && narrow.is_none() {
                    return Vec::new();
                }
                let case = exchange.case(&format!("{}{variant}", ENGINES[engine]));
                peers[engine].borrow_mut().as_mut().map_or_else(Vec::new, |peer| peer.time(&case, runs))
            };
            // What takes milliseconds is done often enough in short turns.
            let race = if shape[0] < 8 { Race { turn: 500.0, ..RACE } } else { RACE };
            let times = race.run(CONTESTANTS.map(|(_, engine, variant)| -> Contestant {
                let run = &run;
                Box::new(move |runs| run(engine, variant, runs))
            }));
            let mut cells = Vec::new();
            let mut own = f64::NAN;
            for ((_, engine, _), time) in CONTESTANTS.into_iter().zip(times).filter(|(of, _)| shown(of.1)) {
                if engine.is_none() {
                    own = time;
                }
                cells.push(if engine.is_none() { rate(own) } else { time_against(own, time) });
            }
            println!("| {row} | {} |", cells.join(" | "));
        }
    }
}

/// The mean of |x| over the first tokens of each sequence.
fn mean_absolute(hidden: Tensor<3>, lengths: &[usize]) -> f64 {
    let [_, seq, width] = hidden.dims();
    let tokens: usize = lengths.iter().sum();
    let values: Vec<f32> = hidden.abs().into_data().try_into_vec().expect("f32");
    let sum: f64 = lengths
        .iter()
        .zip(values.chunks(seq * width))
        .flat_map(|(length, row)| &row[..length * width])
        .map(|&value| f64::from(value))
        .sum();
    sum / (tokens * width) as f64
}
