//! How many kernels the operator launches on a CubeCL device, and which.
#![cfg(feature = "wgpu")]

#[path = "support/devices/mod.rs"]
mod devices;

use burn::prelude::*;
use burn_bert::functional::on_reference_path;
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use burn_cubecl::cubecl::logging::{LaunchObservation, LaunchObserver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Notes the kernels of the whole process: tests take turns.
#[derive(Default)]
struct Launches(Mutex<Vec<String>>);

impl LaunchObserver for Launches {
    fn launched(&self, kernel: &'static str) {
        let name = kernel.split('<').next().unwrap_or(kernel);
        self.0.lock().unwrap().push(name.rsplit("::").next().unwrap_or(name).to_owned());
    }
}

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names of the kernels that `f` launches, in order.
fn launches<T>(device: &Device, f: impl Fn() -> T) -> Vec<String> {
    drop(f()); // whatever is done once
    device.sync().unwrap();
    let launches = Arc::new(Launches::default());
    let observation = LaunchObservation::new(launches.clone());
    let kept = f();
    device.sync().unwrap();
    drop((observation, kept));
    let launches = launches.0.lock().unwrap();
    launches.clone()
}

fn module(dropout: f64, device: &Device) -> (BertEmbeddings, BertEmbeddingsInput) {
    let config = BertEmbeddingsConfig::new().with_vocab_size(100).with_hidden_size(128);
    let module = config.with_hidden_dropout_prob(dropout).init(device);
    let rows: Vec<Vec<i32>> = (0..4).map(|b| (0..64).map(|s| (b * 64 + s) % 100).collect()).collect();
    (module, BertEmbeddingsInput::from_rows(&rows, device).unwrap())
}

#[test]
fn forward_is_one_launch() {
    let _turn = turn();
    let device = devices::wgpu();
    let (module, input) = module(0.1, &device);
    assert_eq!(launches(&device, || module.forward(&input)), ["Forward"]);
    let reference = launches(&device, || on_reference_path(|| module.forward(&input)));
    println!("of Burn's own operations: {reference:?}");
    assert!(reference.len() > 1, "{reference:?}");
}

#[test]
fn dropout_adds_the_draw_of_its_seed_alone() {
    let _turn = turn();
    let device = devices::wgpu().autodiff();
    let (module, input) = module(0.1, &device);
    let launches = launches(&device, || module.forward(&input));
    assert_eq!(launches.len(), 2, "{launches:?}");
    assert_eq!(launches[1], "Forward");
}

/// Sorted, for fusion may reorder what does not depend on each other.
#[test]
fn backward_launches_what_the_gradients_need() {
    let _turn = turn();
    let device = devices::wgpu().autodiff();
    let (module, input) = module(0.0, &device);
    let weights = Tensor::<3>::ones([4, 64, 128], &device);
    let step = || (module.forward(&input) * weights.clone()).sum().backward();
    let mut fused = launches(&device, step);
    let reference = launches(&device, || on_reference_path(step));
    println!("{} fused: {fused:?}\n{} of Burn's own: {reference:?}", fused.len(), reference.len());
    let ours = ["Forward", "Backward", "Sort", "AddRuns", "Join", "Total", "AddBatch"];
    fused.retain(|name| ours.contains(&name.as_str()));
    fused.sort();
    // One total each for gamma, beta and the row of token types that all tokens share.
    assert_eq!(
        fused,
        ["AddBatch", "AddRuns", "Backward", "Forward", "Join", "Sort", "Total", "Total", "Total"]
    );
}
