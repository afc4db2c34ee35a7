//! The processes that `mpirun` started, through MPI, and what they agree on before they do anything together, so that none waits
//! for one that has left. Without the feature `mpi` there are none.

use crate::error::{Error, Result};
#[cfg(feature = "mpi")]
use mpi::environment::{Universe, initialize_with_threading};
#[cfg(feature = "mpi")]
use mpi::traits::{Communicator, CommunicatorCollectives, Equivalence, Root};
#[cfg(feature = "mpi")]
use mpi::{Threading, topology::SimpleCommunicator};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
#[cfg(not(feature = "mpi"))]
use std::{convert::Infallible as Universe, marker::Copy as Equivalence}; // nothing travels

/// What Open MPI, MPICH, MVAPICH and Slurm set in the processes that they start.
const STARTED: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_RANK"];

/// Numbers that MPI has a type for.
pub(super) trait Element: Copy + Default + Equivalence {}
impl<T: Copy + Default + Equivalence> Element for T {}

/// All processes of a run. Every method is to be called by each of them, and waits for the others.
pub(super) struct Group {
    pub(super) rank: usize,
    pub(super) size: usize,
    /// The number of this process among those of its machine.
    pub(super) local_rank: usize,
    _universe: Universe, // its drop ends MPI
}

impl Group {
    /// `None` if this process was not started by MPI.
    pub(super) fn connect() -> Result<Option<Self>> {
        // A group of one is none; PMIx names the rank alone, which may be any.
        let is_set = |name| std::env::var_os(name).is_some_and(|value| value != "1" || name == "PMIX_RANK");
        if !STARTED.into_iter().any(is_set) {
            return Ok(None);
        }
        #[cfg(not(feature = "mpi"))]
        return Err(Error::data(
            "the program",
            "was started by mpirun, but built without the feature `mpi`, so every process would train alone",
        ));
        #[cfg(feature = "mpi")]
        {
            // Serialized: calls come from several threads, one at a time under the lock of a meeting.
            let Some((universe, threading)) = initialize_with_threading(Threading::Serialized) else {
                return Err(Error::data("the process", "is connected to the other ranks already"));
            };
            if !matches!(threading, Threading::Serialized | Threading::Multiple) {
                let problem = "has no support for threads (MPI_THREAD_SERIALIZED)";
                return Err(Error::data("the MPI library", problem));
            }
            let world = universe.world();
            let [rank, size, local_rank] =
                [world.rank(), world.size(), world.split_shared(0).rank()].map(|number| number as usize);
            Ok(Some(Self { rank, size, local_rank, _universe: universe }))
        }
    }

    // Made anew for each call: it holds a pointer that other threads may not have.
    #[cfg(feature = "mpi")]
    fn world(&self) -> SimpleCommunicator {
        SimpleCommunicator::world()
    }

    pub(super) fn broadcast<T: Element>(&self, root: usize, buffer: &mut [T]) {
        #[cfg(not(feature = "mpi"))]
        match (self._universe, root, buffer) {}
        // In pieces, as MPI counts in 31 bits.
        #[cfg(feature = "mpi")]
        for piece in buffer.chunks_mut(1 << 26) {
            self.world().process_at_rank(root as i32).broadcast_into(piece);
        }
    }

    pub(super) fn all_gather<T: Element>(&self, own: &[T], all: &mut [T]) {
        #[cfg(not(feature = "mpi"))]
        match (self._universe, own, all) {}
        #[cfg(feature = "mpi")]
        self.world().all_gather_into(own, all);
    }

    /// Part r of `parts` to rank r, of as many parts as ranks, and in `received` this rank's part from each.
    pub(super) fn all_to_all<T: Element>(&self, parts: &[T], received: &mut [T]) {
        #[cfg(not(feature = "mpi"))]
        match (self._universe, parts, received) {}
        #[cfg(feature = "mpi")]
        self.world().all_to_all_into(parts, received);
    }
}

/// How gradients travel between ranks; [the module](crate::distributed) has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// In f32, or in f64 where a parameter is f64.
    #[default]
    Full,
    /// In bf16, half as many bytes. Sums are f64 and rounded once, to 8 bits of precision.
    Bf16,
}

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

impl State {
    /// The error of ranks that have parted.
    pub(super) fn check(&self) -> Result<()> {
        let Some((rank, problem)) = self.parted.clone() else { return Ok(()) };
        Err(Error::Rank { rank, problem })
    }

    pub(super) fn part(&mut self, rank: usize, problem: String) -> Result<()> {
        self.parted = Some((rank, problem));
        self.check()
    }
}

/// What [`Ranks::exchanged`](super::Ranks::exchanged) returns; [the module](super) has a training loop.
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
    /// What its gradients count; NaN if one of them is not finite.
    pub(super) weight: f64,
    pub(super) stops: bool,
    pub(super) message: usize,
}

impl Word {
    const LENGTH: usize = 5;

    pub(super) fn new(call: Call, same: u64) -> Self {
        Self { call: call as u64, same, weight: 1.0, stops: false, message: 0 }
    }

    fn to_bits(&self) -> [u64; Self::LENGTH] {
        let &Self { call, same, weight, stops, message } = self;
        [call, same, weight.to_bits(), stops.into(), message as u64]
    }

    fn from_bits(bits: &[u64]) -> Self {
        let [call, same, weight, stops, message] = bits.try_into().expect("one word");
        let (weight, stops, message) = (f64::from_bits(weight), stops != 0, message as usize);
        Self { call, same, weight, stops, message }
    }
}

/// All ranks are at the same place of the program, and no other thread of this one goes on before it ends.
pub(super) struct Meeting<'a> {
    pub(super) state: MutexGuard<'a, State>,
    pub(super) words: Vec<Word>,
    #[cfg_attr(not(feature = "train"), allow(dead_code))]
    pub(super) messages: Vec<Vec<u8>>,
}

impl Inner {
    pub(super) fn rank(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.rank)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every rank is here, and makes sure that all want the same, or what differs: `other`.
    pub(super) fn meet(&self, own: Word, message: &[u8], other: &str) -> Result<Meeting<'_>> {
        let mut state = self.lock();
        state.check()?;
        // Relaxed, as the meeting itself is what orders it between threads and ranks.
        let (words, messages) =
            self.exchange(Word { stops: self.stop.load(Ordering::Relaxed), ..own }, message);
        // All know it after the same meeting, whichever of them was asked to stop.
        state.is_stopped |= words.iter().any(|word| word.stops);
        let first = |is: &dyn Fn(&Word) -> bool| words.iter().position(is);
        if let Some(rank) = first(&|word| word.call == Call::Leave as u64) {
            state.part(rank, String::from_utf8_lossy(&messages[rank]).into_owned())?;
        } else if let Some(rank) = first(&|word| word.call != words[0].call) {
            state.part(rank, "is at another place of the program than rank 0".into())?;
        } else if let Some(rank) = first(&|word| word.same != words[0].same) {
            state.part(rank, other.into())?;
        }
        Ok(Meeting { state, words, messages })
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
    pub(super) fn leave(&self, problem: Option<String>) {
        let mut state = self.lock();
        if self.group.is_none() || state.parted.is_some() {
            return;
        }
        // Where the others end too, nobody reads it.
        let said = problem.unwrap_or_else(|| "has left the run".into());
        self.exchange(Word::new(Call::Leave, 0), said.as_bytes());
        state.parted = Some((self.rank(), said));
    }
}

/// A rank that ends otherwise than by [`Ranks::run`] panicked.
impl Drop for Inner {
    fn drop(&mut self) {
        self.leave(Some("panicked".into()));
    }
}
