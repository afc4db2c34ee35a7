//! What passes between the host and a CubeCL device.

use burn::backend::fusion::FusionBackend;
use burn::backend::fusion::client::GlobalFusionClient;
use burn::backend::fusion::custom::OperationIr;
use burn::backend::fusion::observer::{BlockOperations, FusionObservation, FusionObserver};
use burn::backend::ir::{BaseOperationIr, TensorIr, TensorStatus};
use burn::prelude::*;
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
}

/// Runs `f` on a device that takes a millisecond for each operation that it is asked for, so that the host is ahead of it,
/// by the length of the queue, except where it waits. Of the whole process: one caller at a time.
pub fn traffic<T>(device: &Device, mut f: impl FnMut() -> T) -> Traffic {
    drop(f()); // whatever is done once
    device.sync().unwrap();
    let watch = Arc::new(Watch::default());
    let observation = FusionObservation::new(watch.clone());
    let kept = f();
    device.sync().unwrap();
    drop((observation, kept));
    watch.0.lock().unwrap().traffic()
}

/// Bytes that the kernels of `f` read and write: those of the operators and of Burn's matmuls in them, and of what Burn
/// fuses to a block or runs alone each tensor that passes its boundary once. Of the whole process: one caller at a time.
pub fn bytes_moved<T>(device: &Device, mut f: impl FnMut() -> T) -> u64 {
    drop(f()); // whatever is done once
    device.sync().unwrap();
    let blocks = Arc::new(Blocks::default());
    let observation = FusionObservation::new(blocks.clone());
    let before = burn_fused::bytes_moved();
    let kept = f();
    device.sync().unwrap();
    let of_operators = burn_fused::bytes_moved() - before;
    drop((observation, kept));
    of_operators + *blocks.0.lock().unwrap()
}

/// The bytes of blocks of Burn's operations.
#[derive(Default)]
struct Blocks(Mutex<u64>);

impl FusionObserver for Blocks {
    fn registered(&self, _operation: &OperationIr) {}

    fn block_starts(&self, block: BlockOperations<'_>) {
        let (mut read, mut written) = (BTreeMap::new(), BTreeMap::new());
        for operation in block.iter() {
            use BaseOperationIr::{Expand, Permute, Reshape, Slice, SwapDims};
            let is_view = matches!(
                operation,
                OperationIr::BaseFloat(Expand(_) | Permute(_) | Reshape(_) | Slice(_) | SwapDims(_))
            );
            // Operators count what they move themselves; views and the end of a tensor move nothing.
            if is_view || matches!(operation, OperationIr::Custom(_) | OperationIr::Drop(_)) {
                continue;
            }
            let bytes = |tensor: &TensorIr| (tensor.shape.num_elements() * tensor.dtype.size()) as u64;
            for input in operation.inputs() {
                // What the block makes and uses up never leaves it.
                let is_inside = written.contains_key(&input.id);
                if is_inside && matches!(input.status, TensorStatus::ReadWrite) {
                    written.remove(&input.id);
                } else if !is_inside {
                    read.insert(input.id, bytes(input));
                }
            }
            written.extend(operation.outputs().map(|output| (output.id, bytes(output))));
        }
        *self.0.lock().unwrap() += read.values().chain(written.values()).sum::<u64>();
    }

    fn block_ran(&self) {}
}

#[derive(Default)]
struct Watch(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    uploaded: usize,
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
        Traffic { uploaded: self.uploaded, waits }
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

    fn block_starts(&self, _block: BlockOperations<'_>) {}

    fn block_ran(&self) {}
}
