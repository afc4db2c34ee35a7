//! Learning-rate schedules: warm-up and decay, and a rate for each layer or group of parameters.

use crate::error::{Error, Result};
use burn::module::ParamGroup;
use burn::optim::LearningRate;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::optim::lr_scheduler::{LrScheduler, LrSchedulerRecord};
use serde::Serialize;
use std::f64::consts::PI;

const STEP: &str = "step";

/// How a learning rate falls after its warm-up; transformers' `lr_scheduler_type`.
///
/// ```
/// use burn_bert::optim::LrSchedule;
///
/// let mut schedule = LrSchedule::Cosine.with_warmup(1.0, 1, 5)?;
/// let rates = [(); 5].map(|()| (schedule.step().base() * 1000.0).round());
/// assert_eq!(rates, [500.0, 1000.0, 854.0, 500.0, 146.0]);
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum LrSchedule {
    /// Along a line to 0 at the last step (`get_linear_schedule_with_warmup`, which has a rate of 0 in the first step).
    #[default]
    Linear,
    /// Along half a cosine to 0 at the last step.
    Cosine,
    /// Not at all.
    Constant,
}

impl LrSchedule {
    /// A learning rate that grows linearly to `peak` over `warmup` steps and then follows the schedule until step `total`.
    ///
    /// At step t = 0, 1, … it is `peak` · (t + 1) / (`warmup` + 1) for t ≤ `warmup`. After that, with x = (t − `warmup`) /
    /// (`total` − `warmup`), at most 1, it is `peak` times 1 − x, (1 + cos πx) / 2 or 1. A record holds the step alone, so a
    /// run that is continued with another `total` follows the new schedule from there on.
    ///
    /// Returns [`Error::Data`] if `peak` is not in (0, 1] or `warmup` is not below `total`.
    pub fn with_warmup(self, peak: f64, warmup: usize, total: usize) -> Result<ModuleLrScheduler> {
        self.at_step(None, peak, warmup, total)
    }

    /// [`with_warmup`](Self::with_warmup) from a step on, whatever a record says, if there is one.
    pub(crate) fn at_step(
        self,
        step: Option<usize>,
        peak: f64,
        warmup: usize,
        total: usize,
    ) -> Result<ModuleLrScheduler> {
        if warmup >= total {
            let problem = format!("is {warmup}, but must be less than the {total} steps in total");
            return Err(Error::data("warmup", problem));
        }
        if !(peak > 0.0 && peak <= 1.0) {
            let problem = format!("is {peak:?}, but must lie in (0, 1]");
            return Err(Error::data("peak", problem));
        }
        let reads_records = step.is_none();
        Ok(WarmupLr { schedule: self, peak, warmup, total, step: step.unwrap_or(0), reads_records }.into())
    }
}

#[derive(Clone)]
struct WarmupLr {
    schedule: LrSchedule,
    peak: f64,
    warmup: usize,
    total: usize,
    step: usize,
    reads_records: bool,
}

impl LrScheduler for WarmupLr {
    fn step(&mut self) -> LearningRate {
        let Self { schedule, peak, warmup, total, step, .. } = *self;
        self.step = step.saturating_add(1);
        if step < warmup {
            let first = peak / (warmup + 1) as f64;
            return peak - (peak - first) / warmup as f64 * (warmup - step) as f64;
        }
        let left = total.saturating_sub(step) as f64;
        let all = (total - warmup) as f64;
        match schedule {
            LrSchedule::Linear => peak / all * left,
            LrSchedule::Cosine => peak * (1.0 - (PI * left / all).cos()) / 2.0,
            LrSchedule::Constant => peak,
        }
    }

    fn to_record(&self) -> LrSchedulerRecord {
        LrSchedulerRecord::new().with_scalar(STEP, self.step)
    }

    fn load_record(&mut self, record: LrSchedulerRecord) {
        // A record of another scheduler has no such number, and leaves this one at its start.
        if let Some(step) = record.scalar::<u64>(STEP).filter(|_| self.reads_records) {
            self.step = step as usize;
        }
    }
}

/// The rates of another schedule times a factor, for a group of parameters. [The module](super) has an example.
#[derive(Clone)]
pub struct ScaledLr {
    schedule: ModuleLrScheduler,
    factor: f64,
}

impl ScaledLr {
    /// The base rates of `schedule`, those of parameters without a group, times `factor`, from its current step on.
    /// Returns [`Error::Data`] if the factor is not finite and at least 0.
    pub fn new(schedule: &ModuleLrScheduler, factor: f64) -> Result<Self> {
        if factor.is_finite() && factor >= 0.0 {
            return Ok(Self { schedule: schedule.clone(), factor });
        }
        let problem = format!("is {factor}, but must be finite and at least 0");
        Err(Error::data("factor", problem))
    }
}

impl LrScheduler for ScaledLr {
    fn step(&mut self) -> LearningRate {
        self.schedule.step().base() * self.factor
    }

    fn to_record(&self) -> LrSchedulerRecord {
        self.schedule.to_record()
    }

    fn load_record(&mut self, record: LrSchedulerRecord) {
        self.schedule = self.schedule.clone().load_record(record);
    }
}

/// A schedule with layer-wise decay: the further a layer is from the head, the lower its learning rate. With η the rate
/// of `schedule` and L = `num_hidden_layers`:
///
/// ```text
/// pooler and head      η
/// layer l = 0 … L − 1  η · decay^(L − l)
/// embeddings           η · decay^(L + 1)
/// ```
///
/// The embeddings' projection and MPNet's table of relative positions count as embeddings, ALBERT's one layer as L = 1.
/// Parameters are recognised by their paths, in every model of this crate. Groups that are added later take precedence.
/// Returns [`Error::Data`] if `decay` is not in (0, 1].
///
/// ```
/// use burn_bert::optim::{LrSchedule, layer_wise_decay};
///
/// let mut schedule = layer_wise_decay(LrSchedule::Linear.with_warmup(1e-4, 0, 10)?, 12, 0.5)?;
/// let rates = schedule.step(); // what `optimizer.step` takes
/// let rate = |path| rates.lr_from_param(0.into(), Some(path));
/// assert_eq!(rate("classifier.out_proj.weight"), 1e-4);
/// assert_eq!(rate("bert.encoder.layers.11.output.weight"), 0.5e-4);
/// assert_eq!(rate("bert.encoder.layers.10.output.weight"), 0.25e-4);
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// Source: `LayerDecayValueAssigner` of microsoft/unilm (BEiT). ELECTRA's `_get_layer_lrs` has one power more in
/// layers and embeddings.
pub fn layer_wise_decay(
    schedule: ModuleLrScheduler,
    num_hidden_layers: usize,
    decay: f64,
) -> Result<ModuleLrScheduler> {
    if !(decay > 0.0 && decay <= 1.0) {
        let problem = format!("is {decay}, but must lie in (0, 1]");
        return Err(Error::data("decay", problem));
    }
    let layers = (0..num_hidden_layers).map(|layer| (format!(r"encoder\.layers\.{layer}"), layer + 1));
    // In any model: the fields of the embedding layer, and what is read with it.
    let below =
        "(((word|position|token_type)_)?embeddings|embeddings_projection|relative_attention_bias|distances)";
    let groups = layers.chain([(below.to_string(), 0)]);
    // Every group scales the rates without groups, not those of the group before it.
    let all = schedule.clone();
    groups.into_iter().try_fold(schedule, |schedule, (path, depth)| {
        let group = ParamGroup::from_regex(format!(r"(^|\.){path}\.")).expect("the pattern is valid");
        let power = (num_hidden_layers + 1 - depth) as i32;
        Ok(schedule.with_group(group, ScaledLr::new(&all, decay.powi(power))?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_of_another_length_begins_at_its_own_step_whatever_a_record_says() {
        // A quarter of 40 steps was done; the rest is that of 12 steps.
        let mut begun = LrSchedule::Linear.with_warmup(1.0, 0, 40).unwrap();
        (0..10).for_each(|_| drop(begun.step()));
        let resumed = LrSchedule::Linear.at_step(Some(3), 1.0, 0, 12).unwrap();
        let mut resumed = layer_wise_decay(resumed, 1, 0.5).unwrap().load_record(begun.to_record());
        let rates = resumed.step();
        assert_eq!(rates.base(), 0.75);
        assert_eq!(rates.lr_from_param(0.into(), Some("encoder.layers.0.output.weight")), 0.375);
    }
}
