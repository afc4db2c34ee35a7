//! What connects ranks: MPI, if they are processes that `mpirun` started, or memory, if they are threads of one process.

use crate::error::{Error, Result};
use burn::prelude::Device;
use burn::tensor::DeviceType;
#[cfg(feature = "mpi")]
use mpi::environment::{Universe, initialize_with_threading};
#[cfg(feature = "mpi")]
use mpi::traits::{Communicator, CommunicatorCollectives, Equivalence, Root};
#[cfg(feature = "mpi")]
use mpi::{Threading, topology::SimpleCommunicator};
use std::any::Any;
#[cfg(not(feature = "mpi"))]
use std::marker::Copy as Equivalence;
use std::sync::{Arc, Barrier, Mutex, PoisonError}; // MPI has no type to know

/// What Open MPI, MPICH, MVAPICH and Slurm set in the processes that they start.
const STARTED: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_RANK"];

/// Numbers that MPI has a type for.
pub(super) trait Element: Copy + Default + Equivalence + Send + Sync + 'static {}
impl<T: Copy + Default + Equivalence + Send + Sync + 'static> Element for T {}

/// All ranks of a run. Every method is to be called by each of them, and waits for the others.
pub(super) struct Group {
    pub(super) rank: usize,
    pub(super) size: usize,
    /// The number of this rank among those of its machine.
    pub(super) local_rank: usize,
    links: Links,
}

enum Links {
    /// MPI, which ends when this is dropped. The communicator is made anew for each call: it holds a pointer that other threads may not
    /// have.
    #[cfg(feature = "mpi")]
    Mpi(#[allow(dead_code)] Universe),
    Threads(Arc<Threads>),
}

/// Values that threads of one process exchange: each writes its own, and reads the others'.
struct Threads {
    barrier: Barrier,
    slots: Mutex<Vec<Option<Arc<dyn Any + Send + Sync>>>>,
}

impl Threads {
    /// What every rank gives, in the order of the ranks.
    fn gather<T: Element>(&self, rank: usize, own: &[T]) -> Vec<Arc<Vec<T>>> {
        let slots = || self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots()[rank] = Some(Arc::new(own.to_vec()));
        self.barrier.wait();
        let taken =
            slots().iter().flatten().cloned().map(|slot| slot.downcast().expect("one operation")).collect();
        // Nobody lays down the next thing before all have taken this one.
        self.barrier.wait();
        taken
    }
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
            Ok(Some(Self { rank, size, local_rank, links: Links::Mpi(universe) }))
        }
    }

    /// A group of `size` threads of this process: the end of each.
    pub(super) fn on_threads(size: usize) -> Vec<Self> {
        let slots = Mutex::new(vec![None; size]);
        let threads = Arc::new(Threads { barrier: Barrier::new(size), slots });
        let end = |rank| Self { rank, size, local_rank: rank, links: Links::Threads(threads.clone()) };
        (0..size).map(end).collect()
    }

    pub(super) fn broadcast<T: Element>(&self, root: usize, buffer: &mut [T]) {
        match &self.links {
            // In pieces, as MPI counts in 31 bits.
            #[cfg(feature = "mpi")]
            Links::Mpi(_) => buffer.chunks_mut(1 << 26).for_each(|piece| {
                SimpleCommunicator::world().process_at_rank(root as i32).broadcast_into(piece);
            }),
            Links::Threads(threads) => {
                let own: &[T] = if self.rank == root { buffer } else { &[] };
                let all = threads.gather(self.rank, own);
                buffer.copy_from_slice(&all[root]);
            }
        }
    }

    pub(super) fn all_gather<T: Element>(&self, own: &[T], all: &mut [T]) {
        match &self.links {
            #[cfg(feature = "mpi")]
            Links::Mpi(_) => SimpleCommunicator::world().all_gather_into(own, all),
            Links::Threads(threads) => {
                let given = threads.gather(self.rank, own);
                all.chunks_mut(own.len().max(1))
                    .zip(given)
                    .for_each(|(part, given)| part.copy_from_slice(&given));
            }
        }
    }

    /// Part r of `parts` to rank r, of as many parts as ranks, and in `received` this rank's part from each.
    pub(super) fn all_to_all<T: Element>(&self, parts: &[T], received: &mut [T]) {
        match &self.links {
            #[cfg(feature = "mpi")]
            Links::Mpi(_) => SimpleCommunicator::world().all_to_all_into(parts, received),
            Links::Threads(threads) => {
                let (given, part) = (threads.gather(self.rank, parts), parts.len() / self.size);
                let own = self.rank * part..(self.rank + 1) * part;
                received
                    .chunks_mut(part.max(1))
                    .zip(given)
                    .for_each(|(to, from)| to.copy_from_slice(&from[own.clone()]));
            }
        }
    }
}

/// The GPUs of this machine of the kind of Burn's default device; empty if that is no GPU.
pub(crate) fn gpus() -> Vec<Device> {
    let kinds: Vec<DeviceType> = vec![
        #[cfg(feature = "cuda")]
        DeviceType::Cuda,
        #[cfg(feature = "rocm")]
        DeviceType::Rocm,
        #[cfg(feature = "metal")]
        DeviceType::Metal,
        #[cfg(feature = "vulkan")]
        DeviceType::Vulkan,
        #[cfg(feature = "webgpu")]
        DeviceType::WebGpu,
        #[cfg(feature = "wgpu")]
        DeviceType::Wgpu,
    ];
    let mut devices = kinds.into_iter().map(|kind| Device::enumerate(kind).into_vec());
    devices.find(|devices| devices.contains(&Device::default())).unwrap_or_default()
}
