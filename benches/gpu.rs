//! What `benches/gpu.sh` measures on a CubeCL device, case by case; `plan` prints the cases of each part, the most wanted first.
//!
//!     BURN_DEVICE=vulkan cargo bench --features vulkan --bench gpu -- plan
//!     BURN_DEVICE=vulkan cargo bench --features vulkan --bench gpu -- steps "BERT-base, 8 × 128"
//!
//! With `quick` at the end sizes are small: enough to see that everything runs, and no measurement.

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
use burn_bert::functional::{Positions, Precision, Sequences, attention, autocast, on_reference_path};
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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_quick = arguments.last() == Some(&"quick");
    if is_quick {
        arguments.pop();
    }
    let plan = plan(is_quick);
    match arguments[..] {
        ["plan"] => {
            plan.iter().for_each(|(part, case, _)| println!("{part} {case}"));
            return ExitCode::SUCCESS;
        }
        ["first"] => {
            print_first_steps(is_quick);
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    match plan.into_iter().find(|(part, case, _)| arguments == [*part, case]) {
        Some((.., run)) => run(),
        None => {
            eprintln!("usage: gpu plan|first [quick], or gpu PART CASE [quick] with a line of the plan");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// A part, the name of a case, and what measures it.
type Planned = (&'static str, String, Box<dyn FnOnce()>);

/// The most wanted first: launches and bytes, what the device can do, steps, and then what explains them.
fn plan(is_quick: bool) -> Vec<Planned> {
    let mut plan: Vec<Planned> = Vec::new();
    let mut add = |part, case: String, run: Box<dyn FnOnce()>| plan.push((part, case, run));
    let steps = steps(is_quick);
    let models = models(is_quick);
    let counted = |path: Counted| models.clone().into_iter().map(move |(name, config)| (name, config, path));
    let counts = |(name, config, path): (&'static str, BertModelConfig, Counted)| {
        let run: Box<dyn FnOnce()> = Box::new(move || print_launches(name, &config, path));
        (format!("{name}, {}", path.name()), run)
    };
    let precisions = [Counted::Kernels(Precision::F32), Counted::Kernels(Precision::Bf16)];
    for (case, run) in precisions.into_iter().flat_map(counted).map(counts) {
        add("launches", case, run);
    }
    add("rates", "copies".into(), Box::new(move || print_copies(is_quick)));
    let sizes = [[8192, 8192, 8192], [4096, 768, 3072], [16384, 768, 3072], [1024, 768, 768]];
    for &size in if is_quick { &sizes[3..] } else { &sizes } {
        add("rates", format!("matmuls {size:?}"), Box::new(move || print_matmuls(size, is_quick)));
    }
    for (name, config, case) in steps.clone() {
        let run = move || masked_lm_table::print(&[(name, config)], &[case], "", race(is_quick));
        add("steps", case.row(name), Box::new(run));
    }
    for &length in if is_quick { &[128][..] } else { &[128, 512, 1024, 2048, 4096] } {
        add("attention", format!("L {length}"), Box::new(move || print_attention(length, is_quick)));
    }
    for (name, config, case) in steps {
        add("profile", case.row(name), Box::new(move || print_profiles(name, &config, case, is_quick)));
    }
    // The largest has 65,536 tokens.
    let shapes = [[8, 128], [32, 128], [128, 512]];
    for &shape @ [batch, seq] in if is_quick { &shapes[..1] } else { &shapes } {
        add("operator", format!("{batch} × {seq}"), Box::new(move || operator_table::print(&[shape])));
        let run = move || print_launches_of_embeddings(shape);
        add("embeddings", format!("{batch} × {seq}"), Box::new(run));
    }
    for (case, run) in counted(Counted::Reference).map(counts) {
        add("launches", case, run);
    }
    plan
}

/// Models with the batches of a step.
fn steps(is_quick: bool) -> Vec<(&'static str, BertModelConfig, Case)> {
    let larger = [[32, 128], [32, 512]].map(|shape| Case { shape, fastest: true, ..Case::DEFAULT });
    let cases = if is_quick { vec![Case::DEFAULT] } else { [[Case::DEFAULT].as_slice(), &larger].concat() };
    // BERT-base first, the model that most people know.
    let models = models(is_quick).into_iter().rev();
    let mut steps: Vec<_> = models
        .flat_map(|(name, config)| cases.iter().map(move |&case| (name, config.clone(), case)))
        .collect();
    if !is_quick {
        let long = Case { shape: [8, 512], ..larger[0] };
        steps.push(("ModernBERT-base", BertModelConfig::modernbert_base(), long));
    }
    steps
}

fn models(is_quick: bool) -> Vec<(&'static str, BertModelConfig)> {
    if !is_quick {
        return whole_model::models().into();
    }
    let embeddings = BertEmbeddingsConfig::bert_base_uncased().with_hidden_size(64).with_vocab_size(1000);
    let tiny = BertModelConfig::new(embeddings).with_num_hidden_layers(2).with_num_attention_heads(2);
    vec![("tiny (2 layers, H 64)", tiny.with_intermediate_size(256))]
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
fn print_first_steps(is_quick: bool) {
    println!("seconds of the first steps of training, in order, and of a later one (median)\n");
    let (name, config) = models(is_quick).swap_remove(0);
    let device = Device::default().autodiff();
    let batch = masked_lm_table::batch(&config, Case::DEFAULT.shape, &device);
    let mut training = Training::new(BertForMaskedLmConfig::new(config).init(&device));
    let mut steps = |steps| race::time(steps, || training.step(|model| model.forward(&batch).loss));
    let first = steps(4).into_iter().map(|milliseconds| format!("{:.2}", milliseconds / 1e3));
    let first: Vec<String> = first.collect();
    println!("{name}: {}; {:.3}", first.join(", "), race::median(steps(5)) / 1e3);
}

/// The median seconds of `run`, once it is warm.
fn seconds(is_quick: bool, mut run: impl FnMut()) -> f64 {
    run();
    run();
    race::median(race::time(if is_quick { 1 } else { 15 }, run)) / 1e3
}

/// Runs between two waits, so that the device has work throughout.
const RUNS: usize = 5;

/// What bounds a step beside matmuls: the rate of copies.
fn print_copies(is_quick: bool) {
    let values = if is_quick { 1 << 20 } else { 1 << 28 };
    let x = Tensor::<1>::ones([values], &Device::default());
    let seconds = seconds(is_quick, || {
        let copies: Vec<_> = (0..RUNS).map(|_| x.clone() * 2.0).collect();
        x.device().sync().expect("the device works");
        drop(copies);
    });
    println!("copies, read and written: {:.0} GB/s\n", (8 * values * RUNS) as f64 / seconds / 1e9);
}

/// The rate of Burn's matmuls at a shape: one that a device does best, and BERT-base's.
fn print_matmuls([m, k, n]: [usize; 3], is_quick: bool) {
    let device = Device::default();
    println!("TFLOP/s of Burn's matmuls [M, K] · [K, N] with each operand as it is or transposed\n");
    println!("| M, K, N | dtype | nn | nt | tn |\n|---|---|---|---|---|");
    for dtype in [DType::F32, DType::BF16].into_iter().filter(|&dtype| device.supports_dtype(dtype)) {
        let rate = |transposed: [bool; 2]| {
            let matrix = |[rows, columns]: [usize; 2], transposed: bool| {
                let dims = if transposed { [columns, rows] } else { [rows, columns] };
                let values = Tensor::<2>::random(dims, Distribution::Normal(0.0, 1.0), &device).cast(dtype);
                if transposed { values.transpose() } else { values }
            };
            let (a, b) = (matrix([m, k], transposed[0]), matrix([k, n], transposed[1]));
            let seconds = seconds(is_quick, || {
                let products: Vec<_> = (0..RUNS).map(|_| a.clone().matmul(b.clone())).collect();
                device.sync().expect("the device works");
                drop(products);
            });
            (2 * m * k * n * RUNS) as f64 / seconds / 1e12
        };
        let [nn, nt, tn] = [[false, false], [false, true], [true, false]].map(rate);
        println!("| {m}, {k}, {n} | {dtype:?} | {nn:.2} | {nt:.2} | {tn:.2} |");
    }
}

/// What this device did in the part `rates`, whose output lies in the current folder: the best TFLOP/s of matmuls in `dtype`,
/// and GB/s of copies.
fn rates(dtype: DType) -> Option<[f64; 2]> {
    let measured = std::fs::read_to_string("rates.txt").ok()?;
    let copies = measured.lines().find_map(|line| line.strip_prefix("copies, read and written: "));
    let rows = measured.lines().map(|line| line.split(" | ").collect::<Vec<_>>());
    let rows = rows.filter(|cells| cells.get(1) == Some(&format!("{dtype:?}").as_str()));
    let numbers = |cells: Vec<&str>| {
        cells[2..].iter().filter_map(|cell| cell.trim_end_matches(" |").parse().ok()).collect::<Vec<f64>>()
    };
    Some([rows.flat_map(numbers).reduce(f64::max)?, copies?.split(' ').next()?.parse().ok()?])
}

/// Attention alone, to 16,384 tokens in sequences of one length, with BERT-base's heads.
fn print_attention(length: usize, is_quick: bool) {
    let (tokens, heads, hidden) = (if is_quick { 256 } else { 16_384 }, 12, 768);
    let device = Device::default().autodiff();
    let sequences = Sequences::new(vec![length; tokens / length], &device);
    println!("attention, {tokens} tokens, {heads} heads of {} columns\n", hidden / heads);
    println!(
        "| L | dtype | forward, ms | TFLOP/s | forward and backward, ms | TFLOP/s |\n|---|---|---|---|---|---|"
    );
    for dtype in [DType::F32, DType::BF16].into_iter().filter(|&dtype| device.supports_dtype(dtype)) {
        let rows = || Tensor::<2>::random([tokens, hidden], Distribution::Normal(0.0, 1.0), &device);
        let rows = [(); 3].map(|()| rows().cast(dtype).detach().require_grad());
        let forward = || attention(rows.clone(), &sequences, heads, Positions::default(), 0.0);
        let alone = seconds(is_quick, || {
            let context = forward();
            device.sync().expect("the device works");
            drop(context);
        });
        let both = seconds(is_quick, || {
            let gradients = forward().backward();
            device.sync().expect("the device works");
            drop(gradients);
        });
        // Two products forward, five backward.
        let product = (2 * tokens * length * hidden) as f64 / 1e12;
        let [alone, both] = [(alone, 2.0), (both, 7.0)]
            .map(|(seconds, products)| format!("{:.2} | {:.1}", seconds * 1e3, products * product / seconds));
        println!("| {length} | {dtype:?} | {alone} | {both} |");
    }
}

/// What kernels take in a step, by precision, and how much of the device's rates a step uses.
fn print_profiles(name: &str, config: &BertModelConfig, case: Case, is_quick: bool) {
    let device = Device::default().autodiff();
    device.seed(0);
    let batch = masked_lm_table::batch(config, case.shape, &device);
    for precision in [Precision::F32, Precision::Bf16] {
        if precision.check(&device).is_err() {
            continue;
        }
        let model: BertForMaskedLm = BertForMaskedLmConfig::new(config.clone()).init(&device);
        let flops = matmul_flops(&model, config, case.shape);
        let mut training = Training::new(model);
        let mut step = || training.step(|model| autocast(precision, || model.forward(&batch).loss));
        (0..4).for_each(|_| step());
        let seconds = race::median(race::time(if is_quick { 1 } else { 9 }, &mut step)) / 1e3;
        println!("{}, {precision}: a step takes {:.2} ms", case.row(name), seconds * 1e3);
        let dtype = if precision == Precision::F32 { DType::F32 } else { DType::BF16 };
        if let Some([teraflops, gigabytes]) = rates(dtype) {
            let moved = traffic(&device, &mut step).moved as f64;
            println!(
                "{:.0} % of the best rate of matmuls, {:.0} % of that of copies",
                flops / seconds / teraflops / 1e10,
                moved / seconds / gigabytes / 1e7,
            );
        }
        print_profile(timed_launches(&device, step));
        println!("\n{}\n", training.breakdown(|model| autocast(precision, || model.forward(&batch).loss)));
    }
}

/// Of a step: each matrix is multiplied once forward and twice backward, attention has two products forward and five backward
/// (windows not considered), and the head sees the 15 % of tokens that are masked.
fn matmul_flops(model: &BertForMaskedLm, config: &BertModelConfig, [batch, seq]: [usize; 2]) -> f64 {
    let (tokens, hidden) = (batch * seq, config.embeddings.hidden_size);
    let layers = 6 * tokens * model.bert.encoder.num_params();
    let attention = 7 * 2 * tokens * seq * hidden * config.num_hidden_layers;
    let head = 6 * (tokens * 15 / 100) * hidden * (hidden + config.embeddings.vocab_size);
    (layers + attention + head) as f64
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

/// Kernel launches of the embedding layer, and the bytes that it must move.
fn print_launches_of_embeddings(shape @ [batch, seq]: [usize; 2]) {
    let device = Device::default();
    println!("launches of the embedding layer, and the bytes that it must move at least\n");
    println!("| B × S | | burn-bert | Burn composed | MB at least |");
    println!("|---|---|---|---|---|");
    for workload in WORKLOADS {
        let [fused, composed] = [Path::Fused, Path::Composed].map(|path| {
            let mut bench = Bench::new(workload, path, shape);
            settled(&device, || bench.run())
        });
        let megabytes = operator_table::least_traffic(workload, shape) / 1e6;
        println!("| {batch} × {seq} | {workload} | {fused} | {composed} | {megabytes:.1} |");
    }
}

/// What computes a step whose launches are counted.
#[derive(Clone, Copy)]
enum Counted {
    Kernels(Precision),
    Reference,
}

impl Counted {
    fn name(self) -> String {
        match self {
            Self::Kernels(precision) => precision.to_string(),
            Self::Reference => "reference, f32".into(),
        }
    }
}

/// Kernel launches of a step, and bytes of the device's memory.
fn print_launches(name: &str, config: &BertModelConfig, path: Counted) {
    let device = Device::default();
    println!(
        "launches of a training step by masked language modelling, what it uploads beside its batch, what"
    );
    println!(
        "the entries of Burn's queue move, how often the host waits, and the memory that it leaves reserved\n"
    );
    println!(
        "| model | | a layer | forward and backward | whole step | MB uploaded | MB moved | waits | MB reserved |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let counts = match path {
        Counted::Kernels(precision) if precision.check(&device).is_err() => return,
        Counted::Kernels(precision) => step_counts(config, precision, &device),
        Counted::Reference => on_reference_path(|| step_counts(config, Precision::F32, &device)),
    };
    println!("| {name} | {} | {counts} |", path.name());
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
