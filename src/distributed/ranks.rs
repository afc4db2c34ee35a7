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
use std::time::Instant;

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
    exchanged: Exchanged,
}

/// What the exchanges of gradients have cost a rank so far; of [`Ranks::exchanged`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchanged {
    /// Bytes that this rank sent to others, and as many received.
    pub bytes: usize,
    /// The seconds that it took, from when the last rank was there.
    pub seconds: f64,
}

/// What a rank does together with the others.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Parameters = 1,
    Gradients,
    Sum,
    Same,
    Outputs,
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

    fn new(call: Call, same: u64) -> Self {
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
        if self.size() == 1 {
            return default;
        }
        match &gpus()[..] {
            [] => default,
            gpus => gpus[self.0.local_rank % gpus.len()].clone(),
        }
    }

    /// `module` with the parameters of rank 0: values, whatever is trained.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`], also if the modules of two ranks differ in their parameters' shapes or dtypes.
    pub fn broadcast<M: Module>(&self, module: M) -> Result<M> {
        let Some(group) = &self.0.group else { return Ok(module) };
        let layout = Layout::of(&module);
        let word = Word::new(Call::Parameters, layout.hash());
        let _meeting = self.0.meet(word, &[], "holds other parameters than rank 0")?;
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
        self.mean_of_scaled(module, gradients, 1.0, count)
    }

    /// The same of `gradients` times `factor`, without a pass over them for that.
    pub(crate) fn mean_of_scaled<M: Module>(
        &self,
        module: &M,
        gradients: GradientsParams,
        factor: f64,
        count: f64,
    ) -> Result<GradientsParams> {
        let Some(group) = &self.0.group else { return Ok(gradients) };
        let layout = Layout::of_trained(module);
        if layout.has_f64() {
            let gradients = Gradients::<f64>::of(module, layout, gradients);
            self.mean(group, gradients, factor, count).map(|mean| mean.into_params(module))
        } else {
            let gradients = Gradients::<f32>::of(module, layout, gradients);
            self.mean(group, gradients, factor, count).map(|mean| mean.into_params(module))
        }
    }

    fn mean<T: Number + Element>(
        &self,
        group: &Group,
        mut gradients: Gradients<T>,
        factor: f64,
        count: f64,
    ) -> Result<Gradients<T>> {
        let word = Word {
            weight: count,
            // Those that count for nothing are not added up: 0 · NaN would be NaN.
            is_finite: count == 0.0 || gradients.are_finite(factor),
            stops: self.0.stop.load(Ordering::Relaxed),
            ..Word::new(Call::Gradients, gradients.layout().hash())
        };
        let mut meeting = self.0.meet(word, &[], "trains other parameters than rank 0")?;
        // So that all ranks stop after the same step.
        meeting.state.is_stopped |= meeting.words.iter().any(|word| word.stops);
        if let Some(rank) = meeting.words.iter().position(|word| !word.is_finite) {
            return Err(meeting.part(rank, "has a gradient that is infinite or NaN".into()));
        }
        let total: f64 = meeting.words.iter().map(|word| word.weight).sum();
        let share = |word: &Word| if total > 0.0 { word.weight / total } else { 0.0 };
        let shares: Vec<f64> = meeting.words.iter().map(share).collect();
        let start = Instant::now();
        meeting.state.exchanged.bytes += gradients.sum(group, self.0.wire, factor, &shares);
        meeting.state.exchanged.seconds += start.elapsed().as_secs_f64();
        Ok(gradients)
    }

    /// What the exchanges of gradients have cost this rank since it was started, to be compared with what its steps take.
    /// Nothing travels where there is one rank.
    pub fn exchanged(&self) -> Exchanged {
        self.0.lock().exchanged
    }

    /// What every rank has in `own`. `same` must be the same on all.
    #[cfg(feature = "train")]
    pub(crate) fn gather(&self, same: usize, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let word = Word::new(Call::Outputs, same as u64);
        Ok(self.0.meet(word, own, "validates other batches than rank 0")?.messages)
    }

    /// The sums of some numbers over all ranks, such as of a shared validation: losses times counts, and counts.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`], also if a rank gives another number of them.
    pub fn sum(&self, values: &[f64]) -> Result<Vec<f64>> {
        let mut values = values.to_vec();
        let Some(group) = &self.0.group else { return Ok(values) };
        let word = Word::new(Call::Sum, values.len() as u64);
        let _meeting = self.0.meet(word, &[], "adds up other numbers than rank 0")?;
        f64::sum(group, Wire::Full, vec![&mut values], 1.0, &vec![1.0; self.size()]);
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
        let word = Word::new(Call::Same, hasher.finish());
        self.0.meet(word, &[], &format!("has another {what} than rank 0")).map(drop)
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

/// The GPUs of this machine of the kind of Burn's default device; empty if that is no GPU.
pub(crate) fn gpus() -> Vec<Device> {
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
    let kinds = kinds.into_iter().map(|kind| Device::enumerate(kind).into_iter().collect::<Vec<_>>());
    kinds.into_iter().find(|devices| devices.contains(&Device::default())).unwrap_or_default()
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
    messages: Vec<Vec<u8>>,
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
    fn meet(&self, own: Word, message: &[u8], other: &str) -> Result<Meeting<'_>> {
        let state = self.lock();
        if let Some((rank, problem)) = &state.parted {
            return Err(Error::Rank { rank: *rank, problem: problem.clone() });
        }
        let (words, messages) = self.exchange(own, message);
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

    /// Every rank's word, and its message.
    fn exchange(&self, own: Word, message: &[u8]) -> (Vec<Word>, Vec<Vec<u8>>) {
        let Some(group) = &self.group else { return (Vec::new(), Vec::new()) };
        let mut all = vec![0; Word::LENGTH * self.size];
        group.all_gather(&Word { message: message.len(), ..own }.to_bits(), &mut all);
        let words: Vec<Word> = all.chunks(Word::LENGTH).map(Word::from_bits).collect();
        let message_of = |(rank, word): (usize, &Word)| {
            let mut bytes = if rank == self.rank { message.to_vec() } else { vec![0u8; word.message] };
            group.broadcast(rank, &mut bytes);
            bytes
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
        self.exchange(Word::new(Call::Leave, 0), said.as_bytes());
        state.parted = Some((self.rank, said.into()));
    }
}

/// A rank that ends otherwise than by [`Ranks::run`] panicked.
impl Drop for Inner {
    fn drop(&mut self) {
        self.leave("panicked".into());
    }
}
