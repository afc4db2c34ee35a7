//! Row-sparse training of tables that a worker holds.

use crate::devices;
use crate::process::Worker;
use crate::tolerance::{F32, all_values, assert_close};
use crate::turn;
use burn::module::Module;
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;
use burn_bert::sparse::{LazyAdamWConfig, RowGradients, RowSgdConfig, SparseAdamConfig, SparseOptimizer};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};

const RATE: f64 = 0.05;

/// Drawn on this machine.
fn module() -> BertEmbeddings {
    let device = devices::flex().autodiff();
    device.seed(5);
    let config =
        BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(8).with_max_position_embeddings(12);
    let module = config.init(&device);
    all_values(&module);
    module
}

/// The parameters after six steps with dropout, each of which touches other rows.
fn train(module: &BertEmbeddings, mut rows: SparseOptimizer, device: &Device) -> Vec<f64> {
    let device = device.clone().autodiff();
    let mut module = module.clone().fork(&device);
    let mut rest = SgdConfig::new().init();
    device.seed(9);
    for step in 0..6 {
        let ids = [[4, 5 + step, 6, 0, 0], [9, 8, 7, 6, 19 - step]];
        let input = BertEmbeddingsInput::from_rows(&ids, &device).unwrap();
        let touched = module.touched_rows(&input).unwrap();
        let weights = Tensor::arange(0..80, &device).float().cos().reshape([2, 5, 8]);
        let mut gradients = (touched.forward().powi_scalar(3) * weights).mean().backward();
        let of_rows = RowGradients::from_grads(&mut gradients, touched, &module).unwrap();
        let of_the_rest = GradientsParams::from_grads(gradients, &module);
        rows.step(RATE, &mut module, of_rows).unwrap();
        module = rest.step(RATE, module, of_the_rest);
    }
    all_values(&module)
}

#[test]
fn rows_are_trained_on_a_worker_as_on_its_device_elsewhere() {
    let _turn = turn();
    let worker = Worker::start();
    let remote = worker.device();
    let module = module();
    let before = all_values(&module);
    let rules: [fn() -> SparseOptimizer; 3] = [
        || RowSgdConfig::new().init(),
        || SparseAdamConfig::new().init(),
        || LazyAdamWConfig::new().with_weight_decay(0.1).init(),
    ];
    for rows in rules {
        let here = train(&module, rows(), &devices::flex());
        let moved = here.iter().zip(&before).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(moved > 1e-3, "{moved}");
        assert_close(&train(&module, rows(), &remote), &here, F32);
    }
}
