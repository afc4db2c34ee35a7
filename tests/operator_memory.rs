//! How much memory operators and AdamW hold at their peak, counted by the allocator.

#[path = "../benches/bert_base/mod.rs"]
mod bert_base;
#[path = "support/counting_allocator/mod.rs"]
mod counting_allocator;

use bert_base::composed;
use burn::module::Param;
use burn::nn::LinearConfig;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn_bert::encoder::BertEncoderConfig;
use burn_bert::functional::{
    Norm, Sequences, add_layer_norm, attention, bias_gelu, cross_entropy, on_reference_path,
};
use burn_bert::optim::{AdamWConfig, ClippedAdamW};
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

/// One test, because what other threads allocate would count too.
#[test]
fn nothing_holds_more_than_it_must() {
    embedding_holds_less_than_one_more_output();
    cross_entropy_holds_one_matrix_beside_the_scores();
    encoder_operators_hold_less_than_their_references();
    adamw_changes_parameters_and_moments_in_place();
    layers_that_are_computed_again_keep_their_inputs_alone();
}

/// Bert-base, 8 × 128 tokens, an eighth of them padding, every fourth of the others a frequent word.
fn embedding_holds_less_than_one_more_output() {
    let device = Device::flex().autodiff();
    let mut module = BertEmbeddingsConfig::new().with_vocab_size(1).init(&device);
    // To draw the values would take longer than all else.
    module.word_embeddings.weight = Param::from_tensor(Tensor::zeros([30_522, 768], &device));
    let config = module.config();
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

/// The scores are a product, as in a model, and nothing but the operator holds them.
fn cross_entropy_holds_one_matrix_beside_the_scores() {
    let (rows, classes) = (64, 30_522);
    let device = Device::flex().autodiff();
    let hidden = Tensor::<2>::ones([rows, 8], &device).require_grad();
    let table = Tensor::<2>::ones([8, classes], &device);
    let labels = Tensor::from_ints([7; 64], &device);
    let scores = rows * classes * FLOAT;
    let peak = |loss: &dyn Fn(Tensor<2>) -> Tensor<1>| {
        let step = || loss(hidden.clone().matmul(table.clone())).backward();
        drop(step()); // warm caches
        let (gradients, used) = count(step);
        drop(gradients);
        used.peak
    };
    let fused = peak(&|scores| cross_entropy(scores, labels.clone()));
    let burns = peak(&|scores| CrossEntropyLossConfig::new().init(&device).forward(scores, labels.clone()));
    println!("cross-entropy: {fused} B, Burn's {burns} B; the scores are {scores} B");
    let products = 3 * 8 * classes * FLOAT; // what the backward of the product copies
    assert!(fused < 2 * scores + products + 64 * 1024, "{fused} B for {scores} B of scores");
    assert!(burns + 64 * 1024 > fused + scores, "{burns} B: Burn's holds one more");
}

/// A kernel that is passed over for its reference gives the same values, and holds what the reference holds: more
/// by about one [N, H] at least.
fn encoder_operators_hold_less_than_their_references() {
    let device = Device::flex().autodiff();
    let [sequences, length, hidden] = [8, 256, 64];
    let rows = Tensor::<2>::ones([sequences * length, hidden], &device).require_grad();
    let vector = Tensor::<1>::ones([hidden], &device).require_grad();
    let norm = || Norm { gamma: vector.clone(), beta: Some(vector.clone()), epsilon: 1e-12 };
    let operators: [(&str, &dyn Fn() -> Tensor<2>); 3] = [
        ("attention", &|| {
            let all = [rows.clone(), rows.clone(), rows.clone()];
            attention(all, &Sequences::new(vec![length; 8], &device), 4, None, 0.0)
        }),
        ("bias_gelu", &|| bias_gelu(rows.clone(), vector.clone())),
        ("add_layer_norm", &|| add_layer_norm(rows.clone(), Some(vector.clone()), rows.clone(), norm(), 0.0)),
    ];
    for (name, forward) in operators {
        let step = || forward().backward();
        let peak = || {
            drop(step()); // warm caches
            let (gradients, used) = count(step);
            drop(gradients);
            used.peak
        };
        let [fused, reference] = [peak(), on_reference_path(peak)];
        println!("{name}: {fused} B, its reference {reference} B");
        let one = sequences * length * hidden * FLOAT;
        assert!(fused + one / 2 < reference, "{name}: {fused} B, its reference {reference} B");
    }
}

fn adamw_changes_parameters_and_moments_in_place() {
    let device = Device::flex().autodiff();
    let mut module = Some(LinearConfig::new(1024, 1024).init(&device));
    let mut optimizer = ClippedAdamW::new(&AdamWConfig::new(), 1.0);
    let mut step = || {
        let taken = module.take().unwrap();
        let mut gradients = GradientsParams::new();
        let inner = device.clone().inner();
        gradients.register(taken.weight.id, Tensor::<2>::ones([1024, 1024], &inner));
        gradients.register(taken.bias.as_ref().unwrap().id, Tensor::<1>::ones([1024], &inner));
        let (stepped, used) = count(|| optimizer.step(1e-3, taken, gradients).0);
        module = Some(stepped);
        used
    };
    let first = step();
    assert!(first.peak > 2 * 1024 * 1024 * FLOAT, "{first:?}: the moments are made");
    let second = step();
    assert!(second.largest < 64 * 1024, "{second:?}: of a parameter of 4 MB");
}

/// What a layer keeps for its backward is about sixteen times its input, in BERT's proportions.
fn layers_that_are_computed_again_keep_their_inputs_alone() {
    let [layers, hidden, batch, seq] = [6, 64, 8, 512];
    let config = BertEncoderConfig::new().with_hidden_size(hidden).with_num_hidden_layers(layers);
    let config = config.with_num_attention_heads(hidden / 32).with_intermediate_size(4 * hidden);
    let peak = |device: Device| {
        let encoder = config.init(&device);
        let input = Tensor::ones([batch, seq, hidden], &device).require_grad();
        let step = || encoder.forward(input.clone(), None).backward();
        drop(step()); // warm caches
        let (gradients, used) = count(step);
        drop(gradients);
        used.peak
    };
    let device = Device::flex().autodiff();
    let [kept, again] = [device.clone(), device.gradient_checkpointing()].map(peak);
    let one = batch * seq * hidden * FLOAT;
    println!(
        "{layers} layers, H {hidden}, {batch} × {seq}: {kept} B; computed again {again} B; an output is {one} B"
    );
    assert!(again + 14 * one * (layers - 1) < kept, "{again} B, {kept} B when all is kept");
}
