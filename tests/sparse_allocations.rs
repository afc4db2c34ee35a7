//! A step of row-sparse training copies no table: what it allocates does not grow with the vocabulary.

mod counting_allocator;

use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use burn_bert::sparse::{LazyAdamWConfig, RowGradients, RowSgdConfig, SparseAdamConfig, SparseOptimizer};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use counting_allocator::{Use, count};

const BATCH: usize = 4;
const SEQ: usize = 32;
const HIDDEN: usize = 96;
const STEPS: usize = 4;

/// One step, whose ids depend on `step` but whose number of rows does not.
fn train(
    embeddings: &mut BertEmbeddings,
    step: usize,
    rows: &mut SparseOptimizer,
    rest: &mut burn::optim::ModuleOptimizer,
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

/// What each step after the first two allocates, over all row optimisers. The first makes the state.
fn steady_steps(vocab_size: usize) -> Vec<Use> {
    let device = Device::default().autodiff();
    let optimizers =
        [RowSgdConfig::new().init(), SparseAdamConfig::new().init(), LazyAdamWConfig::new().init()];
    let mut uses = Vec::new();
    for mut rows in optimizers {
        let config = BertEmbeddingsConfig::new().with_vocab_size(vocab_size).with_hidden_size(HIDDEN);
        let mut embeddings = config.init(&device);
        let mut rest = AdamWConfig::new().init();
        for step in 0..2 {
            train(&mut embeddings, step, &mut rows, &mut rest);
        }
        for step in 2..2 + STEPS {
            uses.push(count(|| train(&mut embeddings, step, &mut rows, &mut rest)).1);
        }
    }
    uses
}

#[test]
fn a_step_allocates_as_much_for_a_large_vocabulary_as_for_a_small_one() {
    let small = steady_steps(30_522);
    let large = steady_steps(250_002);
    println!("{small:?}\n{large:?}");
}
