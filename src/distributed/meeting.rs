//! What ranks agree on before they do anything together, so that none waits for one that has left.

use super::group::Group;
use super::weighted_sum::Wire;
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Inner {
    pub(super) group: Option<Group>,
    pub(super) wire: Wire,
    pub(super) state: Mutex<State>,
    pub(super) stop: AtomicBool,
}

#[derive(Default)]
pub(super) struct State {
    /// Why the ranks have parted: which of them, and what it said.
    pub(super) parted: Option<(usize, String)>,
    pub(super) is_stopped: bool,
    pub(super) exchanged: Exchanged,
    /// Of a shared validation, see `Ranks::output`.
    #[cfg(feature = "train")]
    pub(super) round: Option<usize>,
    #[cfg(feature = "train")]
    pub(super) outputs: std::collections::VecDeque<Vec<u8>>,
}

/// What the exchanges of gradients have cost a rank so far; of [`Ranks::exchanged`](super::Ranks::exchanged). See [the
/// module](super) for a training loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchanged {
    /// Bytes that this rank sent to others, and as many received.
    pub bytes: usize,
    /// How long it took, from when the last rank was there.
    pub time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Call {
    Parameters = 1,
    Gradients,
    Sum,
    Same,
    #[cfg(feature = "train")]
    Outputs,
    Leave,
}

/// What a rank tells all others before they do anything together.
pub(super) struct Word {
    pub(super) call: u64,
    pub(super) same: u64,
    pub(super) weight: f64,
    pub(super) is_finite: bool,
    pub(super) stops: bool,
    pub(super) message: usize,
}

impl Word {
    const LENGTH: usize = 6;

    pub(super) fn new(call: Call, same: u64) -> Self {
        Self { call: call as u64, same, weight: 1.0, is_finite: true, stops: false, message: 0 }
    }

    fn to_bits(&self) -> [u64; Self::LENGTH] {
        let Self { call, same, weight, is_finite, stops, message } = self;
        [*call, *same, weight.to_bits(), (*is_finite).into(), (*stops).into(), *message as u64]
    }

    fn from_bits(bits: &[u64]) -> Self {
        let [call, same, weight, is_finite, stops, message] = bits.try_into().expect("one word");
        Self {
            call,
            same,
            weight: f64::from_bits(weight),
            is_finite: is_finite != 0,
            stops: stops != 0,
            message: message as usize,
        }
    }
}

/// All ranks are at the same place of the program, and no other thread of this one goes on before it ends.
pub(super) struct Meeting<'a> {
    pub(super) state: MutexGuard<'a, State>,
    pub(super) words: Vec<Word>,
    #[cfg_attr(not(feature = "train"), allow(dead_code))]
    pub(super) messages: Vec<Vec<u8>>,
}

impl Meeting<'_> {
    pub(super) fn part(&mut self, rank: usize, problem: String) -> Error {
        self.state.parted = Some((rank, problem.clone()));
        Error::Rank { rank, problem }
    }
}

impl Inner {
    pub(super) fn rank(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.rank)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every rank is here, and makes sure that all want the same.
    pub(super) fn meet(&self, own: Word, message: &[u8], other: &str) -> Result<Meeting<'_>> {
        let mut state = self.lock();
        if let Some((rank, problem)) = &state.parted {
            return Err(Error::Rank { rank: *rank, problem: problem.clone() });
        }
        // Relaxed, as the meeting itself is what orders it between threads and ranks.
        let (words, messages) =
            self.exchange(Word { stops: self.stop.load(Ordering::Relaxed), ..own }, message);
        // All know it after the same meeting, whichever of them was asked to stop.
        state.is_stopped |= words.iter().any(|word| word.stops);
        let first = |is: &dyn Fn(&Word) -> bool| words.iter().position(is);
        let parted = if let Some(rank) = first(&|word| word.call == Call::Leave as u64) {
            Some((rank, String::from_utf8_lossy(&messages[rank]).into_owned()))
        } else if let Some(rank) = first(&|word| word.call != words[0].call) {
            Some((rank, "is at another place of the program than rank 0".into()))
        } else {
            first(&|word| word.same != words[0].same).map(|rank| (rank, other.into()))
        };
        let mut meeting = Meeting { state, words, messages };
        parted.map_or(Ok(()), |(rank, problem)| Err(meeting.part(rank, problem)))?;
        Ok(meeting)
    }

    fn exchange(&self, own: Word, message: &[u8]) -> (Vec<Word>, Vec<Vec<u8>>) {
        let Some(group) = &self.group else { return (Vec::new(), Vec::new()) };
        let mut all = vec![0; Word::LENGTH * group.size];
        group.all_gather(&Word { message: message.len(), ..own }.to_bits(), &mut all);
        let words: Vec<Word> = all.chunks(Word::LENGTH).map(Word::from_bits).collect();
        let message_of = |(rank, word): (usize, &Word)| {
            let mut bytes = if rank == group.rank { message.to_vec() } else { vec![0u8; word.message] };
            group.broadcast(rank, &mut bytes);
            bytes
        };
        let messages = words.iter().enumerate().map(message_of).collect();
        (words, messages)
    }

    /// Tells the others that this rank takes no further part, and why, if it does not end as they do.
    pub(super) fn leave(&self, problem: String) {
        let mut state = self.lock();
        if self.group.is_none() || state.parted.is_some() {
            return;
        }
        // Where the others end too, nobody reads it.
        let said = if problem.is_empty() { "has left the run" } else { &problem };
        self.exchange(Word::new(Call::Leave, 0), said.as_bytes());
        state.parted = Some((self.rank(), said.into()));
    }
}

/// A rank that ends otherwise than by [`Ranks::run`] panicked.
impl Drop for Inner {
    fn drop(&mut self) {
        self.leave("panicked".into());
    }
}
