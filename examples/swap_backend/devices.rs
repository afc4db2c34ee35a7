//! The devices that are compiled in, and asking them whether they answer.

use burn::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

/// A device that is compiled in; whether the machine has it shows when it is opened.
pub struct Candidate {
    pub name: String,
    make: fn() -> Device,
}

impl Candidate {
    fn new(name: &str, make: fn() -> Device) -> Self {
        Self { name: name.to_owned(), make }
    }

    /// The device, after it has added two numbers up; otherwise why it has not.
    pub fn open(&self) -> Result<Device, String> {
        caught(|| {
            let device = (self.make)();
            let sum = Tensor::<1>::from_floats([1.0, 2.0], &device).sum().into_scalar::<f32>();
            if sum == 3.0 { Ok(device) } else { Err(format!("1 + 2 is {sum} there")) }
        })?
    }

    /// Whether the device is a graphics adapter made of software, such as Mesa's.
    pub fn is_software(&self, device: &Device) -> bool {
        software(device)
    }
}

#[cfg(any(feature = "wgpu", feature = "vulkan", feature = "metal", feature = "webgpu"))]
fn software(device: &Device) -> bool {
    device.identity().is_some_and(|identity| {
        let name = identity.name.to_lowercase();
        ["llvmpipe", "swiftshader", "software", "basic render"].iter().any(|known| name.contains(known))
    })
}

#[cfg(not(any(feature = "wgpu", feature = "vulkan", feature = "metal", feature = "webgpu")))]
fn software(_device: &Device) -> bool {
    false
}

/// Every device of this build, the one that the others are compared with first.
pub fn compiled_in() -> Vec<Candidate> {
    vec![
        #[cfg(feature = "flex")]
        Candidate::new("flex", Device::flex),
        #[cfg(feature = "ndarray")]
        Candidate::new("ndarray", {
            #[allow(deprecated)] // supported here as long as Burn has it
            Device::ndarray
        }),
        #[cfg(feature = "cpu")]
        Candidate::new("cpu", Device::cpu),
        #[cfg(feature = "wgpu")]
        Candidate::new("wgpu", || Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
        #[cfg(feature = "vulkan")]
        Candidate::new("vulkan", || Device::vulkan(burn::tensor::DeviceKind::DefaultDevice)),
        #[cfg(feature = "metal")]
        Candidate::new("metal", || Device::metal(burn::tensor::DeviceKind::DefaultDevice)),
        #[cfg(feature = "webgpu")]
        Candidate::new("webgpu", || Device::webgpu(burn::tensor::DeviceKind::DefaultDevice)),
        #[cfg(feature = "cuda")]
        Candidate::new("cuda", || Device::cuda(burn::tensor::DeviceIndex::Default)),
        #[cfg(feature = "rocm")]
        Candidate::new("rocm", || Device::rocm(burn::tensor::DeviceIndex::Default)),
    ]
}

/// Runs `task`; a panic, which is how Burn says that a driver is missing, becomes its first line.
pub fn caught<T>(task: impl FnOnce() -> T) -> Result<T, String> {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let result = catch_unwind(AssertUnwindSafe(task));
    set_hook(hook);
    result.map_err(|payload| {
        let message = match (payload.downcast_ref::<String>(), payload.downcast_ref::<&str>()) {
            (Some(message), _) => message.as_str(),
            (None, Some(message)) => message,
            (None, None) => "it panicked",
        };
        message.lines().next().unwrap_or_default().to_owned()
    })
}
