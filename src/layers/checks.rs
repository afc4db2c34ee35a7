//! What a config may say, sizes before anything is allocated, and what vectors of the caller must be.

use crate::error::{Error, Result};
use burn::prelude::*;
use burn::tensor::DType;

/// The longest vector: 64 times that of the widest published encoder.
pub(crate) const MAX_WIDTH: usize = 1 << 20;
/// The most rows of a table, because devices count ids in 32 bits.
pub(crate) const MAX_ROWS: usize = i32::MAX as usize;
/// The most parameters of a model: 4 TiB in f32.
const MAX_PARAMS: u128 = 1 << 40;

/// [`Error::Config`] of a `field` that is not valid.
pub(crate) fn ensure(is_valid: bool, field: &'static str, problem: impl FnOnce() -> String) -> Result<()> {
    if is_valid { Ok(()) } else { Err(Error::Config { field, problem: problem() }) }
}

pub(crate) fn check_sizes<const N: usize>(sizes: [(&'static str, usize, usize); N]) -> Result<()> {
    sizes.into_iter().try_for_each(|(field, size, largest)| {
        ensure(size > 0, field, || "is 0, but must be at least 1".into())?;
        ensure(size <= largest, field, || format!("is {size}, but must be at most {largest}"))
    })
}

/// Checks the number of parameters that a config describes. `field` is the one that a message blames.
pub(crate) fn check_num_params(field: &'static str, params: u128) -> Result<()> {
    ensure(params <= MAX_PARAMS, field, || {
        format!("gives {params} parameters together with the other sizes, but at most {MAX_PARAMS} are built")
    })
}

/// Checks the multiple of a length that sequences are padded to.
pub(crate) fn check_multiple(multiple: usize) -> Result<()> {
    const LARGEST: usize = 1 << 16; // no model reads longer sequences
    ensure((1..=LARGEST).contains(&multiple), "pad_to_multiple_of", || {
        format!("is {multiple}, but must lie in 1..={LARGEST}")
    })
}

pub(crate) fn check_dropout(field: &'static str, prob: f64) -> Result<()> {
    ensure((0.0..1.0).contains(&prob), field, || format!("is {prob}, but must lie in [0, 1)"))
}

/// Checks ε: above 0 in f32, which statistics may be computed in, because a constant row is divided by its root.
pub(crate) fn check_epsilon(epsilon: f64) -> Result<()> {
    let smallest = f32::MIN_POSITIVE;
    ensure(epsilon.is_finite() && epsilon >= f64::from(smallest), "layer_norm_eps", || {
        format!(
            "is {epsilon:e}, but must be finite and at least {smallest:.1e}, f32's smallest normal number"
        )
    })
}

/// Refuses vectors of the caller that are not on the device or not of the dtype of the module that reads them.
pub(crate) fn check_input<const D: usize>(
    input: &'static str,
    values: &Tensor<D>,
    device: Device,
    dtype: DType,
) -> Result<()> {
    if values.device() != device {
        return Err(Error::device_mismatch(input, values.device(), device));
    }
    if values.dtype() != dtype {
        return Err(Error::DTypeMismatch { input, found: values.dtype(), expected: dtype });
    }
    Ok(())
}
