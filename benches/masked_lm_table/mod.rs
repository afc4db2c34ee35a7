//! The table of `compare_masked_lm`, on the default device.

use crate::counting_allocator::count;
use crate::race::{Peer, Race, contestants, time};
use crate::whole_model::{
    Exchange, Training, assert_same_loss, attention_mask, lengths, note, rate, rate_against,
};
use burn::prelude::*;
use burn_bert::data::{MaskedLmCollatorConfig, MaskedLmExample};
use burn_bert::functional::{Precision, autocast};
use burn_bert::model::{
    BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig, MaskedLmBatch, PretrainedModel,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::cell::RefCell;

const MASK: u32 = 103;

/// A step's batch, [B, S], and whether its model drops out.
#[derive(Clone, Copy)]
pub struct Case {
    pub shape: [usize; 2],
    /// Whether sequences are of all lengths, so that half of the rectangle is padding.
    pub padded: bool,
    pub drops: bool,
    /// Whether PyTorch takes part at its fastest alone: long steps take long enough.
    pub fastest: bool,
}

impl Case {
    pub const DEFAULT: Self = Self { shape: [8, 128], padded: false, drops: true, fastest: false };

    /// What the row of a model is called.
    pub fn row(self, model: &str) -> String {
        let [batch, seq] = self.shape;
        let padding = if self.padded { ", half padding" } else { "" };
        format!("{model}, {batch} × {seq}{padding}{}", if self.drops { "" } else { ", no dropout" })
    }
}

/// Trains each model for some steps and prints how fast, on the cases that are not too long for it:
/// rows whose name has `part`.
pub fn print(models: &[(&str, BertModelConfig)], cases: &[Case], part: &str, race: Race) {
    let torch = RefCell::new(Peer::python("bench_masked_lm_torch.py"));
    println!("{}", contestants(&[&torch.borrow()]));
    println!("medians of tokens per second, ratios of burn-bert to them\n");
    println!(
        "| step | burn-bert | PyTorch | ratio | head on masked tokens | ratio | and fused AdamW | ratio | \
         in TF32 | ratio | burn-bert, bf16 | and bf16 autocast | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let has_tf32 = std::env::var("BURN_BERT_TORCH_DEVICE").is_ok_and(|device| device == "cuda");
    let mut notes = Vec::new();
    let all = models.iter().flat_map(|(name, config)| {
        let longest = config.embeddings.max_position_embeddings;
        let cases = cases.iter().filter(move |case| case.shape[1] <= longest);
        cases.map(move |&case| (case.row(name), case, with_dropout(config, case.drops)))
    });
    for (name, case, config) in all.filter(|row| row.0.contains(part)) {
        let device = Device::default().autodiff();
        device.seed(0);
        let model: BertForMaskedLm = BertForMaskedLmConfig::new(config.clone()).init(&device);
        let lengths = if case.padded { lengths(case.shape) } else { vec![case.shape[1]; case.shape[0]] };
        let windows = windows(&config, &lengths);
        let batch = collated(&windows, &device);
        let plain = collated(&windows, &device.clone().inner());
        let exchange = Exchange::new(
            |dir| model.save_pretrained(dir).expect("a checkpoint"),
            json!({
                "input_ids": rows(&plain),
                "labels": labels(&windows, &plain),
                "attention_mask": case.padded.then(|| attention_mask(&lengths, case.shape[1])),
            }),
        );
        if let Some(torch) = &mut *torch.borrow_mut() {
            let own = model.valid().forward(&plain).loss.into_scalar::<f64>();
            for kind in if case.fastest { &["fused"][..] } else { &["every", "masked"] } {
                assert_same_loss(own, torch.loss(&exchange.case(kind)));
            }
        }
        let can_bf16 = Precision::Bf16.check(&device).is_ok();
        let mut rounded = Training::new(model.clone());
        let mut training = Training::new(model);
        let loss = |model: &BertForMaskedLm| model.forward(&batch).loss;
        let loss_in_bf16 = |model: &BertForMaskedLm| autocast(Precision::Bf16, || loss(model));
        let mut step = || training.step(loss);
        let mut step_in_bf16 = || rounded.step(loss_in_bf16);
        let ask = |kind: &str, steps| {
            if case.fastest && matches!(kind, "every" | "masked") {
                return Vec::new();
            }
            let mut torch = torch.borrow_mut();
            torch.as_mut().map_or_else(Vec::new, |torch| torch.time(&exchange.case(kind), steps))
        };
        let [own, every, masked, fused, tf32, own_bf16, bf16] = race
            .run([
                Box::new(|steps| time(steps, &mut step)),
                Box::new(|steps| ask("every", steps)),
                Box::new(|steps| ask("masked", steps)),
                Box::new(|steps| ask("fused", steps)),
                Box::new(|steps| if has_tf32 { ask("tf32", steps) } else { Vec::new() }),
                Box::new(|steps| if can_bf16 { time(steps, &mut step_in_bf16) } else { Vec::new() }),
                Box::new(|steps| ask("bf16", steps)),
            ])
            .map(|milliseconds| lengths.iter().sum::<usize>() as f64 / milliseconds * 1e3);
        let others = [every, masked, fused, tf32].map(|other| rate_against(own, other)).join(" | ");
        let in_bf16 = rate_against(own_bf16, bf16);
        println!("| {name} | {own:.0} | {others} | {} | {in_bf16} |", rate(own_bf16));
        if can_bf16 {
            let ((), peak) = count(&mut step_in_bf16);
            let theirs = torch.borrow_mut().as_mut().map(|torch| torch.peak(&exchange.case("bf16")));
            let name = format!("{name}, bf16");
            notes.push(note(&name, &rounded.breakdown(loss_in_bf16), peak.peak, theirs));
        }
        drop(rounded);
        let ((), peak) = count(&mut step);
        let theirs = torch.borrow_mut().as_mut().map(|torch| torch.peak(&exchange.case("fused")));
        notes.push(note(&name, &training.breakdown(loss), peak.peak, theirs));
    }
    println!("\n{}", notes.join("\n"));
}

/// The batch that everyone trains on.
#[allow(dead_code)] // every benchmark takes what it needs
pub fn batch(config: &BertModelConfig, shape: [usize; 2], device: &Device) -> MaskedLmBatch {
    collated(&windows(config, &vec![shape[1]; shape[0]]), device)
}

fn with_dropout(config: &BertModelConfig, drops: bool) -> BertModelConfig {
    if drops {
        return config.clone();
    }
    let embeddings = config.embeddings.clone().with_hidden_dropout_prob(0.0);
    let mut config = config.clone().with_attention_probs_dropout_prob(0.0);
    config.embeddings = embeddings;
    config
}

/// Ids without a mask among them.
fn windows(config: &BertModelConfig, lengths: &[usize]) -> Vec<Vec<u32>> {
    let vocab_size = config.embeddings.vocab_size as u32;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut window = |&seq| (0..seq).map(|_| rng.random_range(MASK + 1..vocab_size)).collect();
    lengths.iter().map(&mut window).collect()
}

/// All masked tokens become `[MASK]`, so that the peer can be told which they are.
fn collated(windows: &[Vec<u32>], device: &Device) -> MaskedLmBatch {
    let config = MaskedLmCollatorConfig::new(30_522, MASK, 0, vec![0, MASK]).with_mask_replace_prob(1.0);
    let collator = config.with_random_replace_prob(0.0).init();
    let windows: Vec<_> = windows.iter().cloned().map(MaskedLmExample::new).collect();
    collator.collate(&windows, 0, device).expect("windows of one length")
}

fn rows(batch: &MaskedLmBatch) -> Vec<Vec<u32>> {
    let ids: Vec<u32> = batch.input.input_ids().expect("ids").into_data().iter().collect();
    let [_, seq] = batch.input.dims();
    ids.chunks(seq).map(<[u32]>::to_vec).collect()
}

/// What the masked tokens were, −100 elsewhere.
fn labels(windows: &[Vec<u32>], batch: &MaskedLmBatch) -> Vec<Vec<i64>> {
    let label = |(column, &shown): (usize, &u32), window: &[u32]| {
        if shown == MASK { i64::from(window[column]) } else { -100 }
    };
    let rows = rows(batch);
    windows
        .iter()
        .zip(&rows)
        .map(|(window, row)| row.iter().enumerate().map(|shown| label(shown, window)).collect())
        .collect()
}
