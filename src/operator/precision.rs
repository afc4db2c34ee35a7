//! The precision that products are computed in.

use crate::error::{Error, Result};
use burn::prelude::*;
use burn::tensor::DType;
use std::cell::{Cell, RefCell};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// What the operands of matrix products are rounded to. Parameters, sums, statistics and losses are f32 in all three.
///
/// | | bits of the mantissa | range | training needs |
/// |---|---|---|---|
/// | `F32` | 24 | 1e-38 to 3e38 | nothing |
/// | `Bf16` | 8 | as f32 | nothing |
/// | `F16` | 11 | 6e-8 to 65504 | [`LossScale`](crate::optim::LossScale) |
///
/// Parsed from and written as `f32`, `bf16` and `f16`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Products are computed in f32.
    #[default]
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
}

impl Precision {
    /// Whether a device can compute with it.
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_bert::functional::Precision;
    ///
    /// assert!(Precision::Bf16.check(&Device::flex()).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if the device has no floats of 16 bits of this kind. A remote device is asked each time.
    pub fn check(self, device: &Device) -> Result<()> {
        match self.dtype() {
            Some(dtype) if !device.supports_dtype(dtype) => {
                let problem = format!(
                    "is {self}, which {device:?} cannot compute with; choose f32, or a device with {dtype:?}"
                );
                Err(Error::data("the precision", problem))
            }
            _ => Ok(()),
        }
    }

    /// What operands are rounded to, if they are.
    fn dtype(self) -> Option<DType> {
        match self {
            Self::F32 => None,
            Self::Bf16 => Some(DType::BF16),
            Self::F16 => Some(DType::F16),
        }
    }
}

impl Display for Precision {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = [Self::F32, Self::Bf16, Self::F16];
        let found = known.into_iter().find(|precision| precision.to_string() == text);
        found
            .ok_or_else(|| Error::data("the precision", format!("is {text:?}, but must be f32, bf16 or f16")))
    }
}

/// Runs `f` with the matrix products of this crate in another precision, on this thread: PyTorch's `torch.autocast`.
///
/// Products that take f32 parameters round their operands to 16 bits and add up in f32, and so does their backward, wherever
/// that is called: those of every model of this crate, and [`linear`](crate::functional::linear) in modules of your own.
/// Burn's own operations, such as `Linear::forward`, compute as ever. Parameters stay f32, so gradients, clipping,
/// optimisers, checkpoints, LoRA and frozen parameters need no change. What only attention and GELU read is kept in 16 bits;
/// LayerNorm, softmax, losses and logits are f32.
///
/// ```
/// use burn::prelude::*;
/// use burn::nn::LinearConfig;
/// use burn_bert::functional::{Precision, autocast, linear};
///
/// let device = Device::default();
/// let layer = LinearConfig::new(8, 4).init(&device);
/// let x = Tensor::<2>::ones([2, 8], &device);
/// let forward = || linear(x.clone(), layer.weight.val(), layer.bias.as_ref().map(|bias| bias.val()));
/// let (exact, rounded) = (forward(), autocast(Precision::Bf16, forward));
/// assert!(rounded.all_close(exact, Some(1e-2), Some(1e-2)));
/// ```
///
/// To train in f16, use [`LossScale::autocast`](crate::optim::LossScale::autocast) in its place.
///
/// # Panics
///
/// Products panic on a device where [`Precision::check`] returns an error, with the same message.
///
/// Source: `torch.autocast` of PyTorch 2.15.
pub fn autocast<T>(precision: Precision, f: impl FnOnce() -> T) -> T {
    scaled_autocast(precision, 1.0, f)
}

/// [`autocast`] with gradients in 16 bits stored times `scale`, a power of two.
pub(crate) fn scaled_autocast<T>(precision: Precision, scale: f64, f: impl FnOnce() -> T) -> T {
    Rounding::take(precision.dtype().map(|dtype| Rounding { dtype, scale }), f)
}

/// How the operands of products are rounded.
///
/// The gradient of a tensor in 16 bits is stored times `scale`, that of any other tensor is not: what turns one into the
/// other multiplies or divides. This is what scaling the loss comes to, since all in between is linear in the gradient,
/// but gradients of parameters come out as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rounding {
    /// F16 or BF16; F32 if they are not.
    pub(crate) dtype: DType,
    /// A power of two.
    pub(crate) scale: f64,
}

thread_local! {
    static CURRENT: Cell<Option<Rounding>> = const { Cell::new(None) };
    /// Devices that can compute in a dtype: a remote one takes a while to answer.
    static SUPPORTED: RefCell<Vec<(Device, DType)>> = const { RefCell::new(Vec::new()) };
}

impl Rounding {
    /// That of products that are called now, on this thread.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Runs `f` with products rounded so, on this thread.
    pub(crate) fn take<T>(rounding: Option<Self>, f: impl FnOnce() -> T) -> T {
        struct Restore(Option<Rounding>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _restore = Restore(CURRENT.replace(rounding));
        f()
    }

    /// # Panics
    ///
    /// Where [`Precision::check`] returns an error.
    pub(crate) fn assert_supported(self, device: &Device) {
        SUPPORTED.with_borrow_mut(|supported| {
            if supported.iter().any(|(known, dtype)| *dtype == self.dtype && known == device) {
                return;
            }
            let precision = match self.dtype {
                DType::F16 => Precision::F16,
                DType::BF16 => Precision::Bf16,
                _ => Precision::F32,
            };
            precision.check(device).unwrap_or_else(|error| panic!("{error}"));
            supported.push((device.clone(), self.dtype));
        });
    }
}

#[cfg(feature = "remote")]
impl super::wire::Plain for Rounding {
    fn put(&self, to: &mut Vec<super::wire::Number>) {
        let is = |dtype| self.dtype == dtype;
        is(DType::F16).put(to);
        is(DType::BF16).put(to);
        self.scale.put(to);
    }

    fn take(from: &mut super::wire::Numbers) -> Self {
        let [f16, bf16] = [(); 2].map(|()| bool::take(from));
        let dtype = if f16 {
            DType::F16
        } else if bf16 {
            DType::BF16
        } else {
            DType::F32
        };
        Self { dtype, scale: f64::take(from) }
    }
}
