use super::arguments::{EvalStrategy, TrainingArguments};
use super::callback::Progress;
use crate::data::steps;
use crate::error::{Error, Result};
use crate::optim::layer_wise_decay;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;

/// How a run is divided into parts, after each of which it is evaluated and saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) parts: usize,
    /// Optimizer steps of a part.
    pub(super) steps: usize,
    /// Whether a part is a number of steps and not an epoch, and how many parts an epoch has, if it counts.
    pub(super) parts_of_epoch: Option<usize>,
    steps_of_epoch: usize,
}

impl Plan {
    pub(super) fn new(arguments: &TrainingArguments, items: usize) -> Result<Self> {
        // Devices of this process, or processes.
        let ranks = arguments.ranks.size().max(arguments.devices.len());
        let steps_of_epoch = steps(items, arguments.batch_size * ranks, ranks);
        let steps_of_epoch = steps_of_epoch.div_ceil(arguments.gradient_accumulation_steps);
        let plan = |parts, steps, parts_of_epoch| Ok(Self { parts, steps, parts_of_epoch, steps_of_epoch });
        let invalid = |problem: String| Err(Error::config("max_steps", problem));
        match (arguments.eval_strategy, arguments.max_steps) {
            (EvalStrategy::Epoch, None) => plan(arguments.epochs, steps_of_epoch, None),
            (EvalStrategy::Steps(interval), None) => {
                // By the epoch and not by the run, so that a run of more epochs has the same parts.
                let parts = ((steps_of_epoch as f64 / interval as f64).round() as usize).max(1);
                plan(parts * arguments.epochs, steps_of_epoch.div_ceil(parts), Some(parts))
            }
            (EvalStrategy::Epoch, Some(steps)) => invalid(format!(
                "is {steps}, but the run is evaluated by epochs; set eval_strategy to EvalStrategy::Steps"
            )),
            (EvalStrategy::Steps(interval), Some(steps)) if !steps.is_multiple_of(interval) => invalid(
                format!("is {steps}, but must be a multiple of the {interval} steps of eval_strategy"),
            ),
            (EvalStrategy::Steps(steps), Some(all)) => plan(all / steps, steps, Some(0)),
        }
    }

    /// How far a run has come after so many steps.
    pub(super) fn progress(&self, step: usize) -> Progress {
        let epoch = |steps: usize| steps as f64 / self.steps_of_epoch as f64;
        let steps = self.parts * self.steps;
        Progress { step, steps, epoch: epoch(step), epochs: epoch(steps) }
    }

    /// The batches of a part on a rank, if it is not an epoch.
    pub(super) fn batches(&self, accumulated: usize) -> Option<usize> {
        self.parts_of_epoch.map(|_| self.steps * accumulated)
    }

    /// The learning rates of a run, after so many parts.
    pub(super) fn schedule(
        &self,
        arguments: &TrainingArguments,
        finished: usize,
        layers: usize,
    ) -> Result<ModuleLrScheduler> {
        let total = self.parts * self.steps;
        // Rounded down: with a ratio below 1 a step is left after the warm-up.
        let warmup = arguments.warmup_steps.unwrap_or((total as f64 * arguments.warmup_ratio) as usize);
        // Not from the step that a checkpoint has: with another number of ranks, an epoch has another number of steps.
        let done = finished.saturating_mul(self.steps);
        let schedule = arguments.lr_schedule.at_step(Some(done), arguments.learning_rate, warmup, total)?;
        match arguments.layer_decay {
            Some(decay) => layer_wise_decay(schedule, layers, decay),
            None => Ok(schedule),
        }
    }
}
