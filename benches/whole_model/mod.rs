//! What the benches of whole models have in common: sizes, checkpoints that the peers read, and the phases of a step.

#![allow(dead_code)] // every benchmark takes what it needs

use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn_bert::BertEmbeddingsConfig;
use burn_bert::model::BertModelConfig;
use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm, step};
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;

pub fn models() -> [(&'static str, BertModelConfig); 2] {
    let mini_lm = BertModelConfig::new(BertEmbeddingsConfig::bert_base_uncased().with_hidden_size(384))
        .with_num_hidden_layers(6)
        .with_intermediate_size(1536);
    [("MiniLM-L6 (6 layers, H 384)", mini_lm), ("BERT-base", BertModelConfig::bert_base_uncased())]
}

/// Those, and one with windows, gates and rotary positions.
pub fn models_and_modern_bert() -> Vec<(&'static str, BertModelConfig)> {
    models().into_iter().chain([("ModernBERT-base", BertModelConfig::modernbert_base())]).collect()
}

/// Those whose positions are rotary or disentangled, and how long their sequences may be.
pub fn newer_encoders() -> Vec<(&'static str, BertModelConfig)> {
    let mut nomic = BertModelConfig::nomic_embed_text_v1_5();
    nomic.embeddings.max_position_embeddings = 4096; // no weight depends on it
    vec![
        ("ModernBERT-base", BertModelConfig::modernbert_base()),
        ("nomic-embed-text-v1.5", nomic),
        ("DeBERTa-v3-base", BertModelConfig::deberta_v3_base()),
    ]
}

/// After `-- MODE`, which part of a row's name it has to have to be measured; empty for all rows.
pub fn part_after(mode: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != mode);
    arguments.next()?;
    Some(arguments.find(|argument| !argument.starts_with('-')).unwrap_or_default())
}

/// A batch for classification or inference, [B, S].
pub const SHAPE: [usize; 2] = [16, 128];

/// Half of the rectangle is padding: rows get longer in equal steps, and the last has none.
pub fn lengths([batch, seq]: [usize; 2]) -> Vec<usize> {
    let shorter = (1..batch).map(|row| row * seq * (batch - 2) / (batch * (batch - 1)));
    shorter.chain([seq]).collect()
}

/// Sequences without padding.
pub fn full([batch, seq]: [usize; 2]) -> Vec<Vec<u32>> {
    (0..batch)
        .map(|row| (0..seq).map(|column| 1000 + (row * seq + column) as u32 * 7919 % 29_000).collect())
        .collect()
}

/// The same, with padding after their [`lengths`].
pub fn padded(shape: [usize; 2]) -> Vec<Vec<u32>> {
    let mut rows = full(shape);
    for (row, length) in rows.iter_mut().zip(lengths(shape)) {
        row[length..].fill(0);
    }
    rows
}

/// 1 for the tokens of sequences of these lengths, 0 for their padding.
pub fn attention_mask(lengths: &[usize], seq: usize) -> Vec<Vec<u8>> {
    lengths.iter().map(|&length| (0..seq).map(|column| u8::from(column < length)).collect()).collect()
}

/// A directory with a checkpoint and `batch.json`, which the peer reads.
pub struct Exchange(TempDir);

impl Exchange {
    pub fn new(save: impl FnOnce(&Path), batch: serde_json::Value) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        save(dir.path());
        std::fs::write(dir.path().join("batch.json"), batch.to_string()).expect("room on the disk");
        Self(dir)
    }

    /// The peer's case of this kind.
    pub fn case(&self, kind: &str) -> String {
        format!("{kind} {}", self.0.path().display())
    }
}

/// A model and what trains it.
pub struct Training<M> {
    model: Option<M>,
    optimizer: ModuleOptimizer,
}

impl<M: Module> Training<M> {
    pub fn new(model: M) -> Self {
        Self { model: Some(model), optimizer: adamw(&AdamWConfig::new()).unwrap() }
    }

    /// One step, until the device has done it.
    pub fn step(&mut self, loss: impl FnOnce(&M) -> Tensor<1>) {
        self.run(loss, |_, _| ());
    }

    /// The median of each phase over three steps, in words. The device is waited for after each.
    pub fn breakdown(&mut self, loss: impl Fn(&M) -> Tensor<1>) -> String {
        let mut times = [const { Vec::new() }; PHASES];
        for _ in 0..3 {
            let mut start = Instant::now();
            self.run(&loss, |phase, device| {
                device.sync().expect("the device works");
                times[phase].push(start.elapsed().as_secs_f64() * 1e3);
                start = Instant::now();
            });
        }
        let [forward, backward, update] = times.map(median);
        format!("forward {forward:.0} ms, backward {backward:.0} ms, clipping and AdamW {update:.1} ms")
    }

    /// A step that says when each of its phases was asked for.
    fn run(&mut self, loss: impl FnOnce(&M) -> Tensor<1>, mut after: impl FnMut(usize, &Device)) {
        let model = self.model.take().expect("the model");
        let loss = loss(&model);
        let device = loss.device();
        after(0, &device);
        let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
        after(1, &device);
        clip_by_global_norm(&model, &mut gradients, 1.0).unwrap();
        self.model = Some(step(&mut self.optimizer, 1e-4, model, gradients));
        after(2, &device);
        device.sync().expect("the device works");
    }
}

/// Forward, backward, and clipping with AdamW.
const PHASES: usize = 3;

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Asserts that both compute the same loss, without dropout, before anything is timed.
pub fn assert_same_loss(own: f64, peer: f64) {
    assert!((own - peer).abs() < 1e-3 * peer.abs(), "the losses differ: {own} here, {peer} there");
}

/// A rate, or a time; a dash for a contestant that does not take part.
pub fn rate(own: f64) -> String {
    if own.is_nan() { "—".into() } else { shown(own) }
}

/// In three digits, if there are no more before the point.
fn shown(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// `theirs | ratio` of rates, ours to theirs; dashes for a contestant that does not take part.
pub fn rate_against(own: f64, other: f64) -> String {
    if other.is_nan() { "— | —".into() } else { format!("{other:.0} | {:.2}×", own / other) }
}

/// The same of times.
pub fn time_against(own: f64, other: f64) -> String {
    if other.is_nan() { "— | —".into() } else { format!("{} | {:.2}×", shown(other), other / own) }
}

/// What is said about a model below the table: the parts of its step, and its peaks of memory here and in PyTorch.
pub fn note(name: &str, breakdown: &str, peak: usize, theirs: Option<usize>) -> String {
    let megabytes = |bytes: usize| format!("{:.0} MB", bytes as f64 / 1e6);
    let theirs = theirs.map_or_else(String::new, |peak| format!("; PyTorch's {}", megabytes(peak)));
    format!("- {name}: {breakdown}; peak of a step in the host's memory {}{theirs}", megabytes(peak))
}
