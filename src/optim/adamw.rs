//! The optimiser and the learning rate that BERT is trained with.

use crate::error::{Error, Result};
use burn::module::ParamGroup;
use burn::optim::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::optim::lr_scheduler::sequential::SequentialLrSchedulerConfig;
use burn::optim::{AdamWConfig, ModuleOptimizer};

/// AdamW that decays no bias and no LayerNorm, as BERT is trained.
///
/// `config` holds for all other parameters, and but for the decay for these too. Burn's defaults are not
/// PyTorch's: for `torch.optim.AdamW(params)` set ε to 1e-8 and the decay to 0.01.
///
/// ```
/// use burn::optim::AdamWConfig;
/// use burn_bert::optim::adamw;
///
/// let optimizer = adamw(&AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01));
/// ```
///
/// The parameters left out are those whose path ends in `bias`, `gamma` or `beta`, in any module. To clip
/// gradients use [`clip_by_global_norm`](crate::clip_by_global_norm): `config`'s own clipping is not taken over,
/// because Burn would apply it to one of the two groups alone.
///
/// # Panics
///
/// Never: the pattern of paths is a constant that a test compiles.
///
/// Source: `AdamWeightDecayOptimizer` of google-research/bert; `Trainer.get_decay_parameter_names` of
/// transformers 5.23.
pub fn adamw(config: &AdamWConfig) -> ModuleOptimizer {
    let undecayed = ParamGroup::from_regex(r"(^|\.)(bias|gamma|beta)$").expect("the pattern is valid");
    ModuleOptimizer::from(config.build()).with_group(
        undecayed,
        config.clone().with_weight_decay(0.0).build(),
        None,
    )
}

/// A learning rate that grows linearly to `peak` over `warmup` steps and falls linearly to 0 at step `total`.
///
/// At step t = 0, 1, … it is `peak` · (t + 1) / (`warmup` + 1) for t ≤ `warmup`, and from there
/// `peak` · (`total` − t) / (`total` − `warmup`). transformers' `get_linear_schedule_with_warmup` differs in the
/// growing part alone: there the first step has a rate of 0 and teaches nothing.
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
/// [`Error::Config`] if `peak` is not in (0, 1] or `warmup` is not below `total`.
pub fn linear_warmup_decay(peak: f64, warmup: usize, total: usize) -> Result<ModuleLrScheduler> {
    if warmup >= total {
        let problem = format!("is {warmup}, but must be less than the {total} steps in total");
        return Err(Error::Config { field: "warmup", problem });
    }
    if !(peak > 0.0 && peak <= 1.0) {
        let problem = format!("is {peak}, but must lie in (0, 1]");
        return Err(Error::Config { field: "peak", problem });
    }
    let fall = LinearLrSchedulerConfig::new(peak, 0.0, total - warmup);
    let schedule = match warmup {
        0 => fall.init(),
        _ => {
            let grow = LinearLrSchedulerConfig::new(peak / (warmup + 1) as f64, peak, warmup);
            SequentialLrSchedulerConfig::new(vec![grow.into(), fall.into()], vec![warmup]).init()
        }
    };
    schedule.map_err(|problem| Error::Config { field: "peak", problem })
}
