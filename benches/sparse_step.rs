//! A whole training step of the layer, dense and row-sparse: BERT-base sizes, 8 sequences of 128 tokens.
//!
//! Dense: forward, backward, AdamW over everything. Sparse: rows copied out, forward, backward, SparseAdam on rows of
//! the word and position tables, AdamW over the rest. Both in training mode, dropout 0.1.
//!
//!     cargo bench --bench sparse_step
//!
//! Beside PyTorch: `compare_sparse.rs`.

mod training;

use divan::Bencher;
use training::{BATCHES, Training, VOCABULARIES};

fn main() {
    divan::main();
}

#[divan::bench(args = VOCABULARIES, sample_count = 10, sample_size = 1)]
fn dense(bencher: Bencher, vocab_size: usize) {
    let mut training = Training::new(vocab_size);
    training.dense_step(); // makes the optimiser's state
    bencher.bench_local(move || training.dense_step());
}

#[divan::bench(args = VOCABULARIES, sample_count = 100, sample_size = 1)]
fn sparse(bencher: Bencher, vocab_size: usize) {
    let mut training = Training::new(vocab_size);
    for _ in 0..BATCHES {
        training.sparse_step(); // makes the optimiser's state and touches its pages
    }
    bencher.bench_local(move || training.sparse_step());
}
