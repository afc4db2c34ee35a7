//! Where the time of a training step goes, by samples of the running threads, as one table. Linux; needs `perf`.

use crate::masked_lm_table::{Case, batch};
use crate::whole_model::Training;
use burn::prelude::*;
use burn_bert::functional::{Precision, autocast};
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What functions whose names contain these do. The first that fits counts.
const PARTS: [(&str, &[&str]); 6] = [
    (
        "matmuls",
        &[
            "tiles::product",
            "tiles::float",
            "tiles::avx512",
            "tiles::amx",
            "tiles::Rounding",
            "matmul::threads",
        ],
    ),
    ("their operands packed", &["tiles::operand", "tiles::pairs"]),
    ("the other operators", &["pulp", "burn_fused"]),
    ("Burn's operations: sums of gradients", &["burn_flex", "macerator"]),
    ("copies and zeros", &["memset", "memmove", "memcpy"]),
    ("new pages cleared by the kernel", &["clear_page", "folio"]),
];

/// Samples a second, of each thread.
const RATE: usize = 2000;

pub fn print(models: &[(&str, BertModelConfig)]) {
    let mut columns = Vec::new();
    for (name, config) in models {
        for precision in [Precision::F32, Precision::Bf16] {
            columns.push((format!("{name}, {precision:?}"), profile(config, precision)));
        }
    }
    let names: Vec<_> = columns.iter().map(|(name, _)| name.as_str()).collect();
    println!("| % of the samples | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
    let rows = PARTS.iter().map(|(part, _)| *part).chain(["the rest", "% of the time when all threads run"]);
    for row in rows {
        let cells =
            columns.iter().map(|(_, shares)| format!("{:.1}", 100.0 * shares.get(row).unwrap_or(&0.0)));
        println!("| {row} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

/// The share of each part.
fn profile(config: &BertModelConfig, precision: Precision) -> BTreeMap<&'static str, f64> {
    let device = Device::default().autodiff();
    let batch = batch(config, Case::DEFAULT.shape, &device);
    let model: BertForMaskedLm = BertForMaskedLmConfig::new(config.clone()).init(&device);
    let mut training = Training::new(model);
    let mut step = || training.step(|model| autocast(precision, || model.forward(&batch).loss));
    // The first steps make the optimizer state and the memory that later ones use again.
    (0..4).for_each(|_| step());
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let [rate, pid] = [RATE, std::process::id() as usize].map(|number| number.to_string());
    let mut perf = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock", "-F", &rate, "-p", &pid, "-o"])
        .arg(file.path())
        .spawn()
        .expect("perf is installed");
    std::thread::sleep(Duration::from_millis(500)); // perf attaches to the threads
    (0..6).for_each(|_| step());
    let stop = Command::new("kill").args(["-INT", &perf.id().to_string()]).status();
    assert!(stop.expect("kill is installed").success(), "perf has ended by itself");
    perf.wait().expect("perf ends");
    let script = Command::new("perf")
        .args(["script", "-F", "tid,time,ip,sym", "-i"])
        .arg(file.path())
        .stderr(Stdio::null())
        .output()
        .expect("perf reads what it wrote");
    shares(&String::from_utf8_lossy(&script.stdout))
}

/// Of lines with a thread, a time in seconds, an address and a name.
fn shares(samples: &str) -> BTreeMap<&'static str, f64> {
    let mut counts = BTreeMap::<_, f64>::new();
    let mut threads = BTreeMap::<u64, BTreeMap<&str, usize>>::new();
    for sample in samples.lines() {
        let mut words = sample.split_whitespace();
        let [Some(thread), Some(time)] = [words.next(), words.next()] else { continue };
        let time: f64 = time.trim_end_matches(':').parse().expect("seconds");
        let name = words.skip(1).collect::<Vec<_>>().join(" ");
        let part = PARTS.iter().find(|(_, names)| names.iter().any(|found| name.contains(found)));
        *counts.entry(part.map_or("the rest", |(part, _)| part)).or_default() += 1.0;
        *threads.entry((time * RATE as f64 / 2.0) as u64).or_default().entry(thread).or_default() += 1;
    }
    let total: f64 = counts.values().sum();
    assert!(total > 0.0, "perf took no samples");
    counts.values_mut().for_each(|count| *count /= total);
    // Two samples of each thread are due in such a time.
    let all = threads.values().filter(|threads| threads.len() >= rayon::current_num_threads()).count();
    counts.insert("% of the time when all threads run", all as f64 / threads.len() as f64);
    counts
}
