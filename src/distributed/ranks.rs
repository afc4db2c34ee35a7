use super::group::{self, Group, gpus};
use super::parameters::{OfFirst, Parameters, Wire, weighted_sum};
use crate::error::{Error, Result};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{DType, Element};
#[cfg(feature = "train")]
use serde::{Serialize, de::DeserializeOwned};
use std::convert::identity;
use std::fmt::{self, Debug, Display};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The ranks of a data-parallel run: the processes that `mpirun` started, threads of this process, or this process alone.
///
/// Alone there is one rank, and every method gives back at once what it was given. Clones are handles of the same rank.
///
/// # Errors
///
/// Every method that returns a `Result` is to be called by all ranks in the same order. If one calls another method, leaves
/// [`run`](Self::run) with an error, panics or drops its handles, all others get an [`Error::Rank`] that names it, and none waits
/// for it. If its process dies, `mpirun` ends the others. See [the module](super) for a training loop.
#[derive(Clone)]
pub struct Ranks(Arc<Inner>);

impl Ranks {
    /// The only rank: this process alone.
    pub fn single() -> Self {
        Self::new(None, Wire::Full)
    }

    /// Runs a program on all ranks, whose gradients travel in `wire`. An error that it returns on one rank ends all.
    ///
    /// Returns the error of `program`; [`Error::Data`] if `mpirun` started a program that was built without the feature `mpi`,
    /// or if the process was connected before.
    pub fn run<T, E: From<Error> + Display>(
        wire: Wire,
        program: impl FnOnce(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let ranks = Self::new(Group::connect()?, wire);
        let result = program(&ranks);
        ranks.0.leave(result.as_ref().err().map(ToString::to_string));
        result
    }

    /// Runs a program on `count` ranks, each a thread of this process, for several devices of one machine; what rank 0 returned.
    ///
    /// Give each rank a module of its own ([`Module::fork`] to its device): Burn's autodiff may wait for ever where two threads
    /// train one. Panics if a rank does.
    pub fn run_threads<T: Send, E: From<Error> + Display + Send>(
        count: usize,
        wire: Wire,
        program: impl Fn(&Self) -> std::result::Result<T, E> + Sync,
    ) -> std::result::Result<T, E> {
        let rank = |group| {
            let ranks = Self::new(Some(group), wire);
            // What the program holds of them may outlive a panic.
            let result = catch_unwind(AssertUnwindSafe(|| program(&ranks)));
            ranks.0.leave(match &result {
                Ok(result) => result.as_ref().err().map(ToString::to_string),
                Err(_) => Some(PANICKED.into()),
            });
            result.unwrap_or_else(|panic| resume_unwind(panic))
        };
        thread::scope(|scope| {
            let ranks = Group::on_threads(count.max(1)).into_iter().map(|group| scope.spawn(|| rank(group)));
            let ranks: Vec<_> = ranks.collect();
            let results: Vec<_> = ranks.into_iter().map(ScopedJoinHandle::join).collect();
            let mut results =
                results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)));
            let first = results.next().expect("at least one rank");
            results.for_each(drop);
            first
        })
    }

    fn new(group: Option<Group>, wire: Wire) -> Self {
        // One rank exchanges nothing, as a process that mpirun did not start.
        let group = group.filter(|group| group.size > 1);
        Self(Arc::new(Inner { wire, group, state: Mutex::default(), stop: AtomicBool::new(false) }))
    }

    /// The number of this rank, from 0 on.
    pub fn rank(&self) -> usize {
        self.0.group.as_ref().map_or(0, |group| group.rank)
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.0.group.as_ref().map_or(1, |group| group.size)
    }

    /// Whether this is rank 0, which alone writes files and shows progress.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// A device for this rank: if Burn's default device is a GPU, each rank of a machine gets the next one of that kind, in turn;
    /// otherwise the default device.
    pub fn device(&self) -> Device {
        let Some(group) = &self.0.group else { return Device::default() };
        gpus().into_iter().cycle().nth(group.local_rank).unwrap_or_default()
    }

    /// `module` with the parameters of rank 0: values, whatever is trained. Returns [`Error::Rank`] also if the modules of two
    /// ranks differ in their parameters' shapes or dtypes.
    pub fn broadcast<M: Module>(&self, module: M) -> Result<M> {
        let Some(group) = &self.0.group else { return Ok(module) };
        let header = Header::new(Operation::Parameters, Parameters::collect(&module, None).kinds());
        // Held until the end: another thread of this rank would exchange in between.
        let _round = self.0.meet(group, header, &[], "holds other parameters than rank 0")?;
        Ok(module.map(&mut OfFirst(group)))
    }

    /// The mean of the gradients of all ranks, g = Σᵣ nᵣ·gᵣ / Σᵣ nᵣ, the same bits on every rank.
    ///
    /// `count` is n, what this rank's loss is a mean over (masked tokens, labelled tokens, texts), 0 if nothing, so that the mean
    /// is that of one process with the batches of all ranks. Call it once per optimizer step, and clip what it returns.
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

    /// [`mean_gradients`](Self::mean_gradients) of `gradients` times `factor`, without a pass over them for that.
    pub(crate) fn mean_of_scaled<M: Module>(
        &self,
        module: &M,
        gradients: GradientsParams,
        factor: f64,
        count: f64,
    ) -> Result<GradientsParams> {
        let Some(group) = &self.0.group else { return Ok(gradients) };
        let parameters = Parameters::collect(module, Some(gradients));
        // In one dtype, the widest: all parameters are exchanged at once.
        let has_f64 = parameters.kinds().iter().any(|&(_, dtype)| dtype == DType::F64);
        match has_f64 {
            true => self.mean::<f64>(group, parameters, factor, count),
            false => self.mean::<f32>(group, parameters, factor, count),
        }
    }

    fn mean<T: Element + group::Element>(
        &self,
        group: &Group,
        mut parameters: Parameters,
        factor: f64,
        count: f64,
    ) -> Result<GradientsParams> {
        parameters.convert::<T>();
        // Those that count for nothing are not added up: 0 · NaN would be NaN.
        let is_finite = count == 0.0 || parameters.are_finite::<T>(factor);
        let weight = if is_finite { count } else { f64::NAN };
        let header = Header { weight, ..Header::new(Operation::Gradients, parameters.kinds()) };
        let mut round = self.0.meet(group, header, &[], "trains other parameters than rank 0")?;
        if let Some(rank) = round.headers.iter().position(|header| header.weight.is_nan()) {
            round.state.part(rank, "has a gradient that is infinite or NaN".into())?;
        }
        let total: f64 = round.headers.iter().map(|header| header.weight).sum();
        let share = |header: &Header| if total > 0.0 { header.weight / total } else { 0.0 };
        let shares: Vec<f64> = round.headers.iter().map(share).collect();
        // From here on: before, it waited for the slowest rank, which is not a cost of the exchange.
        let start = Instant::now();
        round.state.exchanged.bytes += parameters.sum::<T>(group, self.0.wire, factor, &shares);
        round.state.exchanged.time += start.elapsed();
        Ok(parameters.into_gradients())
    }

    /// What the exchanges of gradients have cost this rank since it was started; nothing where there is one rank.
    pub fn exchanged(&self) -> Exchanged {
        self.0.lock().exchanged
    }

    /// What each rank gives, in the order of the ranks.
    #[cfg(feature = "train")]
    pub(crate) fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let Some(group) = &self.0.group else { return Ok(vec![own]) };
        let header = Header::new(Operation::Gather, ());
        Ok(self.0.meet(group, header, &own, "")?.messages)
    }

    /// What the first rank gives.
    #[cfg(feature = "train")]
    pub(crate) fn broadcast_value<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<T> {
        if self.size() == 1 {
            return Ok(own);
        }
        let values = self.gather(rmp_serde::to_vec(&own).expect("plain data"))?;
        Ok(rmp_serde::from_slice(&values[0]).expect("what rank 0 wrote"))
    }

    /// The sums of some numbers over all ranks, such as of a shared validation: losses times counts, and counts. Returns
    /// [`Error::Rank`] also if a rank gives another number of them.
    pub fn sum(&self, values: &[f64]) -> Result<Vec<f64>> {
        let mut values = values.to_vec();
        let Some(group) = &self.0.group else { return Ok(values) };
        let header = Header::new(Operation::Sum, values.len());
        // Held as in `broadcast`.
        let _round = self.0.meet(group, header, &[], "adds up other numbers than rank 0")?;
        weighted_sum::<f64, f64>(group, vec![&mut values], 1.0, &vec![1.0; self.size()], identity, identity);
        Ok(values)
    }

    /// Makes sure that settings, or what was read from files, are the same on all ranks, as `Debug` writes them. Returns
    /// [`Error::Rank`] that names the first rank with another `value` than rank 0.
    pub fn same(&self, what: &str, value: &impl Debug) -> Result<()> {
        let Some(group) = &self.0.group else { return Ok(()) };
        let header = Header::new(Operation::Same, format!("{value:?}"));
        self.0.meet(group, header, &[], &format!("has another {what} than rank 0")).map(drop)
    }

    /// Asks for a stop, from any thread, as for Ctrl-C: [`is_stopped`](Self::is_stopped) is true on all ranks after the next
    /// method that they call together.
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

const PANICKED: &str = "panicked";

struct Inner {
    group: Option<Group>,
    wire: Wire,
    state: Mutex<RoundState>,
    stop: AtomicBool,
}

#[derive(Default)]
struct RoundState {
    /// Why the ranks have parted: which of them, and what it said.
    parted: Option<(usize, String)>,
    is_stopped: bool,
    exchanged: Exchanged,
}

impl RoundState {
    /// The error of ranks that have parted.
    fn check(&self) -> Result<()> {
        let Some((rank, problem)) = self.parted.clone() else { return Ok(()) };
        Err(Error::Rank { rank, problem })
    }

    fn part(&mut self, rank: usize, problem: String) -> Result<()> {
        self.parted = Some((rank, problem));
        self.check()
    }
}

/// What [`Ranks::exchanged`] returns; [the module](super) has a training loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchanged {
    /// Bytes that this rank sent to others, and as many received.
    pub bytes: usize,
    /// How long it took, from when the last rank was there.
    pub time: Duration,
}

enum Operation {
    Parameters = 1,
    Gradients,
    Sum,
    Same,
    #[cfg(feature = "train")]
    Gather,
    Leave,
}

/// What a rank tells all others before they do anything together.
struct Header {
    operation: u64,
    /// The hash of what has to be the same on all ranks.
    same: u64,
    /// What its gradients count; NaN if one of them is not finite.
    weight: f64,
    stops: bool,
    message: usize,
}

impl Header {
    const LENGTH: usize = 5;

    fn new(operation: Operation, same: impl Hash) -> Self {
        // Without the random keys of the default, which every process draws for itself.
        let same = BuildHasherDefault::<DefaultHasher>::default().hash_one(same);
        Self { operation: operation as u64, same, weight: 1.0, stops: false, message: 0 }
    }

    fn to_bits(&self) -> [u64; Self::LENGTH] {
        let &Self { operation, same, weight, stops, message } = self;
        [operation, same, weight.to_bits(), stops.into(), message as u64]
    }

    fn from_bits(bits: &[u64]) -> Self {
        let [operation, same, weight, stops, message] = bits.try_into().expect("one header");
        let (weight, stops, message) = (f64::from_bits(weight), stops != 0, message as usize);
        Self { operation, same, weight, stops, message }
    }
}

/// All ranks are at the same point of the program, and no other thread of this one goes on before it ends.
struct Round<'a> {
    state: MutexGuard<'a, RoundState>,
    headers: Vec<Header>,
    #[cfg_attr(not(feature = "train"), allow(dead_code))]
    messages: Vec<Vec<u8>>,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, RoundState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every rank is here, and makes sure that all want the same, or what differs: `other`.
    fn meet(&self, group: &Group, own: Header, message: &[u8], other: &str) -> Result<Round<'_>> {
        let mut state = self.lock();
        state.check()?;
        // Relaxed, as the round itself is what orders it between threads and ranks.
        let own = Header { stops: self.stop.load(Ordering::Relaxed), ..own };
        let (headers, messages) = exchange(group, own, message);
        // All know it after the same round, whichever of them was asked to stop.
        state.is_stopped |= headers.iter().any(|header| header.stops);
        let first = |is: &dyn Fn(&Header) -> bool| headers.iter().position(is);
        if let Some(rank) = first(&|header| header.operation == Operation::Leave as u64) {
            state.part(rank, String::from_utf8_lossy(&messages[rank]).into_owned())?;
        } else if let Some(rank) = first(&|header| header.operation != headers[0].operation) {
            state.part(rank, "called a different collective operation than rank 0".into())?;
        } else if let Some(rank) = first(&|header| header.same != headers[0].same) {
            state.part(rank, other.into())?;
        }
        Ok(Round { state, headers, messages })
    }

    /// Tells the others that this rank takes no further part, and why, if it does not end as they do.
    fn leave(&self, problem: Option<String>) {
        let mut state = self.lock();
        let Some(group) = self.group.as_ref().filter(|_| state.parted.is_none()) else { return };
        // Where the others end too, nobody reads it.
        let said = problem.unwrap_or_else(|| "has left the run".into());
        exchange(group, Header::new(Operation::Leave, ()), said.as_bytes());
        state.parted = Some((group.rank, said));
    }
}

fn exchange(group: &Group, own: Header, message: &[u8]) -> (Vec<Header>, Vec<Vec<u8>>) {
    let mut all = vec![0; Header::LENGTH * group.size];
    group.all_gather(&Header { message: message.len(), ..own }.to_bits(), &mut all);
    let headers: Vec<Header> = all.chunks(Header::LENGTH).map(Header::from_bits).collect();
    let message_of = |(rank, header): (usize, &Header)| {
        // Its length came with the header: MPI writes into a buffer that has to fit.
        let mut bytes = if rank == group.rank { message.to_vec() } else { vec![0u8; header.message] };
        group.broadcast(rank, &mut bytes);
        bytes
    };
    let messages = headers.iter().enumerate().map(message_of).collect();
    (headers, messages)
}

/// A rank that ends otherwise than by [`Ranks::run`] panicked.
impl Drop for Inner {
    fn drop(&mut self) {
        self.leave(Some(PANICKED.into()));
    }
}
