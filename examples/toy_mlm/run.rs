//! The two models and the loop that trains them.

use crate::task::{Task, collator};
use anyhow::{Context, Result, ensure};
use burn::module::Param;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn_bert::BertEmbeddings;
use burn_bert::model::{BertForMaskedLm, MaskedLmBatch};
use burn_bert::training::{MaskedLmCollator, MaskedLmExample};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::io::IsTerminal;

/// Steps over which the learning rate rises to its full value.
const WARM_UP: usize = 50;

/// A model in training.
pub struct Learner {
    pub model: BertForMaskedLm,
    pub optimizer: ModuleOptimizer,
    /// The loss of every step so far.
    pub losses: Vec<f32>,
}

impl Learner {
    fn new(model: BertForMaskedLm) -> Self {
        // No weight decay: it would move rows that no batch has used.
        let optimizer = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.0).init();
        Self { model, optimizer, losses: Vec::new() }
    }

    fn step(&mut self, batch: &MaskedLmBatch, learning_rate: f64) {
        let loss = self.model.forward(batch).loss;
        self.losses.push(loss.clone().into_scalar());
        let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
        self.model = self.optimizer.step(learning_rate, self.model.clone(), gradients);
    }
}

/// Loss and accuracy on the held-out batches.
#[derive(Clone, Copy)]
pub struct Score {
    pub loss: f64,
    pub accuracy: f64,
}

pub struct Run<'a> {
    pub task: &'a dyn Task,
    pub seed: u64,
    pub device: Device,
    /// Learns its position table.
    pub learned: Learner,
    /// Has its position table held at zero.
    pub without_positions: Learner,
    /// The first weights of the learned model's input layer.
    pub initial: BertEmbeddings,
    /// Its held-out loss with them.
    pub initial_loss: f32,
    collator: MaskedLmCollator,
}

impl<'a> Run<'a> {
    pub fn new(task: &'a dyn Task, seed: u64, device: &Device) -> Result<Self> {
        let training = device.clone().autodiff();
        let config = task.model().with_train_padding_row(false);
        device.seed(seed);
        let model = config.init(&training);
        let initial = model.valid(); // draws the weights
        let collator = collator(config.bert.embeddings.vocab_size).init();
        let mut run = Self {
            task,
            seed,
            device: training,
            learned: Learner::new(model.clone()),
            without_positions: Learner::new(hold_positions_at_zero(model)),
            initial: initial.bert.embeddings.clone(),
            initial_loss: f32::NAN,
            collator,
        };
        run.initial_loss = run.score(&initial)?.loss as f32;
        Ok(run)
    }

    /// Steps done so far.
    pub fn steps(&self) -> usize {
        self.learned.losses.len()
    }

    /// Trains both models on the same batches up to step `steps`, with a progress bar where there is a terminal.
    pub fn train_until(&mut self, steps: usize) -> Result<()> {
        ensure!(self.steps() <= steps, "{} steps are done already, more than --steps {steps}", self.steps());
        let bar = ProgressBar::new(steps as u64).with_position(self.steps() as u64);
        bar.set_style(ProgressStyle::with_template(
            "{bar:30} {pos}/{len} steps, {elapsed} (left {eta})  {msg}",
        )?);
        let is_terminal = std::io::stderr().is_terminal();
        while self.steps() < steps {
            let step = self.steps();
            let batch =
                self.collator.collate(&self.task.batch(step), self.seed + step as u64, &self.device)?;
            let warm_up = ((step + 1) as f64 / WARM_UP as f64).min(1.0);
            let learning_rate = self.task.learning_rate() * warm_up;
            for learner in [&mut self.learned, &mut self.without_positions] {
                // Dropout follows from seed and step alone, so a resumed run sees what this one sees.
                self.device.seed(self.seed.wrapping_mul(0x9E37_79B9).wrapping_add(step as u64));
                learner.step(&batch, learning_rate);
            }
            let message = format!(
                "loss {:.3}, without positions {:.3}",
                self.learned.losses[step], self.without_positions.losses[step]
            );
            if !is_terminal && (step + 1).is_multiple_of(steps.div_ceil(10)) {
                println!("step {}: {message}", step + 1);
            }
            bar.set_message(message);
            bar.inc(1);
        }
        bar.finish();
        Ok(())
    }

    /// Scores a model on the held-out batches, where every masked token is `[MASK]`.
    pub fn score(&self, model: &BertForMaskedLm) -> Result<Score> {
        let model = model.valid();
        let (mut cost, mut correct, mut count) = (0.0, 0, 0);
        for batch in self.held_out()? {
            let output = model.forward(&batch);
            let (Some(logits), Some(labels)) = (output.logits, batch.labels()) else { continue };
            let masked = batch.num_masked();
            cost += output.loss.into_scalar::<f64>() * masked as f64;
            let guesses = logits.argmax(1).squeeze_dim::<1>(1);
            correct += guesses.equal(labels).int().sum().into_scalar::<i64>();
            count += masked;
        }
        ensure!(count > 0, "no held-out token is masked; with --text, give a longer text");
        Ok(Score { loss: cost / count as f64, accuracy: correct as f64 / count as f64 })
    }

    /// The held-out batches, on the plain device.
    pub fn held_out(&self) -> Result<Vec<MaskedLmBatch>> {
        let vocab_size = self.learned.model.bert.embeddings.word_embeddings.num_embeddings();
        let collator = collator(vocab_size).with_mask_replace_prob(1.0).with_random_replace_prob(0.0).init();
        let device = self.device.clone().without_autodiff();
        let collate = |(seed, batch): (u64, Vec<MaskedLmExample>)| {
            collator.collate(&batch, seed, &device).with_context(|| format!("held-out batch {seed}"))
        };
        (0..).zip(self.task.held_out()).map(collate).collect()
    }

    /// The rows of the position table that training has looked up.
    pub fn used_positions(&self) -> BTreeSet<usize> {
        let positions = |example: &MaskedLmExample| match example.position_ids() {
            Some(ids) => ids.iter().map(|&id| id as usize).collect(),
            None => (0..example.len()).collect::<Vec<_>>(),
        };
        (0..self.steps())
            .flat_map(|step| self.task.batch(step))
            .flat_map(|example| positions(&example))
            .collect()
    }
}

fn hold_positions_at_zero(mut model: BertForMaskedLm) -> BertForMaskedLm {
    if let Some(table) = &mut model.bert.embeddings.position_embeddings {
        let zeros = table.weight.val().zeros_like();
        table.weight = Param::from_tensor(zeros).set_require_grad(false);
    }
    model
}
