//! The losses in the logs of Burn's trainer.

use crate::error::Result;
use crate::regular_file;
use std::path::Path;

/// The losses of a run: of all training batches, and of the validation after each epoch. Returned by
/// [`Run::losses`](super::Run::losses).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    /// The loss of each batch that has one.
    pub train: Vec<f64>,
    /// The mean loss of each validation, up to the last that is finite; `None` where it is not.
    pub valid: Vec<Option<f64>>,
}

impl Losses {
    /// Reads the logs of Burn's trainer in its directory.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::NotAFile`] if one that is there cannot be read.
    pub fn read(folder: impl AsRef<Path>) -> Result<Self> {
        let mut losses = Self::default();
        for epoch in 1.. {
            let log =
                |split: &str| folder.as_ref().join(split).join(format!("epoch-{epoch}")).join("Loss.log");
            if !log("train").exists() {
                break;
            }
            losses.train.extend(read_log(&log("train"))?.batches);
            let mean = if log("valid").exists() { read_log(&log("valid"))?.mean } else { None };
            losses.valid.push(mean);
        }
        let validated = losses.valid.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        losses.valid.truncate(validated);
        Ok(losses)
    }

    /// The epoch, counted from 1, with the lowest validation loss.
    pub fn best_epoch(&self) -> Option<usize> {
        let losses = (1..).zip(&self.valid).filter_map(|(epoch, loss)| Some((epoch, (*loss)?)));
        losses.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(epoch, _)| epoch)
    }
}

/// A log of the trainer.
struct Log {
    batches: Vec<f64>,
    /// Over the epoch; not there if the epoch was broken off.
    mean: Option<f64>,
}

/// One number a line, followed by its count; the last is the mean, marked `final`.
fn read_log(path: &Path) -> Result<Log> {
    let text = String::from_utf8_lossy(&regular_file::read(path, u64::MAX)?).into_owned();
    let values = text.lines().filter_map(|line| line.split_once(','));
    let values = values.filter_map(|(value, count)| Some((value.parse().ok()?, count)));
    // A batch without masked tokens has no loss.
    let values = values.filter(|(value, _): &(f64, _)| value.is_finite());
    let (means, batches): (Vec<_>, Vec<_>) = values.partition(|&(_, count)| count == "final");
    let numbers = |lines: Vec<(f64, &str)>| lines.into_iter().map(|(value, _)| value).collect();
    Ok(Log { batches: numbers(batches), mean: means.last().map(|&(value, _)| value) })
}
