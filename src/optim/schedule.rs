//! The learning-rate schedule of BERT.

use crate::error::{Error, Result};
use burn::optim::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::optim::lr_scheduler::sequential::SequentialLrSchedulerConfig;

/// A learning rate that grows linearly to `peak` over `warmup` steps and falls linearly to 0 at step `total`.
///
/// At step t = 0, 1, … it is `peak` · (t + 1) / (`warmup` + 1) for t ≤ `warmup`, and from there `peak` · (`total` − t)
/// / (`total` − `warmup`). transformers' `get_linear_schedule_with_warmup` differs in the warm-up only: its first step
/// has a rate of 0 and changes nothing.
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
    let schedule = match warmup {
        0 => fall.init(),
        _ => {
            let grow = LinearLrSchedulerConfig::new(peak / (warmup + 1) as f64, peak, warmup);
            SequentialLrSchedulerConfig::new(vec![grow.into(), fall.into()], vec![warmup]).init()
        }
    };
    schedule.map_err(|problem| Error::data("peak", problem))
}
