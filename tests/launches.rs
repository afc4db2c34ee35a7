//! How many kernels the operator launches on a CubeCL device, and which.
#![cfg(feature = "wgpu")]

#[path = "support/devices/mod.rs"]
mod devices;
#[path = "support/launches/mod.rs"]
mod launches;

use burn::prelude::*;
use burn_bert::functional::on_reference_path;
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use launches::launches;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kernels of the whole process are noted: tests run one at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn module(dropout: f64, device: &Device) -> (BertEmbeddings, BertEmbeddingsInput) {
    let config = BertEmbeddingsConfig::new().with_vocab_size(100).with_hidden_size(128);
    (config.with_hidden_dropout_prob(dropout).init(device), input([4, 64], device))
}

fn input([batch, seq]: [i32; 2], device: &Device) -> BertEmbeddingsInput {
    let rows: Vec<Vec<i32>> = (0..batch).map(|b| (0..seq).map(|s| (b * seq + s) % 100).collect()).collect();
    BertEmbeddingsInput::from_rows(&rows, device).unwrap()
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
    let ours = ["Forward", "Backward", "Sort", "Merge", "AddRuns", "Join", "Total", "AddBatch"];
    fused.retain(|name| ours.contains(&name.as_str()));
    fused.sort();
    // One total for gamma and beta, one for the row of token types that all tokens share.
    assert_eq!(fused, ["AddBatch", "AddRuns", "Backward", "Forward", "Join", "Sort", "Total", "Total"]);
}

/// 1,024 tokens are sorted by one launch, and a merge makes eight sorted runs one.
#[test]
fn eight_times_the_tokens_are_sorted_by_one_more_launch() {
    let _turn = turn();
    let device = devices::wgpu().autodiff();
    let (module, _) = module(0.0, &device);
    for (batch, merges) in [(2, 0), (3, 1), (16, 1), (17, 2)] {
        let input = input([batch, 512], &device);
        let launches = launches(&device, || module.forward(&input).sum().backward());
        let of = |kernel: &str| launches.iter().filter(|name| *name == kernel).count();
        assert_eq!([of("Sort"), of("Merge")], [1, merges], "{batch} × 512 tokens: {launches:?}");
    }
}
