//! What optimizers do to tensors: gradients are clipped by their global norm, and Adam takes a step.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;

use crate::numerics::precision::{computed_in, narrow, wide};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchTensor, TensorMetadata};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};

/// `gradients` times `share`, and then times min(1, `max_norm` / (‖g‖ + 1e-6)), each rounded to its dtype once; and their global
/// norm ‖g‖ = √Σ g² before clipping, `[1]`. Without `max_norm` nothing is clipped and no norm is computed; without gradients there is
/// none.
///
/// Gradients may be of any shapes, dtypes and devices, outside autodiff. Memory that nothing else holds is changed in place on
/// Flex and on CubeCL devices. There nothing is read back, and P gradients of one dtype take ⌈P/b⌉ launches for their squares and 2 for
/// the norm, with b the smaller of 192 and the device's buffer bindings − 3. Scaling P of them takes ⌈P/b⌉ launches, or ⌈P/⌊b/2⌋⌉ for
/// those whose memory is shared.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::clip;
///
/// let device = Device::default();
/// let gradient = Tensor::<1>::from_floats([3.0, 4.0], &device).into_dispatch();
/// let (mut gradients, norm) = clip(vec![gradient], 1.0, Some(1.0));
/// let unit = Tensor::<1>::from_dispatch(gradients.remove(0));
/// assert!(unit.all_close(Tensor::from_floats([0.6, 0.8], &device), None, None));
/// assert_eq!(norm.unwrap().into_scalar::<f32>(), 5.0);
/// ```
///
/// # Numerics
///
/// Squares are added up in f64 on Flex, elsewhere in f32 or the wider dtype of a gradient. 16-bit gradients are multiplied in f32.
///
/// Source: `torch.nn.utils.clip_grad_norm_` of PyTorch 2.15.
pub fn clip(
    gradients: Vec<DispatchTensor>,
    share: f64,
    max_norm: Option<f64>,
) -> (Vec<DispatchTensor>, Option<Tensor<1>>) {
    let Some(max_norm) = max_norm else { return (scaled(gradients, share), None) };
    #[cfg(feature = "flex")]
    let (host, elsewhere) = flex::sums_of_squares(&gradients);
    #[cfg(not(feature = "flex"))]
    let (host, elsewhere) = (None::<HostSum>, gradients.clone());
    let number = |value: f64, dtype: DType, device: &Device| {
        Tensor::from_data(TensorData::from([value]), (device, dtype))
    };
    if let (Some((sum, dtype, device)), true) = (&host, elsewhere.is_empty()) {
        let norm = sum.sqrt() * share;
        let clip = max_norm / (norm + 1e-6);
        // Not `min`, which would turn NaN into 1 and hide that the gradients have one.
        let clip = if clip > 1.0 { 1.0 } else { clip };
        return (scaled(gradients, clip * share), Some(number(norm, *dtype, device)));
    }
    let host = host.map(|(sum, dtype, device)| number(sum, dtype, &device));
    let squares = sums_of_squares(elsewhere).into_iter().chain(host).reduce(|total, sum| {
        let sum = sum.to_device(&total.device());
        if total.dtype() == sum.dtype() {
            return total + sum;
        }
        // A gradient in f64 has its sum there; the norm keeps the wider dtype.
        total.cast(FloatDType::F64) + sum.cast(FloatDType::F64)
    });
    let Some(squares) = squares else { return (gradients, None) };
    let shared = |x: Tensor<1>| if share == 1.0 { x } else { x.mul_scalar(share) };
    let norm = shared(squares.sqrt());
    // 1e-6 is torch's: it keeps the factor finite where all gradients are 0.
    let clip = norm.clone().add_scalar(1e-6).recip().mul_scalar(max_norm);
    // Not `clamp_max`, which on some devices makes 1 of NaN.
    let clip = clip.clone().mask_fill(clip.greater_scalar(1.0), 1.0);
    (multiplied(gradients, &shared(clip)), Some(norm))
}

/// Σ x² over gradients in host memory, the dtype of their norm, F64 if one of them is, and their device.
type HostSum = (f64, DType, Device);

/// Numbers that add up to Σ x² over all values of all `tensors`: each `[1]`, in [`computed_in`] of a tensor's dtype. On a CubeCL
/// device many tensors are read by one launch, and each dtype gives one number.
fn sums_of_squares(tensors: Vec<DispatchTensor>) -> Vec<Tensor<1>> {
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

/// All `tensors` times a number.
fn scaled(tensors: Vec<DispatchTensor>, factor: f64) -> Vec<DispatchTensor> {
    // Most steps are not clipped: their gradients are not touched.
    if factor == 1.0 {
        return tensors;
    }
    let scale = |tensor: DispatchTensor| {
        #[cfg(feature = "flex")]
        if flex::is_on_host(&tensor) {
            return flex::scaled(tensor, factor);
        }
        times::<Dispatch>(tensor, factor)
    };
    tensors.into_iter().map(scale).collect()
}

fn times<B: Backend>(tensor: FloatTensor<B>, factor: f64) -> FloatTensor<B> {
    let dtype = tensor.dtype();
    narrow::<B>(B::float_mul_scalar(wide::<B>(tensor), factor.into()), dtype)
}

/// All `tensors` times `factor`, `[1]`, which is not read back. On a CubeCL device a launch takes several.
fn multiplied(tensors: Vec<DispatchTensor>, factor: &Tensor<1>) -> Vec<DispatchTensor> {
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
/// On Flex and on CubeCL devices a step is one pass, and the new values are in the gradient's memory. [`fuse_adam`] joins steps.
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
    let tensors = [values, mean, square, gradient].map(Tensor::into_dispatch);
    #[cfg(feature = "flex")]
    if flex::takes(&tensors) {
        let [values, mean, square] = flex::adam(step, tensors).map(Tensor::from_dispatch);
        return (values, [mean, square]);
    }
    #[cfg(feature = "_cubecl")]
    if cube::takes_step(&tensors) {
        let [values, mean, square] = cube::adam(step, tensors).map(Tensor::from_dispatch);
        return (values, [mean, square]);
    }
    let [values, mean, square, gradient]: [Tensor<D>; 4] = tensors.map(Tensor::from_dispatch);
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

/// What `f` returns. On CubeCL devices its steps of [`adam`] on this thread are computed together when it ends, in ⌈P/⌊b/4⌋⌉ launches for
/// P steps of one dtype, with b as in [`clip`]: 48 a launch, or fewer on devices with fewer bindings. Each has the bits
/// that it has alone.
///
/// Until `f` ends, what these steps return has no values: an operation that reads it fails with an error that says so.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{AdamStep, adam, fuse_adam};
///
/// let of = |value: f32| Tensor::<1>::from_floats([value], &Device::default());
/// let step = AdamStep { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-8, keep: 1.0, root: 1.0, size: 0.1 };
/// let stepped = || [1.0, 2.0].map(|weight| adam(step, of(weight), [of(0.0), of(0.0)], of(2.0)).0);
/// assert!(fuse_adam(stepped).map(Tensor::into_scalar::<f32>) < [1.0, 2.0]); // one launch
/// ```
pub fn fuse_adam<T>(f: impl FnOnce() -> T) -> T {
    #[cfg(feature = "_cubecl")]
    return cube::fused(f);
    #[cfg(not(feature = "_cubecl"))]
    f()
}
