//! A training step of the layer, row-sparse and dense, here and in PyTorch, as one table.
//!
//!     BURN_BERT_PYTHON=python RAYON_NUM_THREADS=2 cargo bench --bench compare_sparse
//!
//! The four are interleaved, so that they run under the same conditions; the sparse steps of the smallest and the largest
//! vocabulary are then timed in turns as well, for their ratio. Without `BURN_BERT_PYTHON` PyTorch's columns are empty.
//! Takes about 16 GB of memory at the largest vocabulary, nearly all of it for the dense contestants;
//! `BURN_BERT_VOCABULARIES=30522,119547` leaves that out.
//!
//! Where the C library is glibc, `MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184
//! MALLOC_TOP_PAD_=268435456` tells it to keep its pages, for all contestants; `BURN_BERT_ALLOCATOR` is what the table's head calls the allocator.

mod race;
mod training;

use race::{Contestant, Peer, Race, against, contestants, time};
use std::cell::RefCell;
use training::{BATCHES, Training, VOCABULARIES};

/// The warm-up touches every row that will be touched.
const RACE: Race = Race { rounds: 5, turn: 300.0, warm_up: 2 * BATCHES };

fn main() {
    let torch = Peer::python("bench_sparse_torch.py");
    println!("{}", contestants(&[&torch]));
    println!(
        "BERT-base, 8 × 128 uniform ids, dropout 0.1; medians of ms a step, ratios to the sparse step\n"
    );
    println!("| vocabulary | sparse | dense | ratio | PyTorch dense | ratio | PyTorch sparse | ratio |");
    println!("|---|---|---|---|---|---|---|---|");
    let vocabularies = vocabularies();
    let torch = RefCell::new(torch);
    for &vocabulary in &vocabularies {
        let [sparse, others @ ..] = steps(vocabulary, &torch);
        println!("| {vocabulary} | {sparse:.2} | {} |", others.map(|time| against(sparse, time)).join(" | "));
    }
    drop(torch);
    if let [small, .., large] = vocabularies[..] {
        let [at_small, at_large] = growth([small, large]);
        let percent = 100.0 * (at_large / at_small - 1.0);
        println!("\nsparse, in turns: {at_small:.2} at {small}, {at_large:.2} at {large}: {percent:+.1} %");
    }
}

fn vocabularies() -> Vec<usize> {
    match std::env::var("BURN_BERT_VOCABULARIES") {
        Ok(list) => list.split(',').map(|size| size.trim().parse().expect("a number of rows")).collect(),
        Err(_) => VOCABULARIES.to_vec(),
    }
}

/// Median milliseconds of sparse, dense, PyTorch dense and PyTorch sparse (NaN without it).
fn steps(vocabulary: usize, torch: &RefCell<Option<Peer>>) -> [f64; 4] {
    let (mut sparse, mut dense) = (Training::new(vocabulary), Training::new(vocabulary));
    let ask = |case, steps| {
        let case = format!("{case} {vocabulary}");
        torch.borrow_mut().as_mut().map_or_else(Vec::new, |torch| torch.time(&case, steps))
    };
    RACE.run([
        Box::new(|steps| time(steps, || sparse.sparse_step())),
        Box::new(|steps| time(steps, || dense.dense_step())),
        Box::new(|steps| ask("dense", steps)),
        Box::new(|steps| ask("sparse", steps)),
    ])
}

/// Median milliseconds of the sparse step at two vocabularies.
fn growth(vocabularies: [usize; 2]) -> [f64; 2] {
    RACE.run(vocabularies.map(|vocabulary| -> Contestant {
        let mut training = Training::new(vocabulary);
        Box::new(move |steps| time(steps, || training.sparse_step()))
    }))
}
