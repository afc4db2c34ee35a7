//! Workers compute what one process computes.

use crate::process::Worker;
use crate::task::{model, train};
use crate::tolerance::all_values;
use crate::{turn, within};
use burn::optim::{ModuleOptimizer, SgdConfig};
use burn::prelude::*;
use burn_bert::optim::{AdamWConfig, adamw};
use burn_bert::remote::WorkersConfig;
use std::time::Duration;

const STEPS: usize = 10;

/// A name, an optimiser and its rate.
type Rule = (&'static str, fn() -> ModuleOptimizer, f64);

fn optimizers() -> [Rule; 2] {
    [("SGD", || SgdConfig::new().init(), 1.0), ("AdamW", || adamw(&AdamWConfig::new()), 1e-3)]
}

/// The largest difference.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn workers_take_the_steps_that_one_process_takes_with_all_their_batches() {
    let _turn = turn();
    let before = all_values(&model());
    for (name, optimizer, rate) in optimizers() {
        let dir = tempfile::tempdir().unwrap();
        let one = train(&[Device::flex()], dir.path(), STEPS, optimizer(), rate).unwrap();
        let moved = difference(&before, &one);
        assert!(moved > 1e-3, "{name} moves by {moved}");
        for count in [1, 2] {
            let workers: Vec<Worker> = (0..count).map(|_| Worker::start()).collect();
            let config = WorkersConfig::new(workers.iter().map(|worker| worker.address.clone()));
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().to_path_buf();
            let several = within(Duration::from_secs(120), move || {
                let workers = config.connect().unwrap();
                let devices = workers.devices();
                workers.watch(move || train(&devices, &path, STEPS, optimizer(), rate))
            });
            let difference = difference(&one, &several.unwrap());
            println!("{name}, {count} workers: {difference:e} of {moved}");
            assert!(difference < 1e-6, "{name}, {count} workers: {difference:e}");
        }
    }
}
