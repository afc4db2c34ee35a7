//! How far a training has come.

/// The epochs that a training run has finished, for a loader's `starting_after`.
///
/// Where an epoch is a number of batches, its length depends on the number of ranks: a run goes on at the same place in the
/// data with any number of them if it says how many shards were read.
///
/// ```
/// use burn_bert::data::Finished;
///
/// let finished = Finished { epochs: 7, shards: Some(11) }; // five epochs on one rank, and two on three
/// assert_ne!(finished, Finished::from(7)); // all on as many ranks as now
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// The number of epochs.
    pub epochs: usize,
    /// The sum of the numbers of ranks over these epochs; `None` if it always was the loader's.
    pub shards: Option<usize>,
}

impl Finished {
    /// After `epochs` epochs, of a run that had so many ranks from these epochs on: (epoch, ranks), in order.
    pub(crate) fn of(epochs: usize, starts: &[(usize, usize)]) -> Self {
        let ends = starts.iter().skip(1).map(|&(epoch, _)| epoch).chain([epochs]);
        // What was read from a file may be anything.
        let shards = starts.iter().zip(ends).fold(0_usize, |shards, (&(start, ranks), end)| {
            shards.wrapping_add(end.wrapping_sub(start).wrapping_mul(ranks))
        });
        Self { epochs, shards: (!starts.is_empty()).then_some(shards) }
    }
}

impl From<usize> for Finished {
    fn from(epochs: usize) -> Self {
        Self { epochs, shards: None }
    }
}
