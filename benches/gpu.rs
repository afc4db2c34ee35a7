//! What `benches/gpu.sh` measures on a CubeCL device: one part each for `operator`, `first`, `rates`, `profile`, `steps` and
//! `launches`.
//!
//!     BURN_DEVICE=vulkan cargo bench --features vulkan --bench gpu -- operator
//!
//! With `quick` after the part's name sizes are small: enough to see that everything runs, and no measurement.

mod bert_base;
#[path = "../tests/support/counting_allocator/mod.rs"]
mod counting_allocator;
#[path = "../tests/support/launches/mod.rs"]
mod launches;
mod masked_lm_table;
mod operator_table;
mod race;
#[path = "../tests/support/traffic/mod.rs"]
mod traffic;
mod whole_model;

use bert_base::{Bench, Path, WORKLOADS};
use burn::prelude::*;
use burn::tensor::{DType, Distribution};
use burn_bert::BertEmbeddingsConfig;
use burn_bert::functional::{Precision, autocast, on_reference_path};
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig};
use counting_allocator::Counting;
use launches::{launches, timed_launches};
use masked_lm_table::Case;
use mimalloc::MiMalloc;
use race::Race;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use traffic::{Traffic, traffic};
use whole_model::Training;

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

/// The largest has 65,536 tokens.
const SHAPES: [[usize; 2]; 3] = [[8, 128], [32, 128], [128, 512]];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (part, is_quick) = match arguments[..] {
        [part] => (part, false),
        [part, "quick"] => (part, true),
        _ => ("", false),
    };
    let shapes = if is_quick { &SHAPES[..1] } else { &SHAPES };
    match part {
        "operator" => operator_table::print(shapes),
        "first" => print_first_steps(&models(is_quick)[..1]),
        "rates" => print_rates(is_quick),
        "profile" => print_profiles(&models(is_quick), &cases(is_quick), is_quick),
        "steps" => masked_lm_table::print(&models(is_quick), &cases(is_quick), "", race(is_quick)),
        "launches" => print_launches(shapes, &models(is_quick)),
        _ => {
            eprintln!("usage: gpu operator|first|rates|profile|steps|launches [quick]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn models(is_quick: bool) -> Vec<(&'static str, BertModelConfig)> {
    if !is_quick {
        return whole_model::models().into();
    }
    let embeddings = BertEmbeddingsConfig::bert_base_uncased().with_hidden_size(64).with_vocab_size(1000);
    let tiny = BertModelConfig::new(embeddings).with_num_hidden_layers(2).with_num_attention_heads(2);
    vec![("tiny (2 layers, H 64)", tiny.with_intermediate_size(256))]
}

fn cases(is_quick: bool) -> Vec<Case> {
    let larger = [[32, 128], [32, 512]].map(|shape| Case { shape, fastest: true, ..Case::DEFAULT });
    if is_quick { vec![Case::DEFAULT] } else { [[Case::DEFAULT].as_slice(), &larger].concat() }
}

/// More steps than on a CPU, where a step takes seconds.
fn race(is_quick: bool) -> Race {
    if is_quick {
        Race { rounds: 1, turn: 1.0, warm_up: 0 }
    } else {
        Race { rounds: 5, turn: 300.0, warm_up: 3 }
    }
}

/// How long the first steps of training take: kernels are compiled and products tuned in them, as far as CubeCL's caches
/// do not know them.
fn print_first_steps(models: &[(&str, BertModelConfig)]) {
    println!("seconds of the first steps of training, in order, and of a later one (median)\n");
    for (name, config) in models {
        let device = Device::default().autodiff();
        let batch = masked_lm_table::batch(config, Case::DEFAULT.shape, &device);
        let mut training = Training::new(BertForMaskedLmConfig::new(config.clone()).init(&device));
        let mut steps = |steps| race::time(steps, || training.step(|model| model.forward(&batch).loss));
        let first = steps(4).into_iter().map(|milliseconds| format!("{:.2}", milliseconds / 1e3));
        let first: Vec<String> = first.collect();
        println!("{name}: {}; {:.3}", first.join(", "), race::median(steps(5)) / 1e3);
    }
}

/// What bounds a step: the rate of Burn's matmuls at BERT-base's shapes and at one that a device does best, and that of
/// copies.
fn print_rates(is_quick: bool) {
    let device = Device::default();
    let median = |mut run: Box<dyn FnMut()>| {
        run();
        run();
        race::median(race::time(if is_quick { 1 } else { 15 }, run)) / 1e3
    };
    let sizes = [[1024, 768, 768], [4096, 768, 3072], [16384, 768, 3072], [8192, 8192, 8192]];
    let sizes = if is_quick { &sizes[..1] } else { &sizes };
    println!("TFLOP/s of Burn's matmuls [M, K] · [K, N] with each operand as it is or transposed\n");
    println!("| M, K, N | dtype | nn | nt | tn |\n|---|---|---|---|---|");
    for &[m, k, n] in sizes {
        for dtype in [DType::F32, DType::BF16].into_iter().filter(|&dtype| device.supports_dtype(dtype)) {
            let rate = |transposed: [bool; 2]| {
                let matrix = |[rows, columns]: [usize; 2], transposed: bool| {
                    let dims = if transposed { [columns, rows] } else { [rows, columns] };
                    let values =
                        Tensor::<2>::random(dims, Distribution::Normal(0.0, 1.0), &device).cast(dtype);
                    if transposed { values.transpose() } else { values }
                };
                let (a, b) = (matrix([m, k], transposed[0]), matrix([k, n], transposed[1]));
                let device = device.clone();
                // Several a wait, so that the device has work throughout.
                let seconds = median(Box::new(move || {
                    let products: Vec<_> = (0..RUNS).map(|_| a.clone().matmul(b.clone())).collect();
                    device.sync().expect("the device works");
                    drop(products);
                }));
                (2 * m * k * n * RUNS) as f64 / seconds / 1e12
            };
            let [nn, nt, tn] = [[false, false], [false, true], [true, false]].map(rate);
            println!("| {m}, {k}, {n} | {dtype:?} | {nn:.1} | {nt:.1} | {tn:.1} |");
        }
    }
    let values = if is_quick { 1 << 20 } else { 1 << 28 };
    let x = Tensor::<1>::ones([values], &device);
    let seconds = median(Box::new(move || {
        let copies: Vec<_> = (0..RUNS).map(|_| x.clone() * 2.0).collect();
        x.device().sync().expect("the device works");
        drop(copies);
    }));
    println!("\ncopies, read and written: {:.0} GB/s", (8 * values * RUNS) as f64 / seconds / 1e9);
}

/// Runs between two waits.
const RUNS: usize = 5;

/// What kernels take in a step of each model, by precision.
fn print_profiles(models: &[(&str, BertModelConfig)], cases: &[Case], is_quick: bool) {
    for ((name, config), case) in models.iter().flat_map(|model| cases.iter().map(move |case| (model, case)))
    {
        let device = Device::default().autodiff();
        device.seed(0);
        let batch = masked_lm_table::batch(config, case.shape, &device);
        for precision in [Precision::F32, Precision::Bf16] {
            if precision.check(&device).is_err() {
                continue;
            }
            let mut training = Training::new(BertForMaskedLmConfig::new(config.clone()).init(&device));
            let mut step = || training.step(|model| autocast(precision, || model.forward(&batch).loss));
            (0..4).for_each(|_| step());
            let milliseconds = race::median(race::time(if is_quick { 1 } else { 9 }, &mut step));
            let [rows, columns] = case.shape;
            println!("\n{name}, {rows} × {columns}, {precision:?}: a step takes {milliseconds:.2} ms");
            print_profile(timed_launches(&device, step));
            println!("\n{}", training.breakdown(|model| autocast(precision, || model.forward(&batch).loss)));
        }
    }
}

/// Kernels by the time that they take together.
fn print_profile(launches: Vec<(String, Duration)>) {
    let total = launches.iter().map(|(_, time)| time.as_secs_f64()).sum::<f64>() * 1e3;
    println!("\n{} launches, one at a time: {total:.1} ms\n", launches.len());
    println!("| kernel | launches | ms | of all |\n|---|---|---|---|");
    let mut kernels = BTreeMap::<String, (usize, f64)>::new();
    for (name, time) in launches {
        let (count, milliseconds) = kernels.entry(name).or_default();
        *count += 1;
        *milliseconds += time.as_secs_f64() * 1e3;
    }
    let mut kernels: Vec<_> = kernels.into_iter().collect();
    kernels.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
    for (name, (count, milliseconds)) in kernels {
        println!("| {name} | {count} | {milliseconds:.2} | {:.1} % |", 100.0 * milliseconds / total);
    }
}

/// Kernel launches, and bytes of the device's memory.
fn print_launches(shapes: &[[usize; 2]], models: &[(&str, BertModelConfig)]) {
    let device = Device::default();
    println!("launches of the input layer, and the bytes that it must move at least\n");
    println!("| B × S | | burn-bert | Burn composed | MB at least |");
    println!("|---|---|---|---|---|");
    for &shape @ [batch, seq] in shapes {
        for workload in WORKLOADS {
            let [fused, composed] = [Path::Fused, Path::Composed].map(|path| {
                let mut bench = Bench::new(workload, path, shape);
                settled(&device, || bench.run())
            });
            let megabytes = operator_table::least_traffic(workload, shape) / 1e6;
            println!("| {batch} × {seq} | {workload} | {fused} | {composed} | {megabytes:.1} |");
        }
    }
    println!(
        "\nlaunches of a training step by masked language modelling, what it uploads beside its batch, what the entries"
    );
    println!(
        "of Burn's queue move, how often the host waits for the device in it, and the memory that it leaves reserved\n"
    );
    println!(
        "| model | | a layer | forward and backward | whole step | MB uploaded | MB moved | waits | MB reserved |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, config) in models {
        let precisions = [Precision::F32, Precision::Bf16].into_iter();
        for precision in precisions.filter(|precision| precision.check(&device).is_ok()) {
            println!("| {name} | {precision} | {} |", step_counts(config, precision, &device));
        }
        let reference = on_reference_path(|| step_counts(config, Precision::F32, &device));
        println!("| | reference, f32 | {reference} |");
    }
}

/// The cells of a model.
fn step_counts(config: &BertModelConfig, precision: Precision, device: &Device) -> String {
    device.memory_cleanup();
    let autodiff = device.clone().autodiff();
    let batch = masked_lm_table::batch(config, Case::DEFAULT.shape, &autodiff);
    let model = |config: &BertModelConfig| BertForMaskedLmConfig::new(config.clone()).init(&autodiff);
    let loss = |model: &BertForMaskedLm| autocast(precision, || model.forward(&batch).loss);
    let of_model = |config: &BertModelConfig| {
        let model = model(config);
        settled(device, || drop(loss(&model).backward()))
    };
    let (whole, one) = (of_model(config), of_model(&config.clone().with_num_hidden_layers(1)));
    let layer = (whole - one) / (config.num_hidden_layers - 1);
    let mut training = Training::new(model(config));
    let mut step = || training.step(|model| loss(model));
    let launches = settled(device, &mut step);
    let Traffic { uploaded, waits, moved } = traffic(device, step);
    let [uploaded, moved] = [uploaded, moved].map(|bytes| bytes as f64 / 1e6);
    let reserved = device.memory_pool_usage().map_or(f64::NAN, |usage| usage.bytes_reserved as f64 / 1e6);
    format!("{layer} | {whole} | {launches} | {uploaded:.3} | {moved:.0} | {waits} | {reserved:.0}")
}

/// The launches of a run when Burn has tuned its kernels and fused what it fuses.
fn settled(device: &Device, mut run: impl FnMut()) -> usize {
    (0..5).for_each(|_| run());
    launches(device, run).len()
}
