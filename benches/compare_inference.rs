//! Inference of an encoder on 16 sequences of 128 tokens, here and in what people deploy on CPUs, as a table: PyTorch, ONNX
//! Runtime and OpenVINO.
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
use burn_bert::{BertEmbeddingsInput, PaddingMask, cast_module, quantize_linear_layers};
use mimalloc::MiMalloc;
use race::{Peer, Race, contestants, time};
use serde_json::json;
use std::cell::RefCell;
use std::hint::black_box;
use whole_model::{
    Exchange, SEQ, assert_same_loss, attention_mask, full, lengths, models_and_modern_bert, padded,
};
use whole_model::{rate, time_against};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const RACE: Race = Race { rounds: 5, turn: 1500.0, warm_up: 0 };
const ENGINES: [&str; 3] = ["torch", "onnxruntime", "openvino"];

fn main() {
    let peers = ENGINES.map(|_| RefCell::new(Peer::python("bench_inference.py")));
    println!("{}", contestants(&[&peers[0].borrow()]));
    println!("medians of milliseconds, ratios to burn-bert in the same precision\n");
    println!(
        "| model | batch | burn-bert, f32 | PyTorch | ratio | ONNX Runtime | ratio | OpenVINO | ratio \
         | burn-bert, bf16 | PyTorch, bf16 | ratio | OpenVINO, bf16 | ratio | burn-bert, int8 | ONNX Runtime, int8 | ratio |"
    );
    println!("|{}", "---|".repeat(17));
    for (name, config) in models_and_modern_bert() {
        let device = Device::default();
        device.seed(0);
        let model = config.init(&device);
        // Without instructions for bf16 everybody computes in f32, and some take minutes.
        let has_bf16 = !matrix_kernel(Precision::Bf16).starts_with("f32");
        let narrow = has_bf16.then(|| cast_module(model.clone(), FloatDType::BF16).expect("floats of Flex"));
        let quantized = quantize_linear_layers(model.clone());
        let exchange = Exchange::new(
            |dir| model.save_pretrained(dir).expect("a checkpoint"),
            json!({ "padded": padded(), "full": full(), "attention_mask": attention_mask() }),
        );
        for (what, batch, rows, padding) in [
            ("no padding", "full", full(), None),
            ("half padding", "padded", padded(), Some(PaddingMask::from_lengths(&lengths(), SEQ))),
        ] {
            let input = BertEmbeddingsInput::from_rows(&rows, &device).expect("rows of one length");
            let hidden = |model: &BertModel| model.forward(&input, padding.as_ref()).last_hidden_state;
            let own = mean_absolute(hidden(&model), padding.as_ref());
            // What an engine computes wrongly it does not race.
            let races: Vec<bool> = ENGINES
                .iter()
                .zip(&peers)
                .map(|(engine, peer)| {
                    let mut peer = peer.borrow_mut();
                    let theirs =
                        peer.as_mut().map(|peer| peer.loss(&exchange.case(&format!("{engine} {batch}"))));
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
            let ask = |engine: usize, variant: &str, runs| {
                if !races[engine] || variant == "_bf16" && narrow.is_none() {
                    return Vec::new();
                }
                let case = exchange.case(&format!("{}{variant} {batch}", ENGINES[engine]));
                peers[engine].borrow_mut().as_mut().map_or_else(Vec::new, |peer| peer.time(&case, runs))
            };
            let [own, torch, onnx, openvino, own_bf16, torch_bf16, openvino_bf16, own_int8, int8] =
                RACE.run([
                    Box::new(|runs| time(runs, || infer(&model))),
                    Box::new(|runs| ask(0, "", runs)),
                    Box::new(|runs| ask(1, "", runs)),
                    Box::new(|runs| ask(2, "", runs)),
                    Box::new(|runs| {
                        narrow.as_ref().map_or_else(Vec::new, |narrow| time(runs, || infer(narrow)))
                    }),
                    Box::new(|runs| ask(0, "_bf16", runs)),
                    Box::new(|runs| ask(2, "_bf16", runs)),
                    Box::new(|runs| time(runs, || infer(&quantized))),
                    Box::new(|runs| ask(1, "_int8", runs)),
                ]);
            let others = [torch, onnx, openvino].map(|other| time_against(own, other)).join(" | ");
            let in_bf16 = [torch_bf16, openvino_bf16].map(|other| time_against(own_bf16, other)).join(" | ");
            println!(
                "| {name} | {what} | {own:.0} | {others} | {} | {in_bf16} | {own_int8:.0} | {} |",
                rate(own_bf16),
                time_against(own_int8, int8)
            );
        }
    }
}

/// The mean of |x| over the tokens that are no padding.
fn mean_absolute(hidden: Tensor<3>, padding: Option<&PaddingMask>) -> f64 {
    let [batch, seq, width] = hidden.dims();
    let lengths = padding.map_or_else(|| vec![seq; batch], |_| lengths());
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
