//! How much memory forward and backward hold at their peak, counted by the allocator.

#[path = "../benches/bert_base/mod.rs"]
mod bert_base;
#[path = "support/counting_allocator/mod.rs"]
mod counting_allocator;

use bert_base::composed;
use burn::prelude::*;
use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput};
use counting_allocator::{Counting, count};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

const HIDDEN: usize = 768;
const FLOAT: usize = size_of::<f32>();

/// Bytes at the peak of forward and backward, beyond what was held before and what must be: the output, the
/// gradient that comes in, and those of the parameters.
fn overhead(forward: impl Fn() -> Tensor<3>, parameters: usize) -> usize {
    let step = || {
        let y = forward();
        let tokens = y.dims()[0] * y.dims()[1];
        (y.backward(), (parameters + 2 * tokens * HIDDEN) * FLOAT)
    };
    drop(step()); // warm caches
    let ((gradients, needed), used) = count(step);
    drop(gradients);
    used.peak - needed
}

/// Bert-base, 8 × 128 tokens, an eighth of them padding, every fourth of the others a frequent word.
#[test]
fn forward_and_backward_hold_less_than_one_more_output() {
    let device = Device::flex().autodiff();
    let config = BertEmbeddingsConfig::new();
    let module = config.init(&device);
    let [batch, seq] = [8, 128];
    let rows: Vec<Vec<i32>> = (0..batch)
        .map(|b| {
            let word = |s: usize| match s {
                112.. => 0,
                s if s % 4 == 0 => 1000 + (s % 16) as i32,
                s => 2000 + ((b * seq + s) * 7919 % 28_000) as i32,
            };
            (0..seq).map(word).collect()
        })
        .collect();
    let input = BertEmbeddingsInput::from_rows(&rows, &device).unwrap();

    let fused = overhead(|| module.forward(&input), config.num_params());
    let composed = overhead(|| composed(&module, &input), config.num_params());
    let tokens = batch * seq;
    let output = tokens * HIDDEN * FLOAT;
    println!("beyond what must be held: fused {fused} B, composed {composed} B; an output is {output} B");
    assert!(fused < output + 64 * tokens, "{fused} B");
    assert!(fused < composed / 4, "{fused} B against {composed} B");
}
