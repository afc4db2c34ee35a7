//! Devices of this machine that share the steps of a training run.

use anyhow::{Result, bail, ensure};
use burn::prelude::*;
use burn::tensor::DeviceType;
use burn::train::{ExecutionStrategy, MultiDeviceOptim};

/// The default device, or as many GPUs of one kind: of the first that is compiled in and has so many.
pub fn devices(count: usize) -> Result<Vec<Device>> {
    ensure!(count > 0, "--devices is 0, but must be at least 1");
    if count == 1 {
        return Ok(vec![Device::default()]);
    }
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
    let kinds = kinds.into_iter().map(|kind| Device::enumerate(kind).into_iter().collect::<Vec<_>>());
    let Some(mut devices) = kinds.into_iter().find(|devices| devices.len() >= count) else {
        bail!("--devices is {count}, but no kind of GPU that is compiled in has so many");
    };
    devices.truncate(count);
    Ok(devices)
}

/// One device, or several that share each step; the first holds the weights.
pub fn strategy(devices: &[Device]) -> ExecutionStrategy {
    match devices {
        [device] => ExecutionStrategy::single(device.clone().autodiff()),
        devices => {
            let devices = devices.iter().map(|device| device.clone().autodiff()).collect();
            ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice)
        }
    }
}
