//! What a device can do.

use crate::error::{Error, Result};
use burn::prelude::*;
use burn::tensor::DType;
use std::sync::{Mutex, PoisonError};

/// Makes `into_data` and records copy values from a CubeCL device when they are called, in the whole process. Burn 0.22.1
/// copies them when the data are first accessed, and may have overwritten the tensor by then, unless the runtime is
/// asynchronous: this sets it so, which decides nothing else.
///
/// ```
/// burn_fused::read_at_once(); // once, before the first tensor is read
/// ```
pub fn read_at_once() {
    #[cfg(feature = "_cubecl")]
    burn_std::set_runtime_kind(burn_std::RuntimeKind::Async);
}

/// Checks that a device computes the functions of attention, activations and losses correctly in `dtype`.
///
/// Some GPU drivers accept f64 but compute its exponential, logarithm, tanh or error function wrongly (Mesa's Vulkan), so
/// known values are computed, once per process and device. f32 is trusted; 16-bit floats are computed in it.
///
/// ```
/// use burn::prelude::*;
/// use burn::tensor::DType;
/// use burn_fused::check_dtype;
///
/// assert!(check_dtype(&Device::flex(), DType::F64).is_ok());
/// ```
///
/// # Errors
///
/// [`Error::WrongDtype`].
pub fn check_dtype(device: &Device, dtype: DType) -> Result<()> {
    /// Devices that were tried, and the first function that is wrong there.
    static KNOWN: Mutex<Vec<(Device, Option<&'static str>)>> = Mutex::new(Vec::new());
    if dtype != DType::F64 {
        return Ok(());
    }
    // Locked while a device is tried: two threads try it once.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let index = known.iter().position(|(tried, _)| tried == device).unwrap_or_else(|| {
        // Trying takes several launches and a read.
        known.push((device.clone(), first_wrong(&device.clone().without_autodiff())));
        known.len() - 1
    });
    match known[index].1 {
        Some(function) => Err(Error::WrongDtype { device: format!("{device:?}"), dtype, function }),
        None => Ok(()),
    }
}

/// Panics where [`check_dtype`] returns an error for the device and the dtype of `tensor`.
pub(crate) fn assert_computes<const D: usize>(tensor: &Tensor<D>) {
    check_dtype(&tensor.device(), tensor.dtype()).unwrap_or_else(|error| panic!("{error}"));
}

/// The first function that is wrong in f64 at one of four points.
fn first_wrong(device: &Device) -> Option<&'static str> {
    type Function = (&'static str, fn(Tensor<1>) -> Tensor<1>, [f64; 4]);
    const PLACES: [f64; 4] = [-2.5, -0.75, 0.3, 1.5];
    // Python's math module computed the values, to more digits than the limit below looks at.
    const FUNCTIONS: [Function; 4] = [
        ("exp", Tensor::exp, [0.0820849986, 0.4723665527, 1.3498588076, 4.4816890703]),
        ("log", |x| x.abs().log(), [0.9162907319, -0.2876820725, -1.2039728043, 0.4054651081]),
        ("tanh", Tensor::tanh, [-0.9866142982, -0.6351489524, 0.2913126125, 0.9051482536]),
        ("erf", Tensor::erf, [-0.9995930480, -0.7111556337, 0.3286267595, 0.9661051465]),
    ];
    // Only what is wrong is refused: backends that compute f64 by f32 are not.
    const LIMIT: f64 = 1e-5;
    let wrong = |(_, function, expected): &&Function| {
        let x = Tensor::<1>::from_data(TensorData::from(PLACES), (device, DType::F64));
        let found = function(x).into_data();
        let is_near = |(found, expected): (f64, &f64)| (found - expected).abs() <= LIMIT; // NaN is not
        !found.iter::<f64>().zip(expected).all(is_near)
    };
    FUNCTIONS.iter().find(wrong).map(|(name, ..)| *name)
}
