//! The encoder's fused operators beside Burn's own operations, with divan.
//!
//!     cargo bench --bench encoder_operators

use burn::nn::DropoutConfig;
use burn::prelude::*;
use burn::tensor::Distribution;
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::module::layer_norm;
use burn_bert::functional::{Norm, Positions, Sequences, add_layer_norm, attention, bias_gelu};
use divan::{AllocProfiler, Bencher};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

#[derive(Clone, Copy, Debug)]
enum Path {
    Fused,
    Composed,
}

const PATHS: [Path; 2] = [Path::Fused, Path::Composed];

/// 8 sequences of 128 tokens of BERT-base.
const BATCH: usize = 8;
const SEQ: usize = 128;
const TOKENS: usize = BATCH * SEQ;
const HIDDEN: usize = 768;
const HEADS: usize = 12;
const DROPOUT: f64 = 0.1;

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Times `op` on rows of `widths`, and vectors of the first width.
fn time<const R: usize, const V: usize>(
    bencher: Bencher,
    is_training: bool,
    width: usize,
    op: impl Fn([Tensor<2>; R], [Tensor<1>; V]) -> Tensor<2>,
) {
    let device = if is_training { Device::default().autodiff() } else { Device::default() };
    let leaf = |leaf: Tensor<2>| if is_training { leaf.require_grad() } else { leaf };
    let rows = [(); R].map(|()| leaf(random([TOKENS, width], &device)));
    let vectors = [(); V].map(|()| random([width], &device));
    let vectors = vectors.map(|vector| if is_training { vector.require_grad() } else { vector });
    bencher.bench_local(|| {
        let y = op(rows.clone(), vectors.clone());
        is_training.then(|| y.backward())
    });
}

fn add_norm(path: Path, [x, residual]: [Tensor<2>; 2], [bias, gamma, beta]: [Tensor<1>; 3]) -> Tensor<2> {
    match path {
        Path::Fused => {
            let norm = Norm { gamma, beta: Some(beta), epsilon: 1e-12 };
            add_layer_norm(x, Some(bias), residual, norm, DROPOUT)
        }
        Path::Composed => {
            let x = DropoutConfig::new(DROPOUT).init().forward(x + bias.unsqueeze());
            layer_norm(residual + x, gamma, Some(beta), 1e-12)
        }
    }
}

fn activation(path: Path, [x]: [Tensor<2>; 1], [bias]: [Tensor<1>; 1]) -> Tensor<2> {
    match path {
        Path::Fused => bias_gelu(x, bias),
        Path::Composed => gelu(x + bias.unsqueeze()),
    }
}

fn attend(path: Path, rows: [Tensor<2>; 3]) -> Tensor<2> {
    match path {
        Path::Fused => {
            let sequences = Sequences::new(vec![SEQ; BATCH], &rows[0].device());
            attention(rows, &sequences, HEADS, Positions::default(), DROPOUT)
        }
        Path::Composed => {
            let split = |rows: Tensor<2>| rows.reshape([BATCH, SEQ, HEADS, HIDDEN / HEADS]).swap_dims(1, 2);
            let [query, key, value] = rows.map(split);
            let scores = query.matmul(key.transpose()).div_scalar(((HIDDEN / HEADS) as f64).sqrt());
            let weights = DropoutConfig::new(DROPOUT).init().forward(softmax(scores, 3));
            weights.matmul(value).swap_dims(1, 2).reshape([TOKENS, HIDDEN])
        }
    }
}

#[divan::bench(args = PATHS, sample_count = 30)]
fn add_layer_norm_forward(bencher: Bencher, path: Path) {
    time(bencher, false, HIDDEN, |rows, vectors| add_norm(path, rows, vectors));
}

#[divan::bench(args = PATHS, sample_count = 15)]
fn add_layer_norm_train(bencher: Bencher, path: Path) {
    time(bencher, true, HIDDEN, |rows, vectors| add_norm(path, rows, vectors));
}

#[divan::bench(args = PATHS, sample_count = 30)]
fn bias_gelu_forward(bencher: Bencher, path: Path) {
    time(bencher, false, 4 * HIDDEN, |rows, vectors| activation(path, rows, vectors));
}

#[divan::bench(args = PATHS, sample_count = 15)]
fn bias_gelu_train(bencher: Bencher, path: Path) {
    time(bencher, true, 4 * HIDDEN, |rows, vectors| activation(path, rows, vectors));
}

#[divan::bench(args = PATHS, sample_count = 30)]
fn attention_forward(bencher: Bencher, path: Path) {
    time(bencher, false, HIDDEN, |rows, []: [Tensor<1>; 0]| attend(path, rows));
}

#[divan::bench(args = PATHS, sample_count = 15)]
fn attention_train(bencher: Bencher, path: Path) {
    time(bencher, true, HIDDEN, |rows, []: [Tensor<1>; 0]| attend(path, rows));
}

/// One sequence of 4,096 tokens, whose tokens attend to all, or to those at most so far away: ModernBERT's layers.
#[divan::bench(args = [None, Some(64)], sample_count = 7)]
fn long_attention_train(bencher: Bencher, window: Option<usize>) {
    let device = Device::default().autodiff();
    let rows = [(); 3].map(|()| random([4096, HIDDEN], &device).require_grad());
    let sequences = Sequences::new(vec![4096], &device);
    let sequences = window.map_or(sequences.clone(), |window| sequences.with_window(window));
    let step = || attention(rows.clone(), &sequences, HEADS, Positions::default(), DROPOUT).backward();
    bencher.bench_local(step);
}
