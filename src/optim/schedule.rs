//! Learning-rate schedules: warm-up with linear decay, and a rate for each layer or group of parameters.

use crate::error::{Error, Result};
use burn::module::ParamGroup;
use burn::optim::LearningRate;
use burn::optim::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::optim::lr_scheduler::sequential::SequentialLrSchedulerConfig;
use burn::optim::lr_scheduler::{LrScheduler, LrSchedulerRecord};

/// A learning rate that grows linearly to `peak` over `warmup` steps and falls linearly to 0 at step `total`.
///
/// At step t = 0, 1, … it is `peak` · (t + 1) / (`warmup` + 1) for t ≤ `warmup`, and then `peak` · (`total` − t) /
/// (`total` − `warmup`). transformers' `get_linear_schedule_with_warmup` has a rate of 0 in the first step.
///
/// ```
/// use burn_bert::optim::linear_warmup_decay;
///
/// let mut schedule = linear_warmup_decay(1.0, 1, 5)?;
/// let rates = [(); 6].map(|()| schedule.step().base());
/// assert_eq!(rates, [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]);
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Data`] if `peak` is not in (0, 1] or `warmup` is not below `total`.
pub fn linear_warmup_decay(peak: f64, warmup: usize, total: usize) -> Result<ModuleLrScheduler> {
    if warmup >= total {
        let problem = format!("is {warmup}, but must be less than the {total} steps in total");
        return Err(Error::data("warmup", problem));
    }
    if !(peak > 0.0 && peak <= 1.0) {
        let problem = format!("is {peak:?}, but must lie in (0, 1]");
        return Err(Error::data("peak", problem));
    }
    let fall = LinearLrSchedulerConfig::new(peak, 0.0, total - warmup);
    // Burn's schedules refuse 0 steps.
    let schedule = match warmup {
        0 => fall.init(),
        _ => {
            // From `peak` / (`warmup` + 1) on, so that no step has a rate of 0.
            let grow = LinearLrSchedulerConfig::new(peak / (warmup + 1) as f64, peak, warmup);
            SequentialLrSchedulerConfig::new(vec![grow.into(), fall.into()], vec![warmup]).init()
        }
    };
    schedule.map_err(|problem| Error::data("peak", problem))
}

/// A schedule that multiplies the rates of another schedule by a factor, for a group of parameters.
///
/// ```
/// use burn::module::ParamGroup;
/// use burn_bert::optim::{ScaledLr, linear_warmup_decay};
///
/// // A new classifier learns ten times as fast as the model below it.
/// let schedule = linear_warmup_decay(2e-5, 100, 1000)?;
/// let fast = ScaledLr::new(&schedule, 10.0)?;
/// let schedule = schedule.with_group(ParamGroup::from_predicate("classifier."), fast);
/// # let _ = schedule;
/// # Ok::<(), burn_bert::Error>(())
/// ```
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
/// Parameters are recognised by their paths, in every model of this crate, also in a `Training` or with LoRA adapters.
/// Groups that are added later with `with_group` take precedence.
///
/// ```
/// use burn_bert::optim::{layer_wise_decay, linear_warmup_decay};
///
/// let mut schedule = layer_wise_decay(linear_warmup_decay(1e-4, 0, 10)?, 12, 0.5)?;
/// let rates = schedule.step(); // what `optimizer.step` takes
/// let rate = |path| rates.lr_from_param(0.into(), Some(path));
/// assert_eq!(rate("classifier.out_proj.weight"), 1e-4);
/// assert_eq!(rate("bert.encoder.layers.11.output.weight"), 0.5e-4);
/// assert_eq!(rate("bert.encoder.layers.10.output.weight"), 0.25e-4);
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Data`] if `decay` is not in (0, 1].
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
    let below = "(((word|position|token_type)_)?embeddings|embeddings_projection|relative_attention_bias)";
    let groups = layers.chain([(below.to_string(), 0)]);
    // Every group scales the rates without groups, not those of the group before it.
    let all = schedule.clone();
    groups.into_iter().try_fold(schedule, |schedule, (path, depth)| {
        let group = ParamGroup::from_regex(format!(r"(^|\.){path}\.")).expect("the pattern is valid");
        let power = (num_hidden_layers + 1 - depth) as i32;
        Ok(schedule.with_group(group, ScaledLr::new(&all, decay.powi(power))?))
    })
}
