//! Clipping by the norm of all gradients together.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use std::collections::HashSet;

/// Scales the gradients of a module so that their common norm is at most `max_norm`, and returns the norm that
/// it was before, `[1]`; `None` if no parameter has a gradient.
///
/// ‖g‖ = √Σ g² over every parameter that has a gradient; all are multiplied by min(1, `max_norm` / (‖g‖ + 1e-6)).
/// Burn's `GradientClipping::Norm` takes the norm of each parameter by itself, which turns the step; this
/// shortens it. A parameter that several fields share counts once. Nothing is read back from the device.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::GradientsParams;
/// use burn::prelude::*;
/// use burn_bert::clip_by_global_norm;
///
/// let device = Device::default().autodiff();
/// let model = LinearConfig::new(3, 4).init(&device);
/// let loss = model.forward(Tensor::<2>::ones([1, 3], &device)).mul_scalar(5.0).sum();
/// let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
/// let norm = clip_by_global_norm(&model, &mut gradients, 1.0).unwrap();
/// assert_eq!(norm.into_scalar::<f32>(), 20.0); // sixteen gradients of 5
/// let bias = gradients.get::<1>(model.bias.unwrap().id).unwrap();
/// assert!((bias.into_data().iter::<f32>().next().unwrap() - 0.25).abs() < 1e-6);
/// ```
///
/// # Numerics
///
/// Sums are taken in f32, or in f64 where a gradient is f64.
///
/// Source: `torch.nn.utils.clip_grad_norm_` of PyTorch 2.15.
pub fn clip_by_global_norm<M: Module>(
    model: &M,
    gradients: &mut GradientsParams,
    max_norm: f64,
) -> Option<Tensor<1>> {
    let mut squares = SumOfSquares::new(gradients);
    model.visit(&mut squares);
    let clip = Clip::new(squares.total?, max_norm);
    model.visit(&mut Scale::new(gradients, &clip));
    Some(clip.norm)
}

/// [`average_and_clip`] for gradients that lie on several devices, each added up where it lies.
#[cfg(feature = "train")]
pub(crate) fn average_and_clip_on_all_devices<M: Module>(
    model: &M,
    gradients: burn::optim::MultiGradientsParams,
    batches: Tensor<1>,
    max_norm: f64,
) -> burn::optim::MultiGradientsParams {
    let mut added = AddUp { gradients, by_device: Vec::new() };
    model.visit(&mut added);
    let mut by_device = added.by_device;
    let mut total = None;
    for (gradients, _) in by_device.iter().filter(|_| max_norm.is_finite()) {
        let mut squares = SumOfSquares { total, ..SumOfSquares::new(gradients) };
        model.visit(&mut squares);
        total = squares.total;
    }
    let clip = Clip::of_mean(total, batches, max_norm);
    for (gradients, _) in &mut by_device {
        model.visit(&mut Scale::new(gradients, &clip));
    }
    burn::optim::MultiGradientsParams { grads: by_device }
}

/// Divides the gradients of a module, a sum over `batches` batches, `[1]`, by their number, and clips the mean as
/// [`clip_by_global_norm`] does, in one pass; an infinite `max_norm` clips nothing.
#[cfg(feature = "train")]
pub(crate) fn average_and_clip<M: Module>(
    model: &M,
    gradients: &mut GradientsParams,
    batches: Tensor<1>,
    max_norm: f64,
) {
    let mut squares = SumOfSquares::new(gradients);
    if max_norm.is_finite() {
        model.visit(&mut squares);
    }
    let clip = Clip::of_mean(squares.total, batches, max_norm);
    model.visit(&mut Scale::new(gradients, &clip));
}

/// Adds up the squares of gradients.
pub(crate) struct SumOfSquares<'a> {
    gradients: &'a GradientsParams,
    pub(crate) total: Option<Tensor<1>>,
    /// The parameters that were added: one that fields share is visited in each of them.
    seen: HashSet<ParamId>,
}

impl<'a> SumOfSquares<'a> {
    pub(crate) fn new(gradients: &'a GradientsParams) -> Self {
        Self { gradients, total: None, seen: HashSet::new() }
    }

    pub(crate) fn add<const D: usize>(&mut self, gradient: Tensor<D>) {
        let gradient = match gradient.dtype() {
            DType::F16 | DType::BF16 => gradient.cast(FloatDType::F32),
            _ => gradient,
        };
        let sum = gradient.square().sum();
        self.total = Some(match self.total.take() {
            None => sum,
            Some(total) => {
                let sum = sum.to_device(&total.device());
                if total.dtype() == sum.dtype() {
                    total + sum
                } else {
                    total.cast(FloatDType::F64) + sum.cast(FloatDType::F64)
                }
            }
        });
    }
}

impl ModuleVisitor for SumOfSquares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.seen.insert(param.id)
            && let Some(gradient) = self.gradients.get::<D>(param.id)
        {
            self.add(gradient);
        }
    }
}

/// A norm, and the factor that brings it down to the largest one allowed.
pub(crate) struct Clip {
    pub(crate) norm: Tensor<1>,
    factor: Tensor<1>,
}

impl Clip {
    pub(crate) fn new(sum_of_squares: Tensor<1>, max_norm: f64) -> Self {
        let norm = sum_of_squares.sqrt();
        let factor = norm.clone().add_scalar(1e-6).recip().mul_scalar(max_norm).clamp_max(1.0);
        Self { norm, factor }
    }

    /// The clip of a mean over `batches` batches, for gradients that are their sum. `sum_of_squares` is that of the
    /// sum; `None` for no clipping.
    #[cfg(feature = "train")]
    fn of_mean(sum_of_squares: Option<Tensor<1>>, batches: Tensor<1>, max_norm: f64) -> Self {
        let share = batches.recip();
        let Some(sum_of_squares) = sum_of_squares else {
            return Self { norm: share.clone(), factor: share };
        };
        let dtype: FloatDType = sum_of_squares.dtype().into();
        let share = share.to_device(&sum_of_squares.device()).cast(dtype);
        let clip = Self::new(sum_of_squares * share.clone().square(), max_norm);
        Self { factor: clip.factor * share, ..clip }
    }

    pub(crate) fn apply<const D: usize>(&self, gradient: Tensor<D>) -> Tensor<D> {
        let dtype: FloatDType = gradient.dtype().into();
        let factor = self.factor.clone().to_device(&gradient.device());
        gradient * factor.cast(dtype).reshape([1; D])
    }
}

/// Clips all gradients of a module.
pub(crate) struct Scale<'a> {
    gradients: &'a mut GradientsParams,
    clip: &'a Clip,
    seen: HashSet<ParamId>,
}

impl<'a> Scale<'a> {
    pub(crate) fn new(gradients: &'a mut GradientsParams, clip: &'a Clip) -> Self {
        Self { gradients, clip, seen: HashSet::new() }
    }
}

impl ModuleVisitor for Scale<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.seen.insert(param.id)
            && let Some(gradient) = self.gradients.remove::<D>(param.id)
        {
            self.gradients.register(param.id, self.clip.apply(gradient));
        }
    }
}

/// Adds the gradients of each parameter up on one device, another one for another parameter.
#[cfg(feature = "train")]
struct AddUp {
    gradients: burn::optim::MultiGradientsParams,
    by_device: Vec<(GradientsParams, Device)>,
}

#[cfg(feature = "train")]
impl ModuleVisitor for AddUp {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some((gradient, device)) = self.gradients.remove::<D>(param.id) else { return };
        let place = self.by_device.iter().position(|(_, other)| *other == device);
        let place = place.unwrap_or_else(|| {
            self.by_device.push((GradientsParams::new(), device));
            self.by_device.len() - 1
        });
        self.by_device[place].0.register(param.id, gradient);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::{Linear, LinearConfig};

    /// Two fields that share one layer, whose gradient is 10 in each of its four values: ‖g‖ = 20.
    fn shared() -> ((Linear, Linear), GradientsParams) {
        let device = Device::default().autodiff();
        let linear = LinearConfig::new(2, 2).with_bias(false).init(&device);
        let model = (linear.clone(), linear);
        let x = Tensor::<2>::ones([1, 2], &device);
        let loss = model.0.forward(x.clone()).mul_scalar(4.0) + model.1.forward(x).mul_scalar(6.0);
        let gradients = GradientsParams::from_grads(loss.sum().backward(), &model);
        (model, gradients)
    }

    fn assert_clipped_to_one(model: &(Linear, Linear), gradients: &GradientsParams) {
        let gradient = gradients.get::<2>(model.0.weight.id).unwrap();
        for value in gradient.into_data().iter::<f32>() {
            assert!((value - 0.5).abs() < 1e-6, "{value}");
        }
    }

    #[test]
    fn a_parameter_that_two_fields_share_counts_and_is_scaled_once() {
        let (model, mut gradients) = shared();
        let norm = clip_by_global_norm(&model, &mut gradients, 1.0).unwrap();
        assert_eq!(norm.into_scalar::<f32>(), 20.0);
        assert_clipped_to_one(&model, &gradients);
    }

    #[test]
    #[cfg(feature = "train")]
    fn a_shared_parameter_counts_once_on_several_devices_too() {
        let (model, gradients) = shared();
        let gradients =
            burn::optim::MultiGradientsParams { grads: vec![(gradients, Device::default().autodiff())] };
        let batches = Tensor::from_floats([2.0], &Device::default());
        let clipped = average_and_clip_on_all_devices(&model, gradients, batches, 1.0);
        assert_clipped_to_one(&model, &clipped.grads[0].0);
    }

    #[test]
    #[cfg(feature = "train")]
    fn a_shared_parameter_is_averaged_once() {
        let (model, mut gradients) = shared();
        let batches = Tensor::from_floats([4.0], &Device::default());
        average_and_clip(&model, &mut gradients, batches, f64::INFINITY);
        let gradient = gradients.get::<2>(model.0.weight.id).unwrap();
        assert!(gradient.into_data().iter::<f32>().all(|value| value == 2.5));
    }
}
