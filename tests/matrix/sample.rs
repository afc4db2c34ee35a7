//! Which cells of a matrix a test computes: a sample in which any two settings meet, or all of them.

use crate::models::{Architecture, ForHead, Head, for_each_head};
use burn::prelude::*;
use std::collections::HashSet;
use std::{env, fmt};

/// Cells by architecture, head and a test's own settings, each an index.
pub struct Sample {
    taken: HashSet<Vec<usize>>,
    all: usize,
}

/// The numbers of the heads that an architecture has.
struct Heads<'a>(&'a Architecture, Vec<usize>);

impl ForHead for Heads<'_> {
    fn run<M: Module>(&mut self, head: &Head<M>) {
        self.1.extend((head.init)(self.0.config(0.0), &Device::default()).map(|_| head.number));
    }
}

impl Sample {
    /// Greedily: first the cells all of whose pairs of settings are new, then those with one pair fewer, and so on to those
    /// with a single new pair. All cells with `BURN_BERT_MATRIX=all`. `sizes` are those of the test's own settings.
    pub fn new(architectures: &[Architecture], sizes: &[usize]) -> Self {
        let mut all = Vec::new();
        for (number, architecture) in architectures.iter().enumerate() {
            let mut heads = Heads(architecture, Vec::new());
            for_each_head(&mut heads);
            for head in heads.1 {
                for mut rest in 0..sizes.iter().product() {
                    let mut cell = vec![number, head];
                    for size in sizes {
                        cell.push(rest % size);
                        rest /= size;
                    }
                    all.push(cell);
                }
            }
        }
        let count = all.len();
        if env::var_os("BURN_BERT_MATRIX").is_some_and(|which| which == "all") {
            return Self { taken: all.into_iter().collect(), all: count };
        }
        let (mut met, mut taken) = (HashSet::new(), HashSet::new());
        let settings = 2 + sizes.len();
        for new in (1..=settings * (settings - 1) / 2).rev() {
            for cell in &all {
                let pairs = (0..settings).flat_map(|a| (0..a).map(move |b| [(a, cell[a]), (b, cell[b])]));
                if pairs.clone().filter(|pair| !met.contains(pair)).count() >= new {
                    met.extend(pairs);
                    taken.insert(cell.clone());
                }
            }
        }
        Self { taken, all: count }
    }

    pub fn has(&self, cell: &[usize]) -> bool {
        self.taken.contains(cell)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} cells", self.taken.len(), self.all)
    }
}
