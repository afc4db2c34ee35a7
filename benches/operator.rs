//! The operator beside Burn's own operations, with divan.
//!
//!     cargo bench --bench operator

mod bert_base;

use bert_base::{Bench, Path, SHAPES, Workload};
use divan::counter::ItemsCount;
use std::fmt;

fn main() {
    divan::main();
}

#[derive(Clone, Copy)]
struct Case {
    path: Path,
    shape: [usize; 2],
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [batch, seq] = self.shape;
        write!(f, "B{batch} S{seq} {:?}", self.path)
    }
}

fn cases() -> impl Iterator<Item = Case> {
    SHAPES.into_iter().flat_map(|shape| [Path::Fused, Path::Composed].map(|path| Case { path, shape }))
}

fn time(bencher: divan::Bencher, workload: Workload, case: Case) {
    let mut bench = Bench::new(workload, case.path, case.shape);
    let [batch, seq] = case.shape;
    bencher.counter(ItemsCount::new(batch * seq)).bench_local(|| bench.run());
}

#[divan::bench(args = cases(), sample_count = 30)]
fn forward(bencher: divan::Bencher, case: &Case) {
    time(bencher, Workload::Forward, *case);
}

#[divan::bench(args = cases(), sample_count = 30)]
fn train(bencher: divan::Bencher, case: &Case) {
    time(bencher, Workload::Train, *case);
}

#[divan::bench(args = cases(), sample_count = 15)]
fn backward(bencher: divan::Bencher, case: &Case) {
    time(bencher, Workload::Backward, *case);
}

/// Vectors of 64 values, so that what the word table's gradient costs for each token is most of it.
#[divan::bench(sample_count = 8)]
fn backward_of_65536_short_tokens(bencher: divan::Bencher) {
    let mut bench = Bench::with_width(64, Workload::Backward, Path::Fused, [128, 512]);
    bencher.counter(ItemsCount::new(65_536usize)).bench_local(|| bench.run());
}

#[divan::bench(args = cases(), sample_count = 8)]
fn step(bencher: divan::Bencher, case: &Case) {
    time(bencher, Workload::Step, *case);
}
