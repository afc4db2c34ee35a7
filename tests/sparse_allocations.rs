//! A step of row-sparse training copies no table: what it allocates does not grow with the vocabulary.

#[path = "support/counting_allocator/mod.rs"]
mod counting_allocator;

use burn::module::Param;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn_bert::sparse::{LazyAdamWConfig, RowGradients, RowSgdConfig, SparseAdamConfig, SparseOptimizer};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use counting_allocator::{Counting, Use, count};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

const BATCH: usize = 4;
const SEQ: usize = 32;
const HIDDEN: usize = 96;
const STEPS: usize = 4;

/// One step, whose ids depend on `step` but whose number of rows does not.
fn train(
    embeddings: &mut BertEmbeddings,
    step: usize,
    rows: &mut SparseOptimizer,
    rest: &mut ModuleOptimizer,
) {
    let vocabulary = embeddings.word_embeddings.num_embeddings();
    let id = |b: usize, s: usize| 1 + (step * 7919 + (b * SEQ + s) * (vocabulary / 200)) % (vocabulary - 1);
    let ids: Vec<Vec<i32>> = (0..BATCH).map(|b| (0..SEQ).map(|s| id(b, s) as i32).collect()).collect();
    let device = embeddings.word_embeddings.weight.device();
    let input = BertEmbeddingsInput::from_rows(&ids, &device).unwrap();

    let touched = embeddings.touched_rows(&input).unwrap();
    let mut gradients = touched.forward().square().mean().backward();
    let row_gradients = RowGradients::from_grads(&mut gradients, touched, embeddings).unwrap();
    rows.step(1e-3, embeddings, row_gradients).unwrap();
    let gradients = GradientsParams::from_grads(gradients, embeddings);
    *embeddings = rest.step(1e-3, embeddings.clone(), gradients);
}

/// A layer and what trains it, after two steps: the first makes the optimiser's state.
fn warm(vocab_size: usize, mut rows: SparseOptimizer) -> (BertEmbeddings, SparseOptimizer, ModuleOptimizer) {
    let device = Device::default().autodiff();
    let mut embeddings =
        BertEmbeddingsConfig::new().with_vocab_size(1).with_hidden_size(HIDDEN).init(&device);
    // To draw the values would take longer than all else.
    embeddings.word_embeddings.weight = Param::from_tensor(Tensor::zeros([vocab_size, HIDDEN], &device));
    let mut rest = AdamWConfig::new().init();
    for step in 0..2 {
        train(&mut embeddings, step, &mut rows, &mut rest);
    }
    (embeddings, rows, rest)
}

/// What each of some steps allocates, over all row optimisers.
fn steady_steps(vocab_size: usize) -> Vec<Use> {
    let optimizers =
        [RowSgdConfig::new().init(), SparseAdamConfig::new().init(), LazyAdamWConfig::new().init()];
    let mut uses = Vec::new();
    for rows in optimizers {
        let (mut embeddings, mut rows, mut rest) = warm(vocab_size, rows);
        for step in 2..2 + STEPS {
            uses.push(count(|| train(&mut embeddings, step, &mut rows, &mut rest)).1);
        }
    }
    uses
}

/// One test, because what other threads allocate would count too.
#[test]
fn a_step_allocates_as_much_for_a_large_vocabulary_as_for_a_small_one() {
    let small = steady_steps(30_522);
    let large = steady_steps(250_002);
    let table = 250_002 * HIDDEN * size_of::<f32>();
    for (small, large) in small.iter().zip(&large) {
        // The touched rows, and what forward and backward make of them: 1 MB here, beside a table of 96 MB.
        assert!(large.peak < 1 << 20 && large.largest < 1 << 20, "{large:?}");
        assert!(
            large.peak.abs_diff(small.peak) < 4096,
            "{large:?} for the large one, {small:?} for the small"
        );
        assert!(large.kept.unsigned_abs() < 4096, "{large:?}");
    }

    // That the figure can grow: a clone that is held keeps the old values, which takes a copy of the table.
    let (mut embeddings, mut rows, mut rest) = warm(250_002, SparseAdamConfig::new().init());
    let held = embeddings.clone();
    let ((), first) = count(|| train(&mut embeddings, 2, &mut rows, &mut rest));
    assert!(first.largest >= table, "{first:?}");
    let ((), second) = count(|| train(&mut embeddings, 3, &mut rows, &mut rest));
    assert!(second.largest < 1 << 20, "{second:?}: copied once, not at every step");
    drop(held);
}
