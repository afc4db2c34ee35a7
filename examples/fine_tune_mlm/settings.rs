//! The settings of a run.

use crate::command_line::{count, factor, not_negative};
use anyhow::{Context, Result, ensure};
use burn_bert::functional::Precision;
use clap::Args;

/// A run is resumed with the settings that it began with.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Optimiser steps.
    #[arg(long, default_value_t = 200, value_parser = count())]
    pub steps: usize,

    /// Optimiser steps between validations; each is followed by a checkpoint.
    #[arg(long, default_value_t = 50, value_parser = count())]
    pub eval_every: usize,

    /// Windows in a batch.
    #[arg(long, default_value_t = 8, value_parser = count())]
    pub batch_size: usize,

    /// Batches in an optimiser step (gradient accumulation).
    #[arg(long, default_value_t = 1, value_parser = count())]
    pub accumulation: usize,

    /// GPUs that share each optimiser step, each with its own batches: those of the first kind that is compiled in and
    /// has that many. With more than one, the order of dropout's seeds varies, and no run repeats another exactly.
    #[arg(long, default_value_t = 1, value_parser = count())]
    pub devices: usize,

    /// Tokens in a window, [CLS] and [SEP] included; at most the model's limit, 512 for BERT.
    #[arg(long, default_value_t = 128)]
    pub seq_len: usize,

    /// Maximum number of validation windows, from all over the text. One in twenty is held out and not trained on.
    #[arg(long, default_value_t = 64, value_parser = count())]
    pub held_out: usize,

    /// The peak learning rate: warm-up over the first tenth of the steps, then linear decay to 0.
    #[arg(long, default_value_t = 5e-5, value_parser = factor)]
    pub learning_rate: f64,

    /// AdamW's weight decay; biases and LayerNorm are not decayed.
    #[arg(long, default_value_t = 0.01, value_parser = not_negative)]
    pub weight_decay: f64,

    /// The largest norm of all gradients together; 0 for no limit.
    #[arg(long, default_value_t = 1.0, value_parser = not_negative)]
    pub max_grad_norm: f64,

    /// What matmuls are computed in: f32 or bf16.
    #[arg(long, default_value_t)]
    pub precision: Precision,

    /// The share of tokens that are masked.
    #[arg(long, default_value_t = 0.15, value_parser = not_negative)]
    pub mlm_probability: f64,

    /// Mask whole words instead of single tokens.
    #[arg(long)]
    pub whole_words: bool,

    /// Stop when the held-out loss has not fallen for this many validations, and save the best model.
    #[arg(long, value_name = "VALIDATIONS", value_parser = count())]
    pub patience: Option<usize>,

    /// The seed of all random numbers.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

impl Settings {
    /// Validations, which are the epochs of Burn's trainer.
    pub fn epochs(&self) -> usize {
        self.steps.div_ceil(self.eval_every)
    }

    /// Steps in which the learning rate grows.
    pub fn warmup(&self) -> usize {
        self.steps / 10
    }

    /// For [`Training`](burn_bert::training::Training).
    pub fn max_grad_norm(&self) -> f64 {
        match self.max_grad_norm {
            0.0 => f64::INFINITY,
            norm => norm,
        }
    }

    /// Batches between validations, of all devices together.
    pub fn batches(&self, devices: usize) -> Result<usize> {
        let batches = self.eval_every.checked_mul(self.accumulation);
        let batches = batches.and_then(|batches| batches.checked_mul(devices));
        batches.context("--eval-every times --accumulation is too large")
    }

    pub fn validate(&self) -> Result<()> {
        ensure!(
            self.steps.is_multiple_of(self.eval_every),
            "--steps {} is not a multiple of --eval-every {}",
            self.steps,
            self.eval_every
        );
        Ok(())
    }
}
