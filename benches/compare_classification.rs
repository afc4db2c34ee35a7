//! A training step of a classifier on 16 sequences of 7 to 128 tokens, about half of whose rectangle is padding, here and
//! in PyTorch, as a table.
//!
//!     BURN_BERT_PYTHON=python RAYON_NUM_THREADS=2 cargo bench --bench compare_classification
//!
//! Set the variables of `compare_masked_lm` for allocators that do not return freed pages to the OS. The contestants have the same
//! weights and the same batch, and their losses are compared first. They are interleaved, so that they run under the
//! same conditions. Matmuls are in bf16 by autocast. Without `BURN_BERT_PYTHON` PyTorch's columns are empty.

#[path = "../tests/support/counting_allocator/mod.rs"]
mod counting_allocator;
mod race;
mod whole_model;

use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn_bert::functional::{Precision, autocast, cross_entropy, linear};
use burn_bert::model::{BertModel, PretrainedModel};
use burn_bert::{BertEmbeddingsInput, PaddingMask};
use counting_allocator::{Counting, count};
use mimalloc::MiMalloc;
use race::{Peer, Race, contestants, time};
use serde_json::json;
use std::cell::RefCell;
use whole_model::{Exchange, SHAPE, Training, assert_same_loss, models, note, rate, time_against};
use whole_model::{attention_mask, lengths, padded};

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

const RACE: Race = Race { rounds: 5, turn: 2000.0, warm_up: 0 };

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
}

impl Batch {
    fn new(device: &Device) -> Self {
        let labels: Vec<i32> = labels().into_iter().map(|label| label as i32).collect();
        Self {
            input: BertEmbeddingsInput::from_rows(&padded(SHAPE), device).expect("rows of one length"),
            padding: PaddingMask::from_lengths(&lengths(SHAPE), SHAPE[1]).unwrap(),
            labels: Tensor::from_ints(labels.as_slice(), device),
        }
    }
}

fn labels() -> Vec<usize> {
    (0..SHAPE[0]).map(|row| row % 3 % 2).collect()
}

fn main() {
    let torch = RefCell::new(Peer::python("bench_classification_torch.py"));
    let [batch, seq] = SHAPE;
    let tokens: usize = lengths(SHAPE).iter().sum();
    println!("{}", contestants(&[&torch.borrow()]));
    println!(
        "{batch} sequences of {} to {seq} tokens, {tokens} of {}; medians of milliseconds\n",
        seq / batch,
        batch * seq
    );
    println!(
        "| model | burn-bert | PyTorch | ratio | fused AdamW | ratio | burn-bert, bf16 | PyTorch, bf16 | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
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
        if let Some(torch) = &mut *torch.borrow_mut() {
            let own = model.valid().loss(&plain).into_scalar::<f64>();
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
        println!("| {name} | {own:.0} | {others} | {} | {in_bf16} |", rate(own_bf16));
        let ((), peak) = count(&mut step);
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
    let batch = json!({
        "input_ids": padded(SHAPE),
        "attention_mask": attention_mask(&lengths(SHAPE), SHAPE[1]),
        "labels": labels(),
        "weight": weight.chunks(hidden).collect::<Vec<_>>(),
        "bias": bias,
    });
    Exchange::new(|dir| model.bert.save_pretrained(dir).expect("a checkpoint"), batch)
}
