//! What the operators' tests share.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, try_read_sync};
use burn::tensor::{DType, Shape, TensorData};

pub(crate) fn float<B: Backend>(values: Vec<f32>, shape: impl Into<Shape>, dtype: DType) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(values, shape.into()).convert_dtype(dtype), &Default::default())
}

/// In the device's own dtype of integers.
pub(crate) fn int<B: Backend>(values: Vec<i32>, shape: impl Into<Shape>) -> IntTensor<B> {
    let device = Default::default();
    let dtype = burn::backend::get_or_init_device_settings::<B>(&device).int_dtype;
    B::int_from_data(TensorData::new(values, shape.into()).convert_dtype(dtype.into()), &device)
}

pub(crate) fn numbers<B: Backend>(tensor: &FloatTensor<B>) -> Vec<f64> {
    try_read_sync(B::float_into_data(tensor.clone())).unwrap().unwrap().iter::<f64>().collect()
}

/// The 16-bit floats that the device has.
pub(crate) fn sixteen_bits<B: Backend>() -> Vec<DType> {
    let mut dtypes = vec![DType::F16, DType::BF16];
    dtypes.retain(|&dtype| B::supports_dtype(&Default::default(), dtype));
    assert!(!dtypes.is_empty(), "the device has no 16-bit floats; `--skip sixteen_bit` leaves this test out");
    dtypes
}
