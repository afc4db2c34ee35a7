//! How many kernels the operator launches on a CubeCL device, and which.
#![cfg(feature = "wgpu")]

#[path = "support/mod.rs"]
mod support;
use support::*;

use burn::backend::ops::FloatTensorOps;
use burn::module::list_param_ids;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn_bert::functional::{Positions, Sequences, attention, on_reference_path};
use burn_bert::model::{
    BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig, DisentangledConfig, MaskedLmBatch,
};
use burn_bert::optim::{AdamWConfig, LrSchedule, adamw, clip_by_global_norm, layer_wise_decay, step};
use burn_bert::{
    BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, PaddingMask, PositionEmbeddingType,
};
use burn_cubecl::{CubeBackend, CubeDevice};
use launches::launches;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use traffic::traffic;

/// The kernels of the whole process are noted: tests run one at a time.
fn turn() -> (MutexGuard<'static, ()>, Device) {
    static TURN: Mutex<()> = Mutex::new(());
    (TURN.lock().unwrap_or_else(PoisonError::into_inner), devices::wgpu().autodiff())
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
fn forward_is_one_launch_and_dropout_adds_the_draw_of_its_seed_alone() {
    let (_turn, training) = turn();
    let device = devices::wgpu();
    let of = |device: &Device| {
        let (module, input) = module(0.1, device);
        launches(device, || module.forward(&input))
    };
    assert_eq!(of(&device), ["Forward"]);
    let reference = on_reference_path(|| of(&device));
    println!("of Burn's own operations: {reference:?}");
    assert!(reference.len() > 1, "{reference:?}");
    let launches = of(&training);
    assert_eq!(launches.len(), 2, "{launches:?}");
    assert_eq!(launches[1], "Forward");
}

/// Sorted, for fusion may reorder what does not depend on each other.
#[test]
fn backward_launches_what_the_gradients_need() {
    let (_turn, device) = turn();
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
    let (_turn, device) = turn();
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

/// A model with dropout everywhere, a batch of sequences of some lengths, and its optimizer.
struct Step {
    model: Option<BertForMaskedLm>,
    batch: MaskedLmBatch,
    optimizer: ModuleOptimizer,
    rates: ModuleLearningRate,
}

impl Step {
    fn new(layers: usize, lengths: [usize; 4], device: &Device) -> Self {
        Self::of(BertModelConfig::new(BertEmbeddingsConfig::new()), layers, lengths, device)
    }

    /// Of a small model of the config's family.
    fn of(mut config: BertModelConfig, layers: usize, lengths: [usize; 4], device: &Device) -> Self {
        (config.embeddings.vocab_size, config.embeddings.hidden_size) = (100, 128);
        let config = config.with_num_hidden_layers(layers);
        let config = config.with_num_attention_heads(2).with_intermediate_size(256);
        let padding = PaddingMask::from_lengths(&lengths, 64).unwrap();
        let schedule = LrSchedule::Constant.with_warmup(1e-4, 0, 10).unwrap();
        let positions: Vec<[usize; 2]> = (0..20).map(|i| [i % 3, 2 * i]).collect();
        let batch = MaskedLmBatch::new(input([4, 64], device), Some(padding), &positions, &[5; 20]).unwrap();
        Self {
            model: Some(BertForMaskedLmConfig::new(config).init(device)),
            batch,
            optimizer: adamw(&AdamWConfig::new()).unwrap(),
            rates: layer_wise_decay(schedule, layers, 0.9).unwrap().step(),
        }
    }

    fn run(&mut self) -> Option<Tensor<1>> {
        let model = self.model.take().unwrap();
        let loss = model.forward(&self.batch).loss;
        let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
        let norm = clip_by_global_norm(&model, &mut gradients, 1.0).unwrap();
        self.model = Some(step(&mut self.optimizer, self.rates.clone(), model, gradients));
        norm
    }
}

#[test]
fn a_training_step_waits_for_nothing_and_uploads_no_more_than_the_batch() {
    let (_turn, device) = turn();
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

/// How often each kernel is launched in the forward and backward of two layers, once Burn has tuned and fused its kernels.
fn launches_of_two_layers(
    config: &BertModelConfig,
    lengths: [usize; 4],
    device: &Device,
) -> BTreeMap<String, i32> {
    let mut found = BTreeMap::<String, i32>::new();
    for (layers, sign) in [(1, -1), (3, 1)] {
        let Step { model, batch, .. } = Step::of(config.clone(), layers, lengths, device);
        let model = model.unwrap();
        let run = || model.forward(&batch).loss.backward();
        (0..4).for_each(|_| drop(run()));
        launches(device, run).into_iter().for_each(|name| *found.entry(name).or_default() += sign);
    }
    found.retain(|_, count| *count != 0);
    found
}

#[test]
fn a_layer_takes_fewer_launches_than_the_reference() {
    let (_turn, device) = turn();
    let bert = BertModelConfig::new(BertEmbeddingsConfig::new());
    let deberta = BertModelConfig::deberta_v3_base();
    let cases = [(&bert, FULL, LAYER), (&bert, PADDED, LAYER), (&deberta, FULL, LAYER_OF_DEBERTA)];
    for (config, lengths, layer) in cases {
        let mut kernels = launches_of_two_layers(config, lengths, &device);
        let reference = on_reference_path(|| launches_of_two_layers(config, lengths, &device));
        let [ours, others] = [&kernels, &reference].map(|launches| launches.values().sum::<i32>());
        println!(
            "two layers, sequences of {lengths:?}: {ours} launches {kernels:?}\n{others} of Burn's own {reference:?}"
        );
        kernels.retain(|name, _| !["KernelBinop", "ElemwiseFuse"].contains(&name.as_str()));
        let sure = kernels.values().sum::<i32>();
        assert!(sure <= 2 * layer && ours - sure <= 2 * ADDITIONS, "{kernels:?}");
        assert!(ours < others, "{ours} of {others}");
    }
}

/// Of a layer with `tokens` rows of H values in f32, forward and backward, when each matmul reads two matrices and writes one, and
/// self-attention, LayerNorm with its residual, and the activation read and write whole rows once. What self-attention's products and
/// kernels pass to each other is not counted, as in `Traffic::moved`.
fn least_bytes(tokens: usize, hidden: usize, inner: usize) -> usize {
    let linear = |inputs: usize, outputs: usize| 3 * (tokens * (inputs + outputs) + inputs * outputs);
    let matmuls = linear(hidden, hidden) + linear(hidden, inner) + linear(inner, hidden);
    // x, and Q, K, V and O of it; then these five and the gradients of O and x. Three weights, those again and their gradients.
    let attention = (5 + 7) * tokens * hidden + 9 * hidden * hidden;
    // Two operands and y; then those, the gradient of y, and both operands' gradients.
    let layer_norms = 2 * (3 + 5) * tokens * hidden;
    let activation = (2 + 3) * tokens * inner;
    4 * (matmuls + attention + layer_norms + activation)
}

#[test]
fn the_entries_of_a_layer_move_little_more_than_they_must() {
    let (_turn, device) = turn();
    let [one, three] = [1, 3].map(|layers| {
        let Step { model, batch, .. } = Step::new(layers, FULL, &device);
        let model = model.unwrap();
        let run = || model.forward(&batch).loss.backward();
        (0..4).for_each(|_| drop(run()));
        traffic(&device, run).moved
    });
    let (moved, least) = ((three - one) / 2, least_bytes(4 * 64, 128, 256));
    println!("{moved} bytes a layer, {:.2} of {least}", moved as f64 / least as f64);
    assert!(10 * moved <= 13 * least, "{moved} of {least}");
}

/// No matmul, whose results of [B, A, L, L] would be in memory.
#[test]
fn attention_is_one_launch_and_two_backward_and_one_more_for_vectors_of_distances() {
    let (_turn, device) = turn();
    let rows = [0; 3].map(|_| Tensor::<2>::ones([130, 8], &device).require_grad());
    let vectors = Tensor::<2>::ones([253, 8], &device).require_grad();
    let sequences = Sequences::new(vec![127, 3], &device);
    for has_distances in [false, true] {
        let step = || {
            let [by_query, by_key] = [(); 2].map(|()| has_distances.then(|| vectors.clone()));
            let positions = Positions { by_query, by_key, ..Positions::default() };
            attention(rows.clone(), &sequences, 2, positions, 0.0).sum().backward()
        };
        let mut found = launches(&device, step);
        let ours = ["Forward", "Backward", "Distances"];
        found.retain(|name| ours.contains(&name.as_str()) || name.contains("Matmul"));
        let expected = ["Forward", "Backward", "Backward", "Distances"];
        assert_eq!(found, expected[..3 + usize::from(has_distances)]);
    }
}

/// Distances of DeBERTa and of relative positions, and the places of sequences that have padding between their tokens.
#[test]
fn layers_upload_nothing_that_another_one_has_uploaded() {
    let (_turn, device) = turn();
    let relative = BertEmbeddingsConfig::new().with_vocab_size(100).with_hidden_size(64);
    let relative = relative.with_position_embedding_type(PositionEmbeddingType::RelativeKeyQuery);
    let mut deberta = BertModelConfig::deberta_v3_base();
    (deberta.embeddings.vocab_size, deberta.embeddings.hidden_size) = (100, 64);
    let gaps: [[bool; 16]; 2] = [[false; 16], std::array::from_fn(|column| column % 3 == 1)];
    let padding = PaddingMask::from_rows(&gaps).unwrap();
    for config in [deberta, BertModelConfig::new(relative)] {
        let config = config.with_num_attention_heads(2).with_intermediate_size(64);
        for padding in [None, Some(&padding)] {
            let [one, three] = [1, 3].map(|layers| {
                let encoder = config.clone().with_num_hidden_layers(layers).init_encoder(&device).unwrap();
                let hidden = Tensor::<3>::ones([2, 16, 64], &device);
                traffic(&device, || encoder.forward(hidden.clone(), padding).sum().backward()).uploaded
            });
            println!("{one} bytes for one layer, {three} for three");
            assert!(one > 0 && one == three, "{one} bytes, {three}");
        }
    }
}

/// Clipping and AdamW, with a rate for each layer: beyond forward and backward of the same model.
#[test]
fn clipping_and_adamw_of_all_parameters_take_as_few_launches_as_the_device_can_bind_them() {
    let (_turn, device) = turn();
    for layers in [2, 12] {
        let mut found = BTreeMap::<String, usize>::new();
        let mut step = Step::new(layers, FULL, &device);
        let parameters = list_param_ids(step.model.as_ref().unwrap()).len();
        (0..4).for_each(|_| drop(step.run()));
        launches(&device, || step.run()).into_iter().for_each(|name| *found.entry(name).or_default() += 1);
        let model = step.model.take().unwrap();
        let run = || model.forward(&step.batch).loss.backward();
        (0..4).for_each(|_| drop(run()));
        launches(&device, run).into_iter().for_each(|name| *found.get_mut(&name).unwrap() -= 1);
        found.retain(|_, count| *count != 0);
        println!("{} launches for {parameters} parameters: {found:?}", found.values().sum::<usize>());
        // Gradients of γ and β, in a layer of the bias before, and of what Q, K and V are made by, are parts of one buffer: not written in place.
        let expected = launches_of_update(parameters, 12 * layers + 4, bindings());
        assert_eq!(found, BTreeMap::from(expected.map(|(name, count)| (name.to_string(), count))));
    }
    // BERT-base with its head, on CUDA.
    let of_bert_base = launches_of_update(202, 148, 1024).map(|(_, count)| count);
    assert_eq!((of_bert_base, of_bert_base.iter().sum()), ([5, 1, 3, 2, 1], 12));
}

/// The kernels for so many parameters, some of which have their gradients in parts of a buffer.
fn launches_of_update(parameters: usize, shared: usize, bindings: usize) -> [(&'static str, usize); 5] {
    let buffers = 192.min(bindings - 3);
    let scaled = (parameters - shared).div_ceil(buffers) + shared.div_ceil(buffers / 2);
    [
        ("AdamKernel", parameters.div_ceil(buffers / 4)),
        ("ElemwiseFuse", 1), // the factor of the norm
        ("ScaleKernel", scaled),
        ("Squares", parameters.div_ceil(buffers)),
        ("SumKernel", 1),
    ]
}

fn bindings() -> usize {
    let tensor = CubeBackend::float_from_data(TensorData::from([0.0]), &CubeDevice::default());
    tensor.client.properties().hardware.max_bindings as usize
}

/// Burn's `select_assign`, the gradient of its `select`, loops over all rows in each unit. Distances of the model of DeBERTa share ranges.
#[test]
fn no_kernel_of_a_step_loops_over_the_rows() {
    let (_turn, device) = turn();
    let bert = BertModelConfig::new(BertEmbeddingsConfig::new());
    let mut deberta = BertModelConfig::deberta_v3_base();
    deberta.disentangled = Some(DisentangledConfig::new().with_position_buckets(Some(16)));
    for (config, lengths) in [(&bert, FULL), (&bert, PADDED), (&deberta, FULL)] {
        let mut step = Step::of(config.clone(), 1, lengths, &device);
        let found = launches(&device, || step.run());
        assert!(found.iter().any(|name| name == "Gather"), "{found:?}");
        assert!(!found.iter().any(|name| name.contains("SelectAssign")), "{found:?}");
    }
}

/// Forward and backward, products included, with dropout.
const LAYER: i32 = 28;
const LAYER_OF_DEBERTA: i32 = 41;

/// Of gradients to tensors that are used several times.
const ADDITIONS: i32 = 4;
