//! The processes of a data-parallel run, and what they agree on.

use super::group::Group;
use super::parameters::{Gradients, Layout, broadcast};
use super::weighted_sum::{Number, Wire};
use crate::error::{Error, Result};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::Element;
use std::fmt::{self, Debug, Display};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The processes of a data-parallel run: those that `mpirun` started, or this one alone.
///
/// Without `mpirun` there is one rank, and every method gives back at once what it was given: a program that calls them
/// trains in one process and in many. Clones are handles of the same ranks.
///
/// # Errors
///
/// Except for what says so, every method that returns a `Result` is to be called by all ranks in the same order. If one
/// calls another method, leaves [`run`](Self::run) with an error, panics or drops its handles, all others get an
/// [`Error::Rank`] that names it, and none waits for it. If its process dies, `mpirun` ends the others.
///
/// See [the module](super) for a training loop.
#[derive(Clone)]
pub struct Ranks(Arc<Inner>);

struct Inner {
    group: Option<Group>,
    rank: usize,
    size: usize,
    local_rank: usize,
    wire: Wire,
    state: Mutex<State>,
    stop: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Why the ranks have parted: which of them, and what it said.
    parted: Option<(usize, String)>,
    is_stopped: bool,
}

/// What a rank does together with the others.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Parameters = 1,
    Gradients,
    Sum,
    Same,
    Leave,
}

/// What a rank tells all others before they do anything together.
struct Word {
    call: u64,
    /// What must be the same on all ranks.
    same: u64,
    weight: f64,
    is_finite: bool,
    stops: bool,
    /// Bytes of a message that follows.
    message: usize,
}

impl Word {
    const LENGTH: usize = 6;

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

impl Ranks {
    /// This process alone.
    pub fn single() -> Self {
        Self::new(None, Wire::Full)
    }

    /// Runs a program on all ranks: `program` gets them, and an error that it returns on one rank ends all.
    ///
    /// Gradients travel in `wire`.
    ///
    /// # Errors
    ///
    /// The error of `program`; [`Error::Data`] if `mpirun` started a program that was built without the feature `mpi`, or
    /// if the process was connected before.
    pub fn run<T, E: From<Error> + Display>(
        wire: Wire,
        program: impl FnOnce(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let ranks = Self::new(Group::connect()?, wire);
        let result = program(&ranks);
        let message = result.as_ref().err().map(ToString::to_string);
        ranks.0.leave(message.unwrap_or_default());
        result
    }

    fn new(group: Option<Group>, wire: Wire) -> Self {
        let of = |f: fn(&Group) -> usize, alone| group.as_ref().map_or(alone, f);
        let (rank, size, local_rank) = (of(Group::rank, 0), of(Group::size, 1), of(Group::local_rank, 0));
        Self(Arc::new(Inner {
            rank,
            size,
            local_rank,
            wire,
            group: group.filter(|_| size > 1),
            state: Mutex::default(),
            stop: AtomicBool::new(false),
        }))
    }

    /// The number of this rank, from 0 on.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Whether this is rank 0, which alone writes files and shows progress.
    pub fn is_first(&self) -> bool {
        self.0.rank == 0
    }

    /// A device for this rank: of the kind of Burn's default device, if that is a GPU, the one with the number of this
    /// rank among those of its machine, in turn if there are more ranks than GPUs; otherwise the default device.
    pub fn device(&self) -> Device {
        let default = Device::default();
        let kinds: Vec<burn::tensor::DeviceType> = vec![
            #[cfg(feature = "cuda")]
            burn::tensor::DeviceType::Cuda,
            #[cfg(feature = "rocm")]
            burn::tensor::DeviceType::Rocm,
            #[cfg(feature = "metal")]
            burn::tensor::DeviceType::Metal,
            #[cfg(feature = "vulkan")]
            burn::tensor::DeviceType::Vulkan,
            #[cfg(feature = "webgpu")]
            burn::tensor::DeviceType::WebGpu,
            #[cfg(feature = "wgpu")]
            burn::tensor::DeviceType::Wgpu,
        ];
        if self.size() == 1 {
            return default;
        }
        let kinds = kinds.into_iter().map(|kind| Device::enumerate(kind).into_iter().collect::<Vec<_>>());
        let devices = kinds.into_iter().find(|devices| devices.contains(&default));
        devices.map_or(default, |devices| devices[self.0.local_rank % devices.len()].clone())
    }

    /// `module` with the parameters of rank 0: values, whatever is trained.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`], also if the modules of two ranks differ in their parameters' shapes or dtypes.
    pub fn broadcast<M: Module>(&self, module: M) -> Result<M> {
        let Some(group) = &self.0.group else { return Ok(module) };
        let layout = Layout::of(&module);
        let _meeting =
            self.0.meet(Call::Parameters, layout.hash(), 1.0, true, "holds other parameters than rank 0")?;
        Ok(broadcast(group, &layout, module))
    }

    /// The mean of the gradients of all ranks, g = Σᵣ nᵣ·gᵣ / Σᵣ nᵣ, the same bits on every rank.
    ///
    /// `count` is n, what this rank's loss is a mean over (masked tokens, labelled tokens, texts), so that the mean is that
    /// of one process with the batches of all ranks. A rank without anything gives 0. Call it once per optimiser step, after
    /// [`MeanGradients`](crate::optim::MeanGradients) has taken the mean over its own batches, and clip what it returns: only
    /// gradients of what is trained travel.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`], also if a gradient of a rank is infinite or NaN, or it trains other parameters;
    /// [`Error::Data`] if `count` is negative or not finite, on this rank alone.
    pub fn mean_gradients<M: Module>(
        &self,
        module: &M,
        gradients: GradientsParams,
        count: f64,
    ) -> Result<GradientsParams> {
        if !(count.is_finite() && count >= 0.0) {
            let problem = format!("is {count}, but must be finite and at least 0");
            return Err(Error::data("the count of a batch", problem));
        }
        let Some(group) = &self.0.group else { return Ok(gradients) };
        let layout = Layout::of_trained(module);
        if layout.has_f64() {
            self.mean::<M, f64>(group, module, layout, gradients, count)
        } else {
            self.mean::<M, f32>(group, module, layout, gradients, count)
        }
    }

    fn mean<M: Module, T: Number + Element>(
        &self,
        group: &Group,
        module: &M,
        layout: Layout,
        gradients: GradientsParams,
        count: f64,
    ) -> Result<GradientsParams> {
        let same = layout.hash();
        let mut gradients = Gradients::<T>::of(module, layout, gradients);
        // Those that count for nothing are not added up: 0 · NaN would be NaN.
        let is_finite = count == 0.0 || gradients.are_finite();
        let mut meeting =
            self.0.meet(Call::Gradients, same, count, is_finite, "trains other parameters than rank 0")?;
        if let Some(rank) = meeting.words.iter().position(|word| !word.is_finite) {
            return Err(meeting.part(rank, "has a gradient that is infinite or NaN".into()));
        }
        let total: f64 = meeting.words.iter().map(|word| word.weight).sum();
        let share = |word: &Word| if total > 0.0 { word.weight / total } else { 0.0 };
        let shares: Vec<f64> = meeting.words.iter().map(share).collect();
        gradients.sum(group, self.0.wire, &shares);
        Ok(gradients.into_params(module))
    }

    /// The sums of some numbers over all ranks, such as of a shared validation: losses times counts, and counts.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`], also if a rank gives another number of them.
    pub fn sum(&self, values: &[f64]) -> Result<Vec<f64>> {
        let mut values = values.to_vec();
        let Some(group) = &self.0.group else { return Ok(values) };
        let _meeting =
            self.0.meet(Call::Sum, values.len() as u64, 1.0, true, "adds up other numbers than rank 0")?;
        f64::sum(group, Wire::Full, &mut values, &vec![1.0; self.size()]);
        Ok(values)
    }

    /// Makes sure that settings, or what was read from files, are the same on all ranks: `Debug` writes them in the same
    /// way.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`] that names the first rank with another `value` than rank 0.
    pub fn same(&self, what: &str, value: &impl Debug) -> Result<()> {
        if self.0.group.is_none() {
            return Ok(());
        }
        let mut hasher = DefaultHasher::new();
        format!("{value:?}").hash(&mut hasher);
        self.0
            .meet(Call::Same, hasher.finish(), 1.0, true, &format!("has another {what} than rank 0"))
            .map(drop)
    }

    /// Asks for a stop, from any thread: [`is_stopped`](Self::is_stopped) is true on all ranks after the next exchange
    /// of gradients. For Ctrl-C, which reaches ranks at different times.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
        if self.0.group.is_none() {
            self.0.lock().is_stopped = true;
        }
    }

    /// Whether a rank asked for a stop: the same on all ranks between two exchanges.
    pub fn is_stopped(&self) -> bool {
        self.0.lock().is_stopped
    }
}

impl Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranks")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// All ranks are at the same place of the program, and no other thread of this one goes on before it ends.
struct Meeting<'a> {
    state: MutexGuard<'a, State>,
    words: Vec<Word>,
}

impl Meeting<'_> {
    fn part(&mut self, rank: usize, problem: String) -> Error {
        self.state.parted = Some((rank, problem.clone()));
        Error::Rank { rank, problem }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every rank is here, and makes sure that all want the same.
    fn meet(&self, call: Call, same: u64, weight: f64, is_finite: bool, other: &str) -> Result<Meeting<'_>> {
        let mut state = self.lock();
        if let Some((rank, problem)) = &state.parted {
            return Err(Error::Rank { rank: *rank, problem: problem.clone() });
        }
        let stops = self.stop.load(Ordering::Relaxed);
        let own = Word { call: call as u64, same, weight, is_finite, stops, message: 0 };
        let (words, messages) = self.exchange(&own, "");
        // With gradients alone, so that all ranks stop after the same step.
        state.is_stopped |= call == Call::Gradients && words.iter().any(|word| word.stops);
        let first = |is: &dyn Fn(&Word) -> bool| words.iter().position(is);
        let parted = if let Some(rank) = first(&|word| word.call == Call::Leave as u64) {
            Some((rank, messages[rank].clone()))
        } else if let Some(rank) = first(&|word| word.call != words[0].call) {
            Some((rank, "is at another place of the program than rank 0".into()))
        } else {
            first(&|word| word.same != words[0].same).map(|rank| (rank, other.into()))
        };
        let mut meeting = Meeting { state, words };
        parted.map_or(Ok(()), |(rank, problem)| Err(meeting.part(rank, problem)))?;
        Ok(meeting)
    }

    /// Every rank's word, and its message.
    fn exchange(&self, own: &Word, message: &str) -> (Vec<Word>, Vec<String>) {
        let Some(group) = &self.group else { return (Vec::new(), Vec::new()) };
        let mut all = vec![0; Word::LENGTH * self.size];
        group.all_gather(&own.to_bits(), &mut all);
        let words: Vec<Word> = all.chunks(Word::LENGTH).map(Word::from_bits).collect();
        let message_of = |(rank, word): (usize, &Word)| {
            let mut bytes = vec![0u8; word.message];
            if rank == self.rank {
                bytes.copy_from_slice(message.as_bytes());
            }
            if word.message > 0 {
                group.broadcast(rank, &mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let messages = words.iter().enumerate().map(message_of).collect();
        (words, messages)
    }

    /// Tells the others that this rank takes no further part, and why, if it does not end as they do.
    fn leave(&self, problem: String) {
        let mut state = self.lock();
        if self.group.is_none() || state.parted.is_some() {
            return;
        }
        let said = if problem.is_empty() { "has left the run" } else { &problem };
        let own = Word {
            call: Call::Leave as u64,
            same: 0,
            weight: 0.0,
            is_finite: true,
            stops: false,
            message: said.len(),
        };
        self.exchange(&own, said);
        state.parted = Some((self.rank, said.into()));
    }
}

/// A rank that ends otherwise than by [`Ranks::run`] panicked.
impl Drop for Inner {
    fn drop(&mut self) {
        self.leave("panicked".into());
    }
}
