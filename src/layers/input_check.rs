use crate::error::{Error, Result};
use burn::prelude::*;
use burn::tensor::DType;

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
