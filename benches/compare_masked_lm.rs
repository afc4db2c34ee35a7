//! A training step of a whole BERT by masked language modelling, here and in PyTorch, as one table.
//!
//!     BURN_BERT_PYTHON=python RAYON_NUM_THREADS=2 cargo bench --bench compare_masked_lm
//!
//! For allocators that keep their pages, mimalloc's here and glibc's in PyTorch, set `MIMALLOC_PURGE_DELAY=-1` and
//! `MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456`.
//!
//! A step is forward, loss, backward, clipping by the global norm and AdamW, with dropout, on 8 windows of 128 tokens
//! of which 15 % are masked. The contestants have the same weights and the same batch, and their losses are compared
//! first. They take turns, so that they see the same machine. Without `BURN_BERT_PYTHON` PyTorch's columns are empty.

#[path = "../tests/support/counting_allocator/mod.rs"]
mod counting_allocator;
mod race;
mod whole_model;

use burn::prelude::*;
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, MaskedLmBatch, PretrainedModel};
use burn_bert::training::{MaskedLmCollatorConfig, MaskedLmExample};
use counting_allocator::{Counting, count};
use mimalloc::MiMalloc;
use race::{Peer, Race, contestants, time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::cell::RefCell;
use whole_model::{Exchange, Training, assert_same_loss, megabytes, models, rate_against};

/// As in the example `fine_tune_mlm`.
#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

const BATCH: usize = 8;
const SEQ: usize = 128;
const MASK: u32 = 103;
const RACE: Race = Race { rounds: 5, turn: 2000.0, warm_up: 0 };

fn main() {
    let torch = RefCell::new(Peer::python("bench_masked_lm_torch.py"));
    println!("{}; matrix products on {}", contestants(&[&torch.borrow()]), burn_bert::matrix_kernel());
    println!("{BATCH} × {SEQ} tokens; medians of tokens per second, ratios of burn-bert to them\n");
    println!(
        "| model | burn-bert | PyTorch | ratio | head on masked tokens | ratio | and fused AdamW | ratio | \
         and bf16 autocast | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut notes = Vec::new();
    for (name, config) in models() {
        let device = Device::default().autodiff();
        device.seed(0);
        let model: BertForMaskedLm = BertForMaskedLmConfig::new(config.clone()).init(&device);
        let windows = windows(config.embeddings.vocab_size as u32);
        let batch = batch(&windows, &device);
        let plain = self::batch(&windows, &device.clone().inner());
        let exchange = Exchange::new(
            |dir| model.save_pretrained(dir).expect("a checkpoint"),
            json!({ "input_ids": rows(&plain), "labels": labels(&windows, &plain) }),
        );
        if let Some(torch) = &mut *torch.borrow_mut() {
            let own = model.valid().forward(&plain).loss.into_scalar::<f64>();
            for kind in ["every", "masked"] {
                assert_same_loss(own, torch.loss(&exchange.case(kind)));
            }
        }
        let mut training = Training::new(model);
        let mut step = || training.step(|model| model.forward(&batch).loss);
        let ask = |kind: &str, steps| {
            let mut torch = torch.borrow_mut();
            torch.as_mut().map_or_else(Vec::new, |torch| torch.time(&exchange.case(kind), steps))
        };
        let [own, every, masked, fused, bf16] = RACE
            .run([
                Box::new(|steps| time(steps, &mut step)),
                Box::new(|steps| ask("every", steps)),
                Box::new(|steps| ask("masked", steps)),
                Box::new(|steps| ask("fused", steps)),
                Box::new(|steps| ask("bf16", steps)),
            ])
            .map(|milliseconds| (BATCH * SEQ) as f64 / milliseconds * 1e3);
        let others = [every, masked, fused, bf16].map(|other| rate_against(own, other)).join(" | ");
        println!("| {name} | {own:.0} | {others} |");
        let ((), peak) = count(&mut step);
        let theirs = torch.borrow_mut().as_mut().map(|torch| torch.peak(&exchange.case("masked")));
        let theirs = theirs.map_or_else(String::new, |peak| format!("; PyTorch's {}", megabytes(peak)));
        notes.push(format!(
            "{name}: {}; peak of a step {}{theirs}",
            training.breakdown(),
            megabytes(peak.peak)
        ));
    }
    println!("\n{}", notes.join("\n"));
}

/// Ids without a mask among them.
fn windows(vocab_size: u32) -> Vec<Vec<u32>> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut window = || (0..SEQ).map(|_| rng.random_range(MASK + 1..vocab_size)).collect();
    (0..BATCH).map(|_| window()).collect()
}

/// All masked tokens become `[MASK]`, so that the peer can be told which they are.
fn batch(windows: &[Vec<u32>], device: &Device) -> MaskedLmBatch {
    let config = MaskedLmCollatorConfig::new(30_522, MASK, vec![0, MASK]).with_mask_replace_prob(1.0);
    let collator = config.with_random_replace_prob(0.0).init();
    let windows: Vec<_> = windows.iter().cloned().map(MaskedLmExample::new).collect();
    collator.collate(&windows, 0, device).expect("windows of one length")
}

fn rows(batch: &MaskedLmBatch) -> Vec<Vec<u32>> {
    let ids: Vec<u32> = batch.input.input_ids().expect("ids").into_data().iter().collect();
    ids.chunks(SEQ).map(<[u32]>::to_vec).collect()
}

/// What the masked tokens were, −100 elsewhere.
fn labels(windows: &[Vec<u32>], batch: &MaskedLmBatch) -> Vec<Vec<i64>> {
    let label = |(&id, &shown): (&u32, &u32)| if shown == MASK { i64::from(id) } else { -100 };
    let rows = rows(batch);
    windows.iter().zip(&rows).map(|(window, row)| window.iter().zip(row).map(label).collect()).collect()
}
