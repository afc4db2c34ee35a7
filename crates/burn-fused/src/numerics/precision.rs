//! The dtype that numbers are computed in, and the precision of matmuls.

use crate::engine::call::{Precision, with_current, within};
use crate::error::{Error, Result};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::prelude::*;
use burn::tensor::DType;
use std::cell::RefCell;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

impl Precision {
    /// Whether a device can compute with it.
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_fused::Precision;
    ///
    /// assert!(Precision::Bf16.check(&Device::flex()).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedPrecision`] if the device has no floats of 16 bits of this kind.
    pub fn check(self, device: &Device) -> Result<()> {
        let dtype = DType::BF16;
        if self == Self::F32 || device.supports_dtype(dtype) {
            return Ok(());
        }
        Err(Error::UnsupportedPrecision { precision: self, device: format!("{device:?}"), dtype })
    }

    /// The precision of matmuls that are called now, on this thread.
    pub fn current() -> Self {
        with_current(|call| call.precision)
    }
}

impl Display for Precision {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = [Self::F32, Self::Bf16].into_iter().find(|precision| precision.to_string() == text);
        found.ok_or_else(|| Error::UnknownPrecision { found: text.into() })
    }
}

/// Runs `f` with the matmuls of this crate in another precision, on this thread.
///
/// Matmuls with f32 parameters round their operands to 16 bits and add up in f32, and so does their backward, wherever that
/// is called. Use [`linear`](crate::linear) in custom modules; Burn's own operations, such as `Linear::forward`, are not
/// affected. Parameters, LayerNorm, softmax, losses and logits stay f32; activations that only attention and GELU read are in
/// 16 bits.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::prelude::*;
/// use burn_fused::{Precision, autocast, linear};
///
/// let device = Device::default();
/// let layer = LinearConfig::new(8, 4).init(&device);
/// let x = Tensor::<2>::ones([2, 8], &device);
/// let y = autocast(Precision::Bf16, || linear(x, layer.weight.val(), None));
/// assert_eq!(y.dims(), [2, 4]);
/// ```
///
/// # Panics
///
/// Matmuls panic on a device where [`Precision::check`] returns an error, with the same message.
///
/// Source: `torch.autocast` of PyTorch 2.15.
pub fn autocast<T>(precision: Precision, f: impl FnOnce() -> T) -> T {
    within(|call| &mut call.precision, precision, f).0
}

thread_local! {
    /// Devices that can compute in bf16: asking takes longer than a small layer.
    static SUPPORTED: RefCell<Vec<Device>> = const { RefCell::new(Vec::new()) };
}

/// Panics where [`Precision::check`] returns an error for bf16.
pub(crate) fn assert_supported(device: &Device) {
    SUPPORTED.with_borrow_mut(|supported| {
        if !supported.contains(device) {
            Precision::Bf16.check(device).unwrap_or_else(|error| panic!("{error}"));
            supported.push(device.clone());
        }
    });
}

/// The dtype of sums and optimizer state for numbers of `dtype`: f32 for 16-bit floats, otherwise the same.
///
/// ```
/// use burn::tensor::DType;
///
/// assert_eq!(burn_fused::computed_in(DType::BF16), DType::F32);
/// ```
pub fn computed_in(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        dtype => dtype,
    }
}

/// `tensor` in the dtype that it is computed in.
pub(crate) fn wide<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let dtype = computed_in(tensor.dtype());
    narrow::<B>(tensor, dtype)
}

pub(crate) fn narrow<B: Backend>(tensor: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if tensor.dtype() == dtype { tensor } else { B::float_cast(tensor, dtype.into()) }
}
