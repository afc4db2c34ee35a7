//! Classification of 16 sequences of 8 to 128 tokens, about half of whose rectangle is padding: a training step and
//! inference, here and in PyTorch, as two tables.
//!
//!     BURN_BERT_PYTHON=python RAYON_NUM_THREADS=2 cargo bench --bench compare_classification
//!
//! Set the variables of `compare_masked_lm` for allocators that do not return freed pages to the OS. The contestants have the same
//! weights and the same batch, and their losses are compared first. They are interleaved, so that they run under the
//! same conditions. In bf16 are, in training, products (autocast), and in inference the whole model. Without `BURN_BERT_PYTHON` PyTorch's columns are empty.

#[path = "../tests/support/counting_allocator/mod.rs"]
mod counting_allocator;
mod race;
mod whole_model;

use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::cast_module;
use burn_bert::functional::{Precision, autocast, cross_entropy, linear};
use burn_bert::model::{BertModel, PretrainedModel};
use burn_bert::{BertEmbeddingsInput, PaddingMask};
use counting_allocator::{Counting, count};
use mimalloc::MiMalloc;
use race::{Peer, Race, contestants, time};
use serde_json::json;
use std::cell::RefCell;
use std::hint::black_box;
use whole_model::{Exchange, Training, assert_same_loss, models, note, rate, time_against};

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

const BATCH: usize = 16;
const SEQ: usize = 128;
const RACE: Race = Race { rounds: 5, turn: 2000.0, warm_up: 0 };

/// 8, 16, …, 128: 1,088 tokens in all.
fn length(row: usize) -> usize {
    8 * (row + 1)
}

#[derive(Module, Debug)]
struct Classifier {
    bert: BertModel,
    dropout: Dropout,
    head: Linear,
}

impl Classifier {
    fn loss(&self, batch: &Batch) -> Tensor<1> {
        let output = self.bert.forward(&batch.input, Some(&batch.padding));
        let pooled = output.pooler_output.expect("a pooler");
        let bias = self.head.bias.as_ref().map(|bias| bias.val());
        let logits = linear(self.dropout.forward(pooled), self.head.weight.val(), bias);
        cross_entropy(logits, batch.labels.clone())
    }
}

struct Batch {
    input: BertEmbeddingsInput,
    padding: PaddingMask,
    labels: Tensor<1, Int>,
    /// As many tokens in sequences of one length, without padding.
    full: BertEmbeddingsInput,
}

impl Batch {
    fn new(device: &Device) -> Self {
        let lengths: Vec<usize> = (0..BATCH).map(length).collect();
        let labels: Vec<i32> = labels().into_iter().map(|label| label as i32).collect();
        Self {
            input: BertEmbeddingsInput::from_rows(&ids(), device).expect("rows of one length"),
            padding: PaddingMask::from_lengths(&lengths, SEQ),
            labels: Tensor::from_ints(labels.as_slice(), device),
            full: BertEmbeddingsInput::from_rows(&full(), device).expect("rows of one length"),
        }
    }
}

fn id(row: usize, column: usize) -> u32 {
    1000 + (row * SEQ + column) as u32 * 7919 % 29_000
}

fn ids() -> Vec<Vec<u32>> {
    let id = |row, column| if column < length(row) { id(row, column) } else { 0 };
    (0..BATCH).map(|row| (0..SEQ).map(|column| id(row, column)).collect()).collect()
}

fn full() -> Vec<Vec<u32>> {
    (0..BATCH).map(|row| (0..SEQ).map(|column| id(row, column)).collect()).collect()
}

fn labels() -> Vec<usize> {
    (0..BATCH).map(|row| row % 3 % 2).collect()
}

fn main() {
    let torch = RefCell::new(Peer::python("bench_classification_torch.py"));
    let tokens: usize = (0..BATCH).map(length).sum();
    println!("{}", contestants(&[&torch.borrow()]));
    println!(
        "{BATCH} sequences of 8 to {SEQ} tokens, {tokens} of {}; medians of milliseconds\n",
        BATCH * SEQ
    );
    println!(
        "| model | what | burn-bert | PyTorch | ratio | fused AdamW | ratio | burn-bert, bf16 | PyTorch, bf16 | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut notes = Vec::new();
    for (name, config) in models() {
        let device = Device::default().autodiff();
        device.seed(0);
        let bert = config.init(&device);
        let hidden = bert.embeddings.word_embeddings.weight.dims()[1];
        let head = LinearConfig::new(hidden, 2).init(&device);
        let model = Classifier { bert, dropout: DropoutConfig::new(0.1).init(), head };
        let (batch, plain) = (Batch::new(&device), Batch::new(&device.clone().inner()));
        let exchange = exchange(&model);
        let fixed = model.valid();
        if let Some(torch) = &mut *torch.borrow_mut() {
            let own = fixed.loss(&plain).into_scalar::<f64>();
            assert_same_loss(own, torch.loss(&exchange.case("train")));
        }
        let ask = |kind: &str, runs| {
            let mut torch = torch.borrow_mut();
            torch.as_mut().map_or_else(Vec::new, |torch| torch.time(&exchange.case(kind), runs))
        };
        let can_bf16 = Precision::Bf16.check(&device).is_ok();
        let mut rounded = Training::new(model.clone());
        let mut training = Training::new(model);
        let loss = |model: &Classifier| model.loss(&batch);
        let mut step = || training.step(loss);
        let mut step_in_bf16 =
            || rounded.step(|model: &Classifier| autocast(Precision::Bf16, || model.loss(&batch)));
        let [own, default, fused, own_bf16, bf16] = RACE.run([
            Box::new(|runs| time(runs, &mut step)),
            Box::new(|runs| ask("train", runs)),
            Box::new(|runs| ask("fused", runs)),
            Box::new(|runs| if can_bf16 { time(runs, &mut step_in_bf16) } else { Vec::new() }),
            Box::new(|runs| ask("bf16", runs)),
        ]);
        let others = [default, fused].map(|other| time_against(own, other)).join(" | ");
        let in_bf16 = time_against(own_bf16, bf16);
        println!("| {name} | training step | {own:.0} | {others} | {} | {in_bf16} |", rate(own_bf16));
        let ((), peak) = count(&mut step);
        for (what, kind, input, padding) in [
            ("inference", "infer", &plain.input, Some(&plain.padding)),
            ("inference without padding", "full", &plain.full, None),
        ] {
            let infer = |bert: &BertModel| {
                black_box(bert.forward(input, padding));
                device.sync().expect("the device works");
            };
            let narrow = can_bf16.then(|| cast_module(fixed.bert.clone(), FloatDType::BF16).unwrap());
            let [own, default, own_bf16, bf16] = RACE.run([
                Box::new(|runs| time(runs, || infer(&fixed.bert))),
                Box::new(|runs| ask(kind, runs)),
                Box::new(|runs| narrow.as_ref().map_or_else(Vec::new, |narrow| time(runs, || infer(narrow)))),
                Box::new(|runs| ask(&format!("{kind}_bf16"), runs)),
            ]);
            let (other, in_bf16) = (time_against(own, default), time_against(own_bf16, bf16));
            println!("| {name} | {what} | {own:.0} | {other} | — | — | {} | {in_bf16} |", rate(own_bf16));
        }
        let theirs = torch.borrow_mut().as_mut().map(|torch| torch.peak(&exchange.case("train")));
        notes.push(note(name, &training.breakdown(loss), peak.peak, theirs));
    }
    println!("\n{}", notes.join("\n"));
}

fn exchange(model: &Classifier) -> Exchange {
    let values = |data: TensorData| data.iter::<f32>().collect::<Vec<_>>();
    let hidden = model.head.weight.dims()[0];
    let weight = values(model.head.weight.val().transpose().into_data());
    let bias = model.head.bias.as_ref().map(|bias| values(bias.val().into_data()));
    let mask: Vec<Vec<u8>> =
        (0..BATCH).map(|row| (0..SEQ).map(|column| u8::from(column < length(row))).collect()).collect();
    let batch = json!({
        "input_ids": ids(),
        "attention_mask": mask,
        "full": full(),
        "labels": labels(),
        "weight": weight.chunks(hidden).collect::<Vec<_>>(),
        "bias": bias,
    });
    Exchange::new(|dir| model.bert.save_pretrained(dir).expect("a checkpoint"), batch)
}
