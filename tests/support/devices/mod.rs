//! The devices that are compiled in.

#![allow(dead_code)] // every test file takes what it needs

use burn::prelude::*;
use burn::tensor::DType;

#[cfg(feature = "flex")]
pub fn flex() -> Device {
    Device::flex()
}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // Burn replaces it by flex; this crate supports it as long as Burn has it
pub fn ndarray() -> Device {
    Device::ndarray()
}

/// A device that a machine may lack. Fails where it does: a suite that skips itself would be green where nothing was tested.
#[cfg(any(feature = "wgpu", feature = "vulkan", feature = "cuda", feature = "rocm"))]
fn present(kind: burn::tensor::DeviceType, needs: &str, device: impl FnOnce() -> Device) -> Device {
    assert!(!Device::enumerate(kind.clone()).is_empty(), "{kind:?} finds no device; it needs {needs}");
    device()
}

#[cfg(any(feature = "wgpu", feature = "vulkan"))]
const DRIVER: &str = "a Vulkan driver, such as Mesa's software one: apt-get install mesa-vulkan-drivers";

/// The default wgpu adapter.
#[cfg(feature = "wgpu")]
pub fn wgpu() -> Device {
    present(burn::tensor::DeviceType::Wgpu, DRIVER, || Device::wgpu(Default::default()))
}

/// As [`wgpu`], through Vulkan and SPIR-V alone.
#[cfg(feature = "vulkan")]
pub fn vulkan() -> Device {
    present(burn::tensor::DeviceType::Vulkan, DRIVER, || Device::vulkan(Default::default()))
}

#[cfg(feature = "cuda")]
pub fn cuda() -> Device {
    present(burn::tensor::DeviceType::Cuda, "an NVIDIA GPU and its driver, libcuda.so", || Device::cuda(0))
}

#[cfg(feature = "rocm")]
pub fn rocm() -> Device {
    present(burn::tensor::DeviceType::Rocm, "an AMD GPU and ROCm", || Device::rocm(0))
}

#[cfg(feature = "cpu")]
pub fn cpu() -> Device {
    Device::cpu()
}

/// The dtypes of `wanted` that a device computes in. Fails where it has none of them, because a test that compares
/// nothing must not pass; `--skip NAME` leaves it out on such a device.
pub fn supported(device: &Device, wanted: &[DType]) -> Vec<DType> {
    let found: Vec<DType> = wanted.iter().copied().filter(|&dtype| device.supports_dtype(dtype)).collect();
    assert!(!found.is_empty(), "{device:?} computes in none of {wanted:?}");
    found
}

/// Every device but this one. Fails where there is none, as [`supported`] does.
pub fn others(device: &Device) -> Vec<Device> {
    let found: Vec<Device> = all().into_iter().filter(|other| other != device).collect();
    assert!(
        !found.is_empty(),
        "no second device is compiled in beside {device:?}; turn on ndarray's feature"
    );
    found
}

/// The devices that the operators have kernels for.
pub fn with_kernels() -> Vec<Device> {
    #[cfg_attr(not(feature = "ndarray"), allow(unused_mut))]
    let mut devices = all();
    #[cfg(feature = "ndarray")]
    devices.retain(|device| *device != ndarray());
    devices
}

pub fn all() -> Vec<Device> {
    vec![
        #[cfg(feature = "flex")]
        flex(),
        #[cfg(feature = "ndarray")]
        ndarray(),
        #[cfg(feature = "wgpu")]
        wgpu(),
        #[cfg(feature = "vulkan")]
        vulkan(),
        #[cfg(feature = "cuda")]
        cuda(),
        #[cfg(feature = "rocm")]
        rocm(),
        #[cfg(feature = "cpu")]
        cpu(),
    ]
}
