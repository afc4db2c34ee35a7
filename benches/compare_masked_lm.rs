//! A training step of a whole BERT by masked language modelling, here and in PyTorch, as one table.
//!
//!     BURN_BERT_PYTHON=python RAYON_NUM_THREADS=2 cargo bench --bench compare_masked_lm
//!
//! For allocators that do not return freed pages to the OS, mimalloc's here and glibc's in PyTorch, set `MIMALLOC_PURGE_DELAY=-1` and
//! `MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456`.
//!
//! With `-- growth`, the smaller model on more and longer windows; with `-- encoders [PART OF A ROW]`, newer families on short and long ones. With `-- profile`, where the time of a step goes, alone.
//!
//! A step is forward, loss, backward, clipping by the global norm and AdamW, with dropout, on 8 windows of 128 tokens
//! of which 15 % are masked. The contestants have the same weights and the same batch, and their losses are compared
//! first. They are interleaved, so that they run under the same conditions. Without `BURN_BERT_PYTHON` PyTorch's columns are empty.

#[path = "../tests/support/counting_allocator/mod.rs"]
mod counting_allocator;
mod masked_lm_table;
mod profile;
mod race;
mod whole_model;

use counting_allocator::Counting;
use masked_lm_table::Case;
use mimalloc::MiMalloc;
use race::Race;

/// As in the example `fine_tune masked-lm`.
#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

fn main() {
    let mut models = whole_model::models_and_modern_bert();
    if std::env::args().any(|argument| argument == "profile") {
        return profile::print(&models);
    }
    let mut race = Race { rounds: 5, turn: 2000.0, warm_up: 0 };
    let is_asked = |name: &str| std::env::args().any(|argument| argument == name);
    let mut cases = vec![Case::DEFAULT];
    if is_asked("growth") {
        models.truncate(1);
        race.rounds = 3;
        cases = [[2, 512], [8, 512], [32, 128]].map(|shape| Case { shape, ..Case::DEFAULT }).to_vec();
    }
    let part = whole_model::part_after("encoders");
    if part.is_some() {
        models = whole_model::newer_encoders();
        race.rounds = 2;
        let shapes = [([8, 128], false), ([8, 128], true), ([8, 512], false), ([1, 4096], false)];
        cases = shapes.map(|(shape, padded)| Case { shape, padded, fastest: true, ..Case::DEFAULT }).to_vec();
    }
    masked_lm_table::print(&models, &cases, &part.unwrap_or_default(), race);
}
