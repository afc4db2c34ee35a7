//! The squares of many tensors, added up.

#[cfg(feature = "_cubecl")]
mod cube;

use crate::numerics::dtype::wide;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchTensor};
use burn::prelude::*;

/// Numbers that add up to Σ x² over all values of all `tensors`, outside autodiff: each `[1]`, in
/// [`computed_in`](crate::computed_in) of a tensor's dtype.
///
/// On a CubeCL device many tensors are read by one launch, and each dtype gives one number.
///
/// ```
/// use burn::prelude::*;
///
/// let x = Tensor::<1>::from_floats([3.0, 4.0], &Device::default());
/// let sums = burn_fused::sums_of_squares(vec![x.into_dispatch()]);
/// let total: f32 = sums.into_iter().map(|sum| sum.into_scalar::<f32>()).sum();
/// assert_eq!(total, 25.0);
/// ```
pub fn sums_of_squares(tensors: Vec<DispatchTensor>) -> Vec<Tensor<1>> {
    let mut sums = Vec::new();
    #[cfg(feature = "_cubecl")]
    let tensors = cube::take(tensors, &mut sums);
    sums.extend(tensors.into_iter().map(sum_of_squares::<Dispatch>));
    sums.into_iter().map(Tensor::from_dispatch).collect()
}

fn sum_of_squares<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let tensor = wide::<B>(tensor);
    B::float_sum(B::float_mul(tensor.clone(), tensor))
}
