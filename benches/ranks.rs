//! Training on ranks beside training in one process, and what several machines would do, as two tables.
//!
//!     cargo bench --features mpi,train --bench ranks
//!
//! A step is masked language modelling on 8 windows of 128 tokens a rank and batch, with dropout, clipping and AdamW, by a model
//! with random weights. One process has two threads, a rank one; four ranks share two cores. Contestants are interleaved, each
//! in processes of its own that begin anew in every round; times are medians over `BURN_BERT_ROUNDS` rounds (3).

mod whole_model;

use burn::module::{Lora, Module, ParamGroup};
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::prelude::*;
use burn_bert::distributed::{Ranks, Wire};
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, MaskedLmBatch};
use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm};
use burn_bert::{BertEmbeddingsInput, Error};
use mimalloc::MiMalloc;
use std::env;
use std::process::Command;
use std::time::Instant;

/// As in the examples.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Which model the ranks train; set in the processes that this starts.
const MODEL: &str = "BURN_BERT_RANKS_MODEL";
const SHAPE: [usize; 2] = [8, 128];
const ACCUMULATIONS: [usize; 2] = [1, 4];

/// Name, ranks, threads of each, and the accumulations that are timed.
const CONTESTANTS: [(&str, usize, usize, usize); 3] = [
    ("one process, 2 threads", 1, 2, 2),
    ("2 ranks, 1 thread each", 2, 1, 2),
    ("4 ranks, 1 thread each, on 2 cores", 4, 1, 1),
];

/// Timed steps of a model in a round, without accumulation and with it.
const STEPS: [[usize; 2]; 2] = [[6, 2], [2, 1]];

/// Seconds of a step, and of its exchange.
type Time = [f64; 2];

fn main() {
    match env::var(MODEL) {
        Ok(model) => Ranks::run(Wire::Full, |ranks| train(ranks, model.parse().expect("a number"))).unwrap(),
        Err(_) => compare(),
    }
}

fn model(model: usize, device: &Device) -> BertForMaskedLm {
    let [(_, mini_lm), (_, bert_base)] = whole_model::models();
    BertForMaskedLmConfig::new([mini_lm, bert_base][model].clone()).init(device)
}

/// Prints the time of each step on rank 0.
fn train(ranks: &Ranks, number: usize) -> Result<(), Error> {
    let device = ranks.device().autodiff();
    device.seed(ranks.rank() as u64);
    let batch = batch(ranks.rank() as u32, &device);
    let mut model = ranks.broadcast(model(number, &device))?;
    let mut optimizer = adamw(&AdamWConfig::new())?;
    for (accumulation, steps) in ACCUMULATIONS.into_iter().zip(STEPS[number]) {
        // The first step of all draws the weights and the optimizer's state.
        let warm_up = usize::from(accumulation == 1);
        for step in 0..warm_up + steps {
            let (start, exchanged) = (Instant::now(), ranks.exchanged().time);
            let mut sum = GradientsAccumulator::new();
            for _ in 0..accumulation {
                let loss = model.forward(&batch).loss / accumulation as f64;
                sum.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
            }
            let mut gradients = ranks.mean_gradients(&model, sum.grads(), 1.0)?;
            clip_by_global_norm(&model, &mut gradients, 1.0)?;
            model = optimizer.step(1e-4, model, gradients);
            let (step_time, exchange) = (start.elapsed(), ranks.exchanged().time - exchanged);
            if ranks.is_first() && step >= warm_up {
                println!("step {accumulation} {} {}", step_time.as_secs_f64(), exchange.as_secs_f64());
            }
        }
        if ranks.size() > 2 {
            break;
        }
    }
    Ok(())
}

/// 15 % of its tokens are masked.
fn batch(seed: u32, device: &Device) -> MaskedLmBatch {
    let [batch, seq] = SHAPE;
    let word = |row: usize, index: usize| 1000 + (seed * 77 + (row * seq + index) as u32 * 7919) % 20_000;
    let is_masked = |index: &usize| index % 20 < 3;
    let mask = |row, index| if is_masked(&index) { 103 } else { i64::from(word(row, index)) };
    let rows: Vec<Vec<i64>> =
        (0..batch).map(|row| (0..seq).map(|index| mask(row, index)).collect()).collect();
    let all_masked = |row| (0..seq).filter(is_masked).map(move |index| [row, index]);
    let positions: Vec<[usize; 2]> = (0..batch).flat_map(all_masked).collect();
    let labels: Vec<u32> = positions.iter().map(|&[row, index]| word(row, index)).collect();
    let input = BertEmbeddingsInput::from_rows(&rows, device).expect("rows of one length");
    MaskedLmBatch::new(input, None, &positions, &labels).expect("labels of its tokens")
}

fn compare() {
    let rounds = env::var("BURN_BERT_ROUNDS").map_or(3, |rounds| rounds.parse().expect("a number"));
    // By model, contestant and accumulation.
    let mut times: [[[Vec<Time>; ACCUMULATIONS.len()]; CONTESTANTS.len()]; STEPS.len()] = Default::default();
    for _ in 0..rounds {
        for (model, times) in times.iter_mut().enumerate() {
            for ((_, ranks, threads, _), times) in CONTESTANTS.into_iter().zip(times) {
                for (accumulation, time) in run(model, ranks, threads) {
                    let index = ACCUMULATIONS.iter().position(|&number| number == accumulation);
                    times[index.expect("one of these")].push(time);
                }
            }
        }
    }
    let [batch, seq] = SHAPE;
    println!(
        "{batch} x {seq} tokens a rank and batch, medians of {rounds} rounds; all-reduce and step in seconds\n"
    );
    println!(
        "| model | | tokens/s | ratio | all-reduce of step | tokens/s, 4 batches a step | ratio | all-reduce of step |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut machine_steps = Vec::new();
    for ((name, _), times) in whole_model::models().into_iter().zip(&times) {
        let alone = times[0].each_ref().map(|times| median(times));
        machine_steps.push(alone[0][0]);
        for ((contestant, ranks, _, accumulations), times) in CONTESTANTS.into_iter().zip(times) {
            let cells = times.iter().zip(&alone).zip(ACCUMULATIONS).take(accumulations);
            let cells = cells.map(|((times, [alone, _]), accumulation)| {
                let [step, exchange] = median(times);
                let tokens = (ranks * accumulation * batch * seq) as f64 / step;
                let ratio = ranks as f64 * alone / step;
                format!("{tokens:.0} | {ratio:.2} | {exchange:.2} of {step:.2} |")
            });
            let cells: Vec<String> = cells.chain(["— | — | — |".into()]).take(2).collect();
            println!("| {name} | {contestant} | {} ", cells.join(" "));
        }
    }
    on_paper(&machine_steps);
}

/// The steps that the ranks of a contestant print.
fn run(model: usize, ranks: usize, threads: usize) -> Vec<(usize, Time)> {
    let program = env::current_exe().expect("a path");
    let mut command = match ranks {
        1 => Command::new(&program),
        _ => {
            let mut mpirun = Command::new("mpirun");
            // Two hardware threads are two slots; more ranks than slots give way to each other when they wait.
            let slots = if ranks == 2 { "--use-hwthread-cpus" } else { "--oversubscribe" };
            mpirun
                .args([slots, "--bind-to", "none", "--allow-run-as-root", "-n"])
                .arg(ranks.to_string())
                .arg(&program);
            mpirun
        }
    };
    command
        .env(MODEL, model.to_string())
        .env("RAYON_NUM_THREADS", threads.to_string())
        .env("BURN_DEVICE", "flex");
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let steps = text.lines().filter_map(|line| line.strip_prefix("step "));
    let steps = steps
        .map(|line| line.split(' ').map(|number| number.parse().expect("a number")).collect::<Vec<f64>>());
    steps.map(|numbers| (numbers[0] as usize, [numbers[1], numbers[2]])).collect()
}

fn median(times: &[Time]) -> Time {
    [0, 1].map(|column| {
        let mut times: Vec<f64> = times.iter().map(|time| time[column]).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    })
}

/// The share of N times one machine's speed that N machines have, t / (t + 2·(N−1)/N·bytes/bandwidth), if their step takes t as
/// that of one process here does and nothing overlaps.
fn on_paper(steps: &[f64]) {
    println!(
        "\nseconds of an exchange, and the share of N times the speed of one machine, with {SHAPE:?} tokens a step\n"
    );
    println!("| model | step | machines | Gb/s | f32 | bf16 | LoRA, rank 8, f32 |");
    println!("|---|---|---|---|---|---|---|");
    let device = Device::flex().autodiff();
    for (number, ((name, _), step)) in whole_model::models().into_iter().zip(steps).enumerate() {
        let model = model(number, &device);
        let all = model.num_params() as f64;
        let weights = ParamGroup::from_regex(r"encoder\.layers\..*\.weight$").expect("a pattern");
        let adapters =
            model.apply_lora(Lora::new(8, 16.0).set_param_group(weights)).num_params() as f64 - all;
        for (machines, gigabits) in [(8, 10), (8, 100), (64, 10), (64, 100)] {
            let cell = |bytes: f64| {
                let n = f64::from(machines);
                let seconds = 2.0 * (n - 1.0) / n * bytes * 8.0 / (f64::from(gigabits) * 1e9);
                format!("{seconds:.3}, {:.0} %", 100.0 * step / (step + seconds))
            };
            let cells = [4.0 * all, 2.0 * all, 4.0 * adapters].map(cell).join(" | ");
            println!("| {name} | {step:.2} | {machines} | {gigabits} | {cells} |");
        }
    }
}
