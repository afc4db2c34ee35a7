//! AdamW over all parameters of a BERT whose gradients are there, here and in PyTorch, as one table.
//!
//!     BURN_BERT_PYTHON=python RAYON_NUM_THREADS=2 cargo bench --bench compare_adamw
//!
//! In mixed precision the update is the same: parameters, moments and gradients are f32 there too.
//!
//! Set the variables of `compare_masked_lm` for allocators that do not return freed pages to the OS.

mod race;
mod whole_model;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::Distribution;
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig};
use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm};
use mimalloc::MiMalloc;
use race::{Peer, Race, against, contestants};
use std::cell::RefCell;
use std::time::Instant;
use whole_model::models;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const RACE: Race = Race { rounds: 7, turn: 1000.0, warm_up: 2 };

fn main() {
    let torch = RefCell::new(Peer::python("bench_adamw_torch.py"));
    println!("{}", contestants(&[&torch.borrow()]));
    println!("medians of milliseconds, ratios to burn-bert\n");
    println!(
        "| parameters of | values | burn-bert | Burn | ratio | PyTorch | ratio | PyTorch, fused | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, config) in models() {
        let row = |what: &str, clip: bool| {
            let model = || {
                let model = BertForMaskedLmConfig::new(config.clone()).init(&Device::default().autodiff());
                Some(model)
            };
            let values = model().map_or(0, |model| model.num_params());
            let (mut ours, mut burns) = (model(), model());
            let mut optimizer = adamw(&AdamWConfig::new()).unwrap();
            let mut burn = burn::optim::AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init();
            let ask = |kind: &str, runs| {
                let case = case(kind, &config);
                torch.borrow_mut().as_mut().map_or_else(Vec::new, |torch| torch.time(&case, runs))
            };
            let [own, burn, default, fused] = RACE.run([
                Box::new(|runs| {
                    time(&mut ours, runs, |model, mut gradients| {
                        if clip {
                            clip_by_global_norm(&model, &mut gradients, 1.0).unwrap();
                        }
                        optimizer.step(1e-4, model, gradients)
                    })
                }),
                Box::new(|runs| {
                    let runs = if clip { 0 } else { runs };
                    time(&mut burns, runs, |model, gradients| burn.step(1e-4, model, gradients))
                }),
                Box::new(|runs| ask(if clip { "clipped" } else { "default" }, runs)),
                Box::new(|runs| ask(if clip { "clipped_fused" } else { "fused" }, runs)),
            ]);
            let others = [burn, default, fused].map(|other| against(own, other)).join(" | ");
            println!("| {name}{what} | {values} | {own:.2} | {others} |");
        };
        row("", false);
        row(", clipped", true);
    }
}

fn case(kind: &str, config: &BertModelConfig) -> String {
    let BertModelConfig { num_hidden_layers, num_attention_heads, intermediate_size, .. } = config;
    format!(
        "{kind} {num_hidden_layers} {num_attention_heads} {} {intermediate_size}",
        config.embeddings.hidden_size
    )
}

/// Milliseconds of each update, without those that making its gradients takes.
fn time(
    model: &mut Option<BertForMaskedLm>,
    runs: usize,
    mut step: impl FnMut(BertForMaskedLm, GradientsParams) -> BertForMaskedLm,
) -> Vec<f64> {
    let mut run = |_| {
        let taken = model.take().expect("the model");
        let mut gradients = Gradients(GradientsParams::new());
        taken.visit(&mut gradients);
        let start = Instant::now();
        *model = Some(step(taken, gradients.0));
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..runs).map(&mut run).collect()
}

/// A gradient for every parameter.
struct Gradients(GradientsParams);

impl ModuleVisitor for Gradients {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let device = param.val().device().inner();
        // One row drawn and repeated: drawing all would take longer than everything else.
        let shape = param.dims();
        let columns = shape.last().copied().unwrap_or(1);
        let row = Tensor::<1>::random([columns], Distribution::Normal(0.0, 1e-3), &device);
        let repeats = shape.iter().product::<usize>() / columns.max(1);
        self.0.register(param.id, row.repeat_dim(0, repeats).reshape(shape));
    }
}
