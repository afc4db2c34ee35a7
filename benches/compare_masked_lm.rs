//! A training step of a whole BERT by masked-language modelling, here and in PyTorch, as one table.
//!
//!     BURN_BERT_PYTHON=python RAYON_NUM_THREADS=2 cargo bench --bench compare_masked_lm
//!
//! For allocators that keep their pages, mimalloc's here and glibc's in PyTorch, set `MIMALLOC_PURGE_DELAY=-1` and
//! `MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456`.
//!
//! A step is forward, loss, backward, clipping by the global norm and AdamW, with dropout, on 8 windows of 128 tokens
//! of which 15 % are hidden. The contestants take turns, so that they see the same machine. Without
//! `BURN_BERT_PYTHON` PyTorch's columns are empty.

mod race;

use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig, MaskedLmBatch};
use burn_bert::optim::adamw;
use burn_bert::training::{MaskedLmCollatorConfig, MaskedLmExample};
use burn_bert::{BertEmbeddingsConfig, clip_by_global_norm};
use mimalloc::MiMalloc;
use race::{Peer, Race, contestants, time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;

/// As in the example `fine_tune_mlm`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const BATCH: usize = 8;
const SEQ: usize = 128;
const RACE: Race = Race { rounds: 7, turn: 2000.0, warm_up: 0 };

fn main() {
    let torch = Peer::python("bench_masked_lm_torch.py");
    println!("{}", contestants(&[&torch]));
    println!(
        "{BATCH} × {SEQ} tokens, burn-bert with mimalloc; medians of tokens per second, ratios of burn-bert to them\n"
    );
    println!("| model | burn-bert | PyTorch | ratio | PyTorch, head on masked tokens | ratio |");
    println!("|---|---|---|---|---|---|");
    let torch = RefCell::new(torch);
    for (name, config) in models() {
        let mut training = Training::new(&config);
        let case = |head| {
            let BertModelConfig { num_hidden_layers, num_attention_heads, intermediate_size, .. } =
                config.bert;
            let hidden_size = config.bert.embeddings.hidden_size;
            format!(
                "{head} {num_hidden_layers} {num_attention_heads} {hidden_size} {intermediate_size} {BATCH} {SEQ}"
            )
        };
        let ask = |head, steps| {
            torch.borrow_mut().as_mut().map_or_else(Vec::new, |torch| torch.time(&case(head), steps))
        };
        let [own, every, hidden] = RACE
            .run([
                Box::new(|steps| time(steps, || training.step())),
                Box::new(|steps| ask("every", steps)),
                Box::new(|steps| ask("hidden", steps)),
            ])
            .map(|milliseconds| (BATCH * SEQ) as f64 / milliseconds * 1e3);
        let against = |other: f64| {
            if other.is_nan() { "— | —".into() } else { format!("{other:.0} | {:.2}×", own / other) }
        };
        println!("| {name} | {own:.0} | {} | {} |", against(every), against(hidden));
    }
}

fn models() -> [(&'static str, BertForMaskedLmConfig); 2] {
    let mini_lm = BertModelConfig::new(BertEmbeddingsConfig::bert_base_uncased().with_hidden_size(384))
        .with_num_hidden_layers(6)
        .with_intermediate_size(1536);
    let mini_lm = BertForMaskedLmConfig::new(mini_lm);
    [("MiniLM-L6 (6 layers, H 384)", mini_lm), ("BERT-base", BertForMaskedLmConfig::bert_base_uncased())]
}

struct Training {
    model: Option<BertForMaskedLm>,
    optimizer: ModuleOptimizer,
    batch: MaskedLmBatch,
}

impl Training {
    fn new(config: &BertForMaskedLmConfig) -> Self {
        let device = Device::default().autodiff();
        device.seed(0);
        let vocab_size = config.bert.embeddings.vocab_size;
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut window = || (0..SEQ).map(|_| rng.random_range(1..vocab_size as u32)).collect();
        let windows: Vec<_> = (0..BATCH).map(|_| MaskedLmExample::new(window())).collect();
        let collator = MaskedLmCollatorConfig::new(vocab_size, 103, vec![0, 103]).init();
        Self {
            model: Some(config.init(&device)),
            optimizer: adamw(&AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01)),
            batch: collator.collate(&windows, 0, &device).expect("windows of one length"),
        }
    }

    fn step(&mut self) {
        let model = self.model.take().expect("the model");
        let loss = model.forward(&self.batch).loss;
        let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
        clip_by_global_norm(&model, &mut gradients, 1.0);
        self.model = Some(self.optimizer.step(1e-4, model, gradients));
    }
}
