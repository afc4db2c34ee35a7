//! What the benches of whole models have in common: sizes, checkpoints that the peers read, and the phases of a step.

#![allow(dead_code)] // every benchmark takes what it needs

use burn::optim::GradientsParams;
use burn::prelude::*;
use burn_bert::BertEmbeddingsConfig;
use burn_bert::model::BertModelConfig;
use burn_bert::optim::{AdamWConfig, ClippedAdamW};
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;

pub fn models() -> [(&'static str, BertModelConfig); 2] {
    let mini_lm = BertModelConfig::new(BertEmbeddingsConfig::bert_base_uncased().with_hidden_size(384))
        .with_num_hidden_layers(6)
        .with_intermediate_size(1536);
    [("MiniLM-L6 (6 layers, H 384)", mini_lm), ("BERT-base", BertModelConfig::bert_base_uncased())]
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
    optimizer: ClippedAdamW,
    /// Milliseconds of each step's forward, backward, and clipping with AdamW.
    pub phases: Vec<[f64; 3]>,
}

impl<M: Module> Training<M> {
    pub fn new(model: M) -> Self {
        let optimizer = ClippedAdamW::new(&AdamWConfig::new(), 1.0);
        Self { model: Some(model), optimizer, phases: Vec::new() }
    }

    pub fn step(&mut self, loss: impl FnOnce(&M) -> Tensor<1>) {
        let model = self.model.take().expect("the model");
        let start = Instant::now();
        let loss = loss(&model);
        let forward = start.elapsed();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let backward = start.elapsed();
        let (model, _norm) = self.optimizer.step(1e-4, model, gradients);
        let all = start.elapsed();
        let phases = [forward, backward - forward, all - backward];
        self.phases.push(phases.map(|time| time.as_secs_f64() * 1e3));
        self.model = Some(model);
    }

    /// The median of each phase, in words.
    pub fn breakdown(&self) -> String {
        let [forward, backward, update] =
            [0, 1, 2].map(|phase| median(self.phases.iter().map(|phases| phases[phase]).collect()));
        format!("forward {forward:.0} ms, backward {backward:.0} ms, clipping and AdamW {update:.1} ms")
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Asserts that both compute the same loss, without dropout, before anything is timed.
pub fn assert_same_loss(own: f64, peer: f64) {
    assert!((own - peer).abs() < 1e-3 * peer.abs(), "the losses differ: {own} here, {peer} there");
}

/// `theirs | ratio` of rates, ours to theirs; dashes for a contestant that does not take part.
pub fn rate_against(own: f64, other: f64) -> String {
    if other.is_nan() { "— | —".into() } else { format!("{other:.0} | {:.2}×", own / other) }
}

/// The same of times.
pub fn time_against(own: f64, other: f64) -> String {
    if other.is_nan() { "— | —".into() } else { format!("{other:.0} | {:.2}×", other / own) }
}

pub fn megabytes(bytes: usize) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}
