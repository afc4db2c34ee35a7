//! Which kernels the operators launch on a CubeCL device, how many, and the bytes that they move.
#![cfg(feature = "wgpu")]

#[path = "support/devices/mod.rs"]
mod devices;
#[path = "support/launches/mod.rs"]
mod launches;
#[path = "support/traffic/mod.rs"]
mod traffic;

use burn::module::list_param_ids;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::tensor::Distribution;
use burn_bert::functional::on_reference_path;
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig, MaskedLmBatch};
use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, PaddingMask};
use burn_fused::{Activation, Precision, Sequences, attention, autocast, with_f16_for_bf16};
use launches::launches;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use traffic::{bytes_moved, traffic};

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

const PADDED: [usize; 4] = [64, 50, 64, 7];
const FULL: [usize; 4] = [64; 4];

/// A model with dropout everywhere, a batch of sequences of some lengths, and its optimiser.
struct Step {
    model: Option<BertForMaskedLm>,
    batch: MaskedLmBatch,
    optimizer: ModuleOptimizer,
}

impl Step {
    fn new(layers: usize, lengths: [usize; 4], device: &Device) -> Self {
        Self::with_activation(Activation::Gelu, layers, lengths, device)
    }

    fn with_activation(activation: Activation, layers: usize, lengths: [usize; 4], device: &Device) -> Self {
        let embeddings = BertEmbeddingsConfig::new().with_vocab_size(100).with_hidden_size(128);
        let config = BertModelConfig::new(embeddings).with_num_hidden_layers(layers);
        let config = config.with_num_attention_heads(2).with_intermediate_size(256);
        let config = config.with_hidden_act(activation);
        let padding = PaddingMask::from_lengths(&lengths, 64);
        let positions: Vec<[usize; 2]> = (0..20).map(|i| [i % 3, 2 * i]).collect();
        let batch = MaskedLmBatch::new(input([4, 64], device), Some(padding), &positions, &[5; 20]).unwrap();
        Self {
            model: Some(BertForMaskedLmConfig::new(config).init(device)),
            batch,
            optimizer: adamw(&AdamWConfig::new()).unwrap(),
        }
    }

    fn run(&mut self) -> Option<Tensor<1>> {
        let model = self.model.take().unwrap();
        let loss = model.forward(&self.batch).loss;
        let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
        let norm = clip_by_global_norm(&model, &mut gradients, 1.0).unwrap();
        self.model = Some(self.optimizer.step(1e-4, model, gradients));
        norm
    }
}

#[test]
fn a_training_step_waits_for_nothing_and_uploads_no_more_than_the_batch() {
    let _turn = turn();
    let device = devices::wgpu().autodiff();
    let mut step = Step::new(2, PADDED, &device);
    let found = traffic(&device, || step.run());
    println!("{found:?}");
    // Ids, token types, positions and lengths of 4 × 64 tokens, in 32 bits.
    let batch = 4 * 4 * 64 * 4;
    assert!(found.uploaded <= batch, "{found:?}");
    assert_eq!(found.waits, 0, "{found:?}");
    let mut twice = || (0..2).map(|_| step.run().map(Tensor::into_data)).collect::<Vec<_>>();
    assert!(traffic(&device, &mut twice).waits > 0, "a read is seen");
}

/// What the forward and the backward of one layer launch and move, once Burn has tuned its kernels and fused what it fuses.
struct Layer {
    /// How often each kernel is launched in two layers.
    launches: BTreeMap<String, i32>,
    bytes: u64,
}

fn layer(activation: Activation, lengths: [usize; 4], precision: Precision, device: &Device) -> Layer {
    let (mut found, mut bytes) = (BTreeMap::<String, i32>::new(), 0);
    for (layers, sign) in [(1, -1), (3, 1)] {
        let Step { model, batch, .. } = Step::with_activation(activation, layers, lengths, device);
        let model = model.unwrap();
        let loss = || autocast(precision, || model.forward(&batch).loss);
        // WGSL has no bf16; f16 takes the same launches and bytes.
        let run = || with_f16_for_bf16(loss).backward();
        (0..4).for_each(|_| drop(run()));
        launches(device, run).into_iter().for_each(|name| *found.entry(name).or_default() += sign);
        bytes += i64::from(sign) * bytes_moved(device, run) as i64;
    }
    found.retain(|_, count| *count != 0);
    Layer { launches: found, bytes: bytes as u64 / 2 }
}

/// Bytes of a layer's step in which each matmul and each pass reads what it needs and writes what it makes once, with no
/// [L, L] in memory: N tokens of length H, I in the feed-forward network, operands of `narrow` bytes.
fn ideal_bytes(tokens: usize, [hidden, inner]: [usize; 2], narrow: usize) -> u64 {
    const WIDE: usize = 4;
    let (rows, inner_rows) = (tokens * hidden, tokens * inner);
    // x·W, ∂L/∂y·Wᵀ and xᵀ·∂L/∂y, with x and y of these bytes a value.
    let linear = |x: usize, y: usize, weight: usize, [of_x, of_y]: [usize; 2]| {
        let forward = narrow * (x + weight) + of_y * y;
        let backward = narrow * (y + weight) + of_x * x + narrow * (x + y) + WIDE * weight;
        // A parameter in f32 is rounded once.
        let rounds = if narrow == WIDE { 0 } else { (WIDE + narrow) * weight };
        forward + backward + rounds
    };
    let square = hidden * hidden;
    let linears = 3 * linear(rows, rows, square, [WIDE, narrow])
        + linear(rows, rows, square, [narrow, WIDE])
        + linear(rows, inner_rows, hidden * inner, [WIDE, narrow])
        + linear(inner_rows, rows, hidden * inner, [narrow, WIDE]);
    // Of what LayerNorm leaves and of what it gives back.
    let rounded = if narrow == WIDE { 0 } else { 4 * (WIDE + narrow) * rows };
    // Q, K, V and O; these and their gradients, and ∂L/∂O.
    let attention = narrow * (4 + 8) * rows;
    let norms = 2 * WIDE * (3 + 5) * rows;
    let activation = narrow * (2 + 3) * inner_rows;
    // The gradients of what several read, added up in one pass each.
    let sums = WIDE * (5 + 3) * rows;
    (linears + rounded + attention + norms + activation + sums) as u64
}

#[test]
fn a_layer_takes_few_launches_and_moves_little_more_than_it_must() {
    let _turn = turn();
    let device = devices::wgpu().autodiff();
    for (activation, lengths, precision, narrow, most) in [
        (Activation::Gelu, FULL, Precision::F32, 4, 45),
        (Activation::GeluTanh, PADDED, Precision::F32, 4, 45),
        (Activation::Gelu, PADDED, Precision::Bf16, 2, 50),
        (Activation::Relu, FULL, Precision::Bf16, 2, 50),
    ] {
        let Layer { launches, bytes } = layer(activation, lengths, precision, &device);
        let count = launches.values().sum::<i32>();
        let ideal = ideal_bytes(lengths.iter().sum(), [128, 256], narrow);
        println!(
            "{activation:?} in {precision}, sequences of {lengths:?}: {count} launches of two layers {launches:?}; {bytes} \
             bytes of one, {:.2} of {ideal}",
            bytes as f64 / ideal as f64
        );
        assert!(count <= 2 * most, "{precision}: {launches:?}");
        assert!(10 * bytes <= 13 * ideal, "{precision}: {bytes} of {ideal}");
    }
    let reference = on_reference_path(|| layer(Activation::Gelu, FULL, Precision::F32, &device));
    println!("{} launches of two layers of Burn's own operations", reference.launches.values().sum::<i32>());
}

/// 512 tokens in eight sequences and in one, forward and backward.
#[test]
fn bytes_of_attention_do_not_grow_with_the_square_of_the_length() {
    let _turn = turn();
    let device = devices::wgpu().autodiff();
    let rows = [(); 3]
        .map(|()| Tensor::<2>::random([512, 64], Distribution::Normal(0.0, 1.0), &device).require_grad());
    let [short, long] = [vec![64; 8], vec![512]].map(|lengths| {
        let sequences = Sequences::new(lengths, &device);
        bytes_moved(&device, || attention(rows.clone(), &sequences, 2, None, 0.1).sum().backward())
    });
    println!("{short} bytes in sequences of 64, {long} in one of 512");
    assert!(long.abs_diff(short) < 1000, "{short} and {long}");
}

/// Clipping and AdamW: beyond forward and backward of the same model.
#[test]
fn clipping_and_adamw_take_little_more_than_a_launch_a_parameter() {
    let _turn = turn();
    let device = devices::wgpu().autodiff();
    let mut found = BTreeMap::<String, i32>::new();
    let mut step = Step::new(2, FULL, &device);
    let parameters = list_param_ids(step.model.as_ref().unwrap()).len() as i32;
    (0..4).for_each(|_| drop(step.run()));
    launches(&device, || step.run()).into_iter().for_each(|name| *found.entry(name).or_default() += 1);
    let model = step.model.take().unwrap();
    let run = || model.forward(&step.batch).loss.backward();
    (0..4).for_each(|_| drop(run()));
    launches(&device, run).into_iter().for_each(|name| *found.entry(name).or_default() -= 1);
    found.retain(|_, count| *count != 0);
    let all = found.values().sum::<i32>();
    println!("{all} launches for {parameters} parameters: {found:?}");
    // AdamW and, of some, an addition of gradients; the squares of sixteen gradients are one launch.
    assert!(2 * all <= 3 * parameters, "{all} for {parameters} parameters: {found:?}");
}

/// Burn's `select_assign`, the gradient of its `select`, loops over all rows in each unit.
#[test]
fn no_kernel_of_a_step_loops_over_the_rows() {
    let _turn = turn();
    let device = devices::wgpu().autodiff();
    for lengths in [FULL, PADDED] {
        let mut step = Step::new(1, lengths, &device);
        let found = launches(&device, || step.run());
        assert!(found.iter().any(|name| name == "Gather"), "{found:?}");
        assert!(!found.iter().any(|name| name.contains("SelectAssign")), "{found:?}");
    }
}
