//! What every benchmark runs: BERT-base's input layer, fused and composed of Burn's own operations,
//! on the device that Burn takes by default: `BURN_DEVICE` names another.

#![allow(dead_code)] // every benchmark takes what it needs

use burn::nn::DropoutConfig;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::tensor::Distribution;
use burn::tensor::module::embedding;
use burn_bert::optim::{AdamWConfig, adamw};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use std::fmt;

/// Batch size and sequence length.
pub const SHAPES: [[usize; 2]; 4] = [[1, 16], [8, 128], [32, 128], [8, 512]];

/// Who computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Path {
    /// This crate's operator and AdamW.
    Fused,
    /// Burn's `embedding`, `+`, `LayerNorm`, `Dropout` and AdamW.
    Composed,
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    Forward,
    /// With dropout and the graph.
    Train,
    /// With a gradient of ones from above, in every parameter.
    Backward,
    /// The same and AdamW over all parameters.
    Step,
}

pub const WORKLOADS: [Workload; 4] = [Workload::Forward, Workload::Train, Workload::Backward, Workload::Step];

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Workload::Forward => "forward, eval",
            Workload::Train => "forward, train",
            Workload::Backward => "forward + backward",
            Workload::Step => "… and AdamW",
        })
    }
}

/// A module, its batch, and an optimizer.
pub struct Bench {
    /// Taken out while a step changes it in place.
    module: Option<BertEmbeddings>,
    optimizer: ModuleOptimizer,
    input: BertEmbeddingsInput,
    workload: Workload,
    path: Path,
    device: Device,
}

impl Bench {
    /// Random weights and ids on the default device. Asserts that both paths agree before anything is timed.
    pub fn new(workload: Workload, path: Path, shape: [usize; 2]) -> Self {
        Self::with_width(768, workload, path, shape)
    }

    /// The same with vectors of another length.
    pub fn with_width(hidden: usize, workload: Workload, path: Path, shape: [usize; 2]) -> Self {
        let device = match workload {
            Workload::Forward => Device::default(),
            _ => Device::default().autodiff(),
        };
        device.seed(0);
        let [batch, seq] = shape;
        let rows: Vec<Vec<i32>> = (0..batch)
            .map(|b| (0..seq).map(|s| 1 + ((b * seq + s) * 7919 % 30_521) as i32).collect())
            .collect();
        let input = BertEmbeddingsInput::from_rows(&rows, &device).expect("rows of one length");
        let module = BertEmbeddingsConfig::new().with_hidden_size(hidden).init(&device);
        verify(&module, &input);
        let optimizer = match path {
            Path::Fused => adamw(&AdamWConfig::new()).unwrap(),
            Path::Composed => {
                burn::optim::AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init()
            }
        };
        Self { module: Some(module), optimizer, input, workload, path, device }
    }

    /// One run of the workload, to its end.
    pub fn run(&mut self) {
        let module = self.module.take().expect("the layer");
        let y = match self.path {
            Path::Fused => module.forward(&self.input),
            Path::Composed => composed(&module, &self.input),
        };
        match self.workload {
            Workload::Forward | Workload::Train => self.wait(y),
            Workload::Backward => self.wait(y.backward()),
            Workload::Step => {
                let gradients = GradientsParams::from_grads(y.backward(), &module);
                self.module = Some(self.optimizer.step(1e-4, module, gradients));
                return self.wait(());
            }
        }
        self.module = Some(module);
    }

    /// Keeps a result until the device has it.
    fn wait<T>(&self, result: T) {
        self.device.sync().expect("the device works");
        drop(result);
    }
}

/// The layer as one writes it with Burn.
pub fn composed(module: &BertEmbeddings, input: &BertEmbeddingsInput) -> Tensor<3> {
    let ids = input.input_ids().expect("a batch of ids");
    let [_, seq] = ids.dims();
    let positions = module.position_embeddings.as_ref().expect("absolute positions").weight.val();
    let types = module.token_type_embeddings.as_ref().unwrap().weight.val();
    let sum = embedding(module.word_embeddings.weight.val(), ids)
        + types.narrow(0, 0, 1).unsqueeze()
        + positions.narrow(0, 0, seq).unsqueeze();
    let dropout = DropoutConfig::new(module.config().hidden_dropout_prob).init();
    dropout.forward(module.layer_norm.as_ref().unwrap().forward(sum))
}

/// Outputs without dropout, and the word table's gradient.
fn verify(module: &BertEmbeddings, input: &BertEmbeddingsInput) {
    let mut module = module.clone();
    module.set_dropout(0.0).unwrap();
    let [fused, composed] = [module.forward(input), composed(&module, input)];
    let close = |a: Tensor<1>, b: Tensor<1>| {
        let largest = b.clone().abs().max().into_scalar::<f64>();
        let apart = (a - b).abs().max().into_scalar::<f64>();
        assert!(
            apart <= 1e-5 * largest,
            "the two paths are {apart:e} apart; the largest value is {largest:e}"
        );
    };
    close(fused.clone().inner().flatten(0, 2), composed.clone().inner().flatten(0, 2));
    if fused.is_autodiff() {
        let weights = Tensor::random_like(&fused, Distribution::Normal(0.0, 1.0));
        let [fused, composed] = [fused, composed].map(|y| {
            let gradients = (y * weights.clone()).sum().backward();
            module.word_embeddings.weight.val().grad(&gradients).expect("trained").flatten(0, 1)
        });
        close(fused, composed);
    }
}
