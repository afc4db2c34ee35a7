//! How busy many threads are: the schedule of each matmul of a BERT-base step, played through with measured costs.
//!
//!     cargo bench -p burn-fused-matmul --bench schedule
//!
//! Of each number of threads: parts of operands to pack, MB packed, blocks of C, and the share of the time that threads work. Waking
//! threads and sharing memory's bandwidth are not in it.

#[allow(dead_code)]
#[path = "../src/schedule.rs"]
mod schedule;

use schedule::Phase;

/// Cycles to pack a tile, and to multiply two: 1024 multiply-adds of 16 values each.
const PACK: usize = 1000;
const MULTIPLY: usize = 1024;

/// Bytes of a tile.
const TILE: usize = 2048;

fn main() {
    print!("{:36}", "f32; packing, MB, blocks, busy");
    let threads = [1, 2, 8, 16, 64];
    threads.iter().for_each(|threads| print!("{:>24}", format!("{threads} threads")));
    println!();
    for (name, [m, k, n]) in [
        ("MiniLM attention, forward", [1024, 384, 384]),
        ("BERT-base attention, forward", [1024, 768, 768]),
        ("BERT-base attention, weight gradient", [768, 1024, 768]),
        ("BERT-base up, forward", [1024, 768, 3072]),
        ("BERT-base down, forward", [1024, 3072, 768]),
        ("BERT-base up, weight gradient", [768, 1024, 3072]),
        ("vocabulary, forward", [150, 768, 30522]),
        ("vocabulary, input gradient", [150, 30522, 768]),
        ("vocabulary, weight gradient", [768, 150, 30522]),
    ] {
        print!("{name:36}");
        for threads in threads {
            let panels = [m, n].map(|count: usize| count.div_ceil(32));
            let phases = Phase::all(panels, k.div_ceil(16), [Some(true); 2], false, threads);
            let items: usize = phases.iter().map(Phase::items).sum();
            let blocks: usize = phases.iter().map(Phase::blocks).sum();
            let [time, packing, multiplying] = play(&phases, threads);
            let bytes = packing / PACK * TILE;
            let busy = 100.0 * (packing + multiplying) as f64 / (threads * time) as f64;
            print!("{:>24}", format!("{items} {:.1} {blocks} {busy:.0} %", 1e-6 * bytes as f64));
        }
        println!();
    }
}

/// Cycles until all is done, and of packing and of multiplying in all threads.
fn play(phases: &[Phase], threads: usize) -> [usize; 3] {
    let mut clocks = vec![0; threads];
    let mut computed = Vec::<usize>::new();
    let mut work = [0, 0];
    let wait =
        |clocks: &mut [usize], end: usize| clocks.iter_mut().for_each(|clock| *clock = end.max(*clock));
    // Each item goes to the thread that is free first; when the last one is done.
    let take = |clocks: &mut [usize], costs: &mut dyn Iterator<Item = usize>| {
        let mut end = 0;
        for cost in costs {
            let clock = clocks.iter_mut().min().expect("a thread");
            *clock += cost;
            end = end.max(*clock);
        }
        end
    };
    for (index, phase) in phases.iter().enumerate() {
        let depth = phase.depth.len();
        for before in phase.waits_for(index) {
            wait(&mut clocks, computed[before]);
        }
        let packing = (0..phase.items())
            .map(|item| phase.item(item).1)
            .map(|[panels, depth]| panels.len() * depth.len() * PACK);
        let blocks = (0..phase.blocks()).map(|block| phase.block(block)).map(|[a, b]| a.len() * b.len());
        let multiplying = blocks.map(|pairs| pairs * depth * MULTIPLY);
        work[0] += packing.clone().sum::<usize>();
        work[1] += multiplying.clone().sum::<usize>();
        let packed = take(&mut clocks, &mut { packing });
        wait(&mut clocks, packed);
        computed.push(take(&mut clocks, &mut { multiplying }));
    }
    [clocks.into_iter().max().unwrap_or_default(), work[0], work[1]]
}
