//! What optimizers do to tensors: the squares of many are added up, and Adam takes a step.

#[cfg(feature = "_cubecl")]
mod cube;

#[cfg(feature = "flex")]
use crate::flex::optimizer as host;
use crate::numerics::precision::{computed_in, narrow, wide};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchTensor, TensorMetadata};
use burn::prelude::*;

/// Numbers that add up to Σ x² over all values of all `tensors`, outside autodiff: each `[1]`, in
/// [`computed_in`](crate::computed_in) of a tensor's dtype.
///
/// On a CubeCL device many tensors are read by one launch, and each dtype gives one number.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{scaled, sums_of_squares};
///
/// let device = Device::default();
/// let x = Tensor::<1>::from_floats([3.0, 4.0], &device).into_dispatch();
/// let sum = sums_of_squares(vec![x.clone()]).into_iter().reduce(|a, b| a + b).unwrap(); // 25
/// let unit = Tensor::<1>::from_dispatch(scaled(vec![x], &sum.sqrt().recip()).remove(0));
/// assert!(unit.all_close(Tensor::from_floats([0.6, 0.8], &device), None, None));
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

/// All `tensors` times `factor`, `[1]`, each rounded to its dtype once, as in the example of [`sums_of_squares`]. On a CubeCL
/// device a launch takes several.
pub fn scaled(tensors: Vec<DispatchTensor>, factor: &Tensor<1>) -> Vec<DispatchTensor> {
    let factor = factor.clone().into_dispatch();
    #[cfg(feature = "_cubecl")]
    if cube::scales(&tensors, &factor) {
        return cube::scaled(tensors, factor);
    }
    tensors.into_iter().map(|tensor| product::<Dispatch>(tensor, factor.clone())).collect()
}

fn product<B: Backend>(tensor: FloatTensor<B>, factor: FloatTensor<B>) -> FloatTensor<B> {
    let (dtype, rank) = (tensor.dtype(), tensor.shape().num_dims());
    let factor = B::float_to_device(narrow::<B>(factor, computed_in(dtype)), &tensor.device());
    let factor = B::float_reshape(factor, Shape::from(vec![1; rank]));
    narrow::<B>(B::float_mul(wide::<B>(tensor), factor), dtype)
}

/// One step of [`adam`]: `w ← keep·w − size·m / (root·√v + ε)`, with m and v the running means of g and g².
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// The decay of m.
    pub beta_1: f64,
    /// The decay of v.
    pub beta_2: f64,
    /// ε, added to the root.
    pub epsilon: f64,
    /// What the weight decay leaves of w.
    pub keep: f64,
    /// 1 / √(1 − β₂ᵗ), or 1 without bias correction under the root.
    pub root: f64,
    /// The learning rate with its bias corrections.
    pub size: f64,
}

/// Values and optimizer state after a step of Adam, on any device: w and g in one dtype, m and v in
/// [`computed_in`](crate::computed_in) of it, in which everything is computed.
///
/// On Flex and on CubeCL devices a step is one pass, and the new values are in the gradient's memory.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{AdamStep, adam};
///
/// let of = |value: f32| Tensor::<1>::from_floats([value], &Device::default());
/// let step = AdamStep { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-8, keep: 1.0, root: 1.0, size: 0.1 };
/// let (values, _state) = adam(step, of(1.0), [of(0.0), of(0.0)], of(2.0));
/// assert!(values.into_scalar::<f32>() < 1.0);
/// ```
pub fn adam<const D: usize>(
    step: AdamStep,
    values: Tensor<D>,
    [mean, square]: [Tensor<D>; 2],
    gradient: Tensor<D>,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    #[cfg(feature = "flex")]
    if host::takes(&values, [&mean, &square], &gradient) {
        return host::adam(step, values, [mean, square], gradient);
    }
    #[cfg(feature = "_cubecl")]
    let [values, mean, square, gradient]: [Tensor<D>; 4] = {
        let tensors = [values, mean, square, gradient].map(Tensor::into_dispatch);
        if cube::takes_step(&tensors) {
            let [values, mean, square] = cube::adam(step, tensors).map(Tensor::from_dispatch);
            return (values, [mean, square]);
        }
        tensors.map(Tensor::from_dispatch)
    };
    let AdamStep { beta_1, beta_2, epsilon, keep, root, size } = step;
    let (narrow, wide) = (values.dtype(), computed_in(values.dtype()));
    // In f16 g² would underflow, and in bf16 the small steps of the means would be rounded away.
    let gradient = gradient.cast(wide);
    // m + (1 − β)(g − m), torch's `lerp`: β·m + (1 − β)·g rounds otherwise.
    let toward = |old: Tensor<D>, new: Tensor<D>, beta: f64| (new - old.clone()).mul_scalar(1.0 - beta) + old;
    let mean = toward(mean, gradient.clone(), beta_1);
    let square = toward(square, gradient.square(), beta_2);
    let root = square.clone().sqrt().mul_scalar(root).add_scalar(epsilon);
    let values = values.cast(wide).mul_scalar(keep) - mean.clone().div(root).mul_scalar(size);
    (values.cast(narrow), [mean, square])
}
