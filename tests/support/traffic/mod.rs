//! What passes between the host and a CubeCL device.

use burn::backend::fusion::FusionBackend;
use burn::backend::fusion::client::GlobalFusionClient;
use burn::backend::fusion::custom::OperationIr;
use burn::backend::fusion::observer::{BlockOperations, FusionObservation, FusionObserver};
use burn::backend::ir::{TensorIr, TensorStatus};
use burn::prelude::*;
use burn_cubecl::cubecl::logging::{LaunchObservation, LaunchObserver, TimingMethod, TimingRequest};
use burn_cubecl::{CubeBackend, CubeDevice};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Of one run.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes of tensors made of the host's data.
    pub uploaded: usize,
    /// How often the host waited for the device, such as for values that it read.
    pub waits: usize,
    /// Bytes of tensors that Burn's queue had launches for: what each entry, or each group of entries that are fused, reads and
    /// leaves behind, once. What a kernel reads several times counts once, and what an entry keeps to itself not at all.
    pub moved: usize,
}

/// Runs `f` on a device that takes a millisecond for each operation that it is asked for, so that the host is ahead of it,
/// by the length of the queue, except where it waits. Of the whole process: one caller at a time.
pub fn traffic<T>(device: &Device, mut f: impl FnMut() -> T) -> Traffic {
    drop(f()); // whatever is done once
    device.sync().unwrap();
    let watch = Arc::new(Watch::default());
    let observations = (FusionObservation::new(watch.clone()), LaunchObservation::new(watch.clone()));
    let kept = f();
    device.sync().unwrap();
    drop((observations, kept));
    watch.0.lock().unwrap().traffic()
}

#[derive(Default)]
struct Watch(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    uploaded: usize,
    moved: usize,
    /// Of the entries that run now; views of tensors launch nothing.
    of_block: usize,
    /// By how many tensors the host was ahead when each operation reached the device.
    ahead: Vec<u64>,
    /// The tensors' numbers that `newest` took.
    own: Vec<u64>,
}

impl Seen {
    /// The number of the tensor that the host would make next.
    fn newest(&mut self) -> u64 {
        let client =
            GlobalFusionClient::<<CubeBackend as FusionBackend>::FusionRuntime>::load(&CubeDevice::default());
        let newest = client.create_empty_handle().value();
        self.own.push(newest);
        newest
    }

    fn traffic(&self) -> Traffic {
        // At the end of the run there is nothing to be ahead of: as much as the queue holds is left out.
        let counted = self.ahead.len().saturating_sub(QUEUE);
        let waits = self.ahead[..counted].iter().filter(|&&ahead| ahead == 0).count();
        Traffic { uploaded: self.uploaded, waits, moved: self.moved }
    }
}

/// More operations than a device's queue holds.
const QUEUE: usize = 128;

impl FusionObserver for Watch {
    fn registered(&self, operation: &OperationIr) {
        std::thread::sleep(Duration::from_millis(1));
        let mut seen = self.0.lock().unwrap();
        if let OperationIr::Init(init) = operation {
            seen.uploaded += init.out.shape.num_elements() * init.out.dtype.size();
        }
        if let Some(output) = operation.outputs().last() {
            let output = output.id.value();
            let newest = seen.newest();
            let own = seen.own.iter().rev().take_while(|&&own| own > output).count() as u64;
            seen.ahead.push(newest - output - own);
        }
    }

    fn block_starts(&self, block: BlockOperations<'_>) {
        self.0.lock().unwrap().of_block = bytes(block);
    }

    fn block_ran(&self) {
        self.0.lock().unwrap().of_block = 0;
    }
}

impl LaunchObserver for Watch {
    fn launched(&self, _kernel: &'static str) {
        let mut seen = self.0.lock().unwrap();
        seen.moved += std::mem::take(&mut seen.of_block);
    }

    fn timing(&self) -> TimingRequest {
        TimingRequest::None
    }

    fn timed(&self, _kernel: &'static str, _duration: Duration, _method: TimingMethod) {}
}

fn bytes(block: BlockOperations<'_>) -> usize {
    let size = |tensor: &TensorIr| tensor.shape.num_elements() * tensor.dtype.size();
    let (mut read, mut made) = (BTreeMap::new(), BTreeMap::new());
    for operation in block.iter() {
        for input in operation.inputs() {
            match made.contains_key(&input.id.value()) {
                // Nobody reads it afterwards: it stays in registers.
                true if input.status == TensorStatus::ReadWrite => drop(made.remove(&input.id.value())),
                true => {}
                false => drop(read.insert(input.id.value(), size(input))),
            }
        }
        made.extend(operation.outputs().map(|output| (output.id.value(), size(output))));
    }
    read.values().chain(made.values()).sum()
}
