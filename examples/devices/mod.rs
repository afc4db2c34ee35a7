//! Where a training runs: on devices of this machine, or on workers.

use anyhow::Result;
#[cfg(feature = "remote")]
use anyhow::{Context, ensure};
use burn::prelude::*;
use burn::train::renderer::MetricsRenderer;
use burn::train::{ExecutionStrategy, Interrupter, MultiDeviceOptim};
use burn_bert::training::{ProgressLines, progress};
use clap::Args;
#[cfg(feature = "remote")]
use std::path::PathBuf;

/// The workers of a training; `examples/worker.rs` is one.
#[derive(Args, Clone, Debug)]
pub struct Workers {
    /// Workers that share each optimiser step, each device of theirs with its own batches, in the place of this
    /// machine's devices. The first one holds the weights.
    #[cfg(feature = "remote")]
    #[arg(long, value_name = "ws://HOST:PORT", value_delimiter = ',')]
    workers: Vec<String>,

    /// A file with the token that the workers ask for, in its first line.
    #[cfg(feature = "remote")]
    #[arg(long, value_name = "FILE", requires = "workers")]
    token_file: Option<PathBuf>,

    /// Seconds that a worker may take to answer before the training ends with an error.
    #[cfg(feature = "remote")]
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "workers")]
    patience_of_workers: u64,
}

impl Workers {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        #[cfg(feature = "remote")]
        return !self.workers.is_empty();
        #[cfg(not(feature = "remote"))]
        false
    }

    /// Trains on the devices of the workers, or without workers on those that `local` gives. An error names the worker
    /// that was lost.
    #[cfg(feature = "remote")]
    pub fn train(
        &self,
        local: impl FnOnce() -> Result<Vec<Device>>,
        training: impl FnOnce(Vec<Device>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        if !self.any() {
            return training(local()?);
        }
        let mut config = burn_bert::remote::WorkersConfig::new(self.workers.clone())
            .with_patience(std::time::Duration::from_secs(self.patience_of_workers));
        if let Some(path) = &self.token_file {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let token = text.lines().next().unwrap_or_default().trim();
            ensure!(!token.is_empty(), "{} has no token in its first line", path.display());
            config = config.with_token(token);
        }
        let workers = config.connect()?;
        let devices = workers.devices();
        workers.watch(move || training(devices))
    }

    /// Trains on the devices that `local` gives.
    #[cfg(not(feature = "remote"))]
    pub fn train(
        &self,
        local: impl FnOnce() -> Result<Vec<Device>>,
        training: impl FnOnce(Vec<Device>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        training(local()?)
    }

    /// How the progress is shown. A training that lost a worker is abandoned, and could not give a terminal back that
    /// the dashboard holds.
    pub fn progress(&self, interrupter: &Interrupter, finished_epochs: usize) -> Box<dyn MetricsRenderer> {
        if self.any() { Box::new(ProgressLines::default()) } else { progress(interrupter, finished_epochs) }
    }
}

/// One device, or several that share each step; the first holds the weights.
pub fn strategy(devices: &[Device]) -> ExecutionStrategy {
    match devices {
        [device] => ExecutionStrategy::single(device.clone().autodiff()),
        devices => {
            let devices = devices.iter().map(|device| device.clone().autodiff()).collect();
            ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice)
        }
    }
}
