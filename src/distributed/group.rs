//! The processes that `mpirun` started, through MPI, and their devices. Without the feature `mpi` there are none.

use crate::error::{Error, Result};
use burn::prelude::Device;
use burn::tensor::DeviceType;
#[cfg(feature = "mpi")]
use mpi::environment::{Universe, initialize_with_threading};
#[cfg(feature = "mpi")]
use mpi::traits::{Communicator, CommunicatorCollectives, Equivalence, Root};
#[cfg(feature = "mpi")]
use mpi::{Threading, topology::SimpleCommunicator};
#[cfg(not(feature = "mpi"))]
use std::{convert::Infallible as Universe, marker::Copy as Equivalence}; // nothing travels

/// What Open MPI, MPICH, MVAPICH and Slurm set in the processes that they start.
const STARTED: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_RANK"];

/// Numbers that MPI has a type for.
pub(super) trait Element: Copy + Default + Equivalence {}
impl<T: Copy + Default + Equivalence> Element for T {}

/// All processes of a run. Every method is to be called by each of them, and waits for the others. The communicator is made anew
/// for each call: it holds a pointer that other threads may not have.
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

    pub(super) fn broadcast<T: Element>(&self, root: usize, buffer: &mut [T]) {
        #[cfg(not(feature = "mpi"))]
        match (self._universe, root, buffer) {}
        // In pieces, as MPI counts in 31 bits.
        #[cfg(feature = "mpi")]
        for piece in buffer.chunks_mut(1 << 26) {
            SimpleCommunicator::world().process_at_rank(root as i32).broadcast_into(piece);
        }
    }

    pub(super) fn all_gather<T: Element>(&self, own: &[T], all: &mut [T]) {
        #[cfg(not(feature = "mpi"))]
        match (self._universe, own, all) {}
        #[cfg(feature = "mpi")]
        SimpleCommunicator::world().all_gather_into(own, all);
    }

    /// Part r of `parts` to rank r, of as many parts as ranks, and in `received` this rank's part from each.
    pub(super) fn all_to_all<T: Element>(&self, parts: &[T], received: &mut [T]) {
        #[cfg(not(feature = "mpi"))]
        match (self._universe, parts, received) {}
        #[cfg(feature = "mpi")]
        SimpleCommunicator::world().all_to_all_into(parts, received);
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
