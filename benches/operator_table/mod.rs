//! The table of `compare`, under the allocator of the program that prints it.

use crate::bert_base::{Bench, Path, WORKLOADS, Workload};
use crate::counting_allocator::count;
use crate::race::{Peer, Race, against, contestants, median, time};
use rayon::prelude::*;
use std::cell::RefCell;

const RACE: Race = Race { rounds: 7, turn: 60.0, warm_up: 0 };

/// For each batch size and sequence length.
pub fn print(shapes: &[[usize; 2]]) {
    let mut peers = Peers { torch: Peer::python("bench_transformers.py"), candle: Peer::candle() };
    println!("{}", contestants(&[&peers.torch, &peers.candle]));
    println!(
        "the host's copy bandwidth {:.1} GB/s; medians of ms, GB/s of the least traffic, peaks of MB in the host's memory\n",
        copy_bandwidth()
    );
    println!(
        "| B × S | | burn-bert | GB/s | Burn composed | ratio | PyTorch | ratio | candle | ratio | \
         peak: burn-bert | composed | PyTorch |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for &shape @ [batch, seq] in shapes {
        for workload in WORKLOADS {
            let ([fused, others @ ..], peaks) = measure(workload, shape, &mut peers);
            let gigabytes = least_traffic(workload, shape) / 1e6 / fused;
            let others = others.map(|time| against(fused, time)).join(" | ");
            let peaks =
                peaks.map(|peak| peak.map_or("—".into(), |peak| format!("{:.1}", peak as f64 / 1e6)));
            println!(
                "| {batch} × {seq} | {workload} | {fused:.2} | {gigabytes:.1} | {others} | {} |",
                peaks.join(" | ")
            );
        }
    }
}

struct Peers {
    torch: Option<Peer>,
    candle: Option<Peer>,
}

/// Median milliseconds of fused, composed, PyTorch and candle, and the peak bytes of the first three.
fn measure(
    workload: Workload,
    shape @ [batch, seq]: [usize; 2],
    peers: &mut Peers,
) -> ([f64; 4], [Option<usize>; 3]) {
    let case = format!("{workload:?} {batch} {seq}").to_lowercase();
    let torch = RefCell::new(peers.torch.as_mut());
    let mut candle = peers.candle.as_mut().filter(|_| workload == Workload::Forward); // it drops nothing out
    let [mut fused, mut composed] =
        [Path::Fused, Path::Composed].map(|path| Bench::new(workload, path, shape));
    let times = RACE.run([
        Box::new(|runs| time(runs, || fused.run())),
        Box::new(|runs| time(runs, || composed.run())),
        Box::new(|runs| torch.borrow_mut().as_mut().map_or_else(Vec::new, |torch| torch.time(&case, runs))),
        Box::new(|runs| candle.as_mut().map_or_else(Vec::new, |candle| candle.time(&case, runs))),
    ]);
    let [fused, composed] = [&mut fused, &mut composed].map(|bench| Some(count(|| bench.run()).1.peak));
    let torch = torch.borrow_mut().as_mut().map(|torch| torch.peak(&case));
    (times, [fused, composed, torch])
}

/// Bytes that must be read and written once, were every table row in a batch distinct.
pub fn least_traffic(workload: Workload, [batch, seq]: [usize; 2]) -> f64 {
    let row = 768.0 * 4.0;
    let tokens = (batch * seq) as f64 * row; // one [B, S, H]
    let positions = seq as f64 * row;
    let parameters = (30_522.0 + 512.0 + 4.0) * row;
    let forward = 2.0 * tokens + positions;
    match workload {
        Workload::Forward | Workload::Train => forward,
        // Rows and the gradient are read, rows of the gradient written; the ones from above written before.
        Workload::Backward => forward + 4.0 * tokens + 2.0 * positions,
        // AdamW reads parameter, gradient and two moments, and writes all but the gradient.
        Workload::Step => forward + 4.0 * tokens + 2.0 * positions + 7.0 * parameters,
    }
}

/// GB/s, read and written, of copying 256 MiB on all threads.
fn copy_bandwidth() -> f64 {
    let from = vec![1u8; 256 << 20];
    let mut to = vec![0u8; from.len()];
    let times = time(7, || {
        to.par_chunks_mut(1 << 20)
            .zip(from.par_chunks(1 << 20))
            .for_each(|(to, from)| to.copy_from_slice(from));
    });
    2.0 * from.len() as f64 / 1e6 / median(times)
}
