use crate::error::{Error, Result};
use burn::backend::DispatchTensor;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
#[cfg(feature = "flex")]
use burn_fused::host;
use burn_fused::{computed_in, scaled, sums_of_squares};

/// Scales the gradients of a module so that their global norm is at most `max_norm`, and returns the norm before
/// clipping, `[1]`; `None` if no parameter has a gradient. Returns [`Error::Data`] if `max_norm` is not above 0.
///
/// ‖g‖ = √Σ g² over every parameter that has a gradient, each once; all are multiplied by min(1, `max_norm` / (‖g‖ + 1e-6)).
/// Burn's `GradientClipping::Norm` clips each parameter separately, which changes the direction of the step. Nothing is read back
/// from the device. [The module](super) has an example.
///
/// # Numerics
///
/// Squares are added up in f64 on Flex, elsewhere in f32 or the wider dtype of a gradient. 16-bit gradients are multiplied in f32
/// and rounded once.
///
/// Source: `torch.nn.utils.clip_grad_norm_` of PyTorch 2.15.
pub fn clip_by_global_norm<M: Module>(
    model: &M,
    gradients: &mut GradientsParams,
    max_norm: f64,
) -> Result<Option<Tensor<1>>> {
    check_max_norm(max_norm)?;
    Ok(average_and_clip(model, gradients, None, max_norm))
}

/// As [`clip_by_global_norm`], in the same pass: multiplies gradients by `share`, so that a sum becomes a mean.
pub(crate) fn average_and_clip<M: Module>(
    model: &M,
    gradients: &mut GradientsParams,
    share: Option<f64>,
    max_norm: f64,
) -> Option<Tensor<1>> {
    // An infinite norm clips nothing, so nothing is summed unless it was asked for.
    let squares = (max_norm.is_finite() || share.is_none()).then(Squares::default);
    let share = Factor::Host(share.unwrap_or(1.0));
    let mut taken = Taken { gradients, squares, tensors: Vec::new(), places: Vec::new() };
    model.visit(&mut taken);
    let Taken { gradients, squares, tensors, places } = taken;
    let (norm, factor) = match squares {
        Some(squares) => squares.clip(share, max_norm),
        None => (None, share),
    };
    let (tensors, factor) = match factor {
        Factor::Host(factor) => (tensors, factor),
        // All of them together, in a few launches.
        Factor::Device(factor) => (scaled(tensors, &factor), 1.0),
    };
    for ((id, put_back), tensor) in places.into_iter().zip(tensors) {
        put_back(gradients, id, tensor, factor);
    }
    norm
}

/// Gives a parameter its gradient times a factor, as a tensor of its rank.
type PutBack = fn(&mut GradientsParams, ParamId, DispatchTensor, f64);

/// The gradients of a module, taken out so that they can be read and changed in their own memory.
struct Taken<'a> {
    gradients: &'a mut GradientsParams,
    squares: Option<Squares>,
    tensors: Vec<DispatchTensor>,
    places: Vec<(ParamId, PutBack)>,
}

impl ModuleVisitor for Taken<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // None where fields share a parameter and it has been taken: it counts once.
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return };
        let gradient = match &mut self.squares {
            Some(squares) => squares.add(gradient),
            None => gradient,
        };
        self.tensors.push(gradient.into_dispatch());
        self.places.push((param.id, |gradients, id, tensor, factor| {
            gradients.register(id, Factor::Host(factor).apply(Tensor::<D>::from_dispatch(tensor)));
        }));
    }
}

/// The squares of gradients: on the host added up at once, elsewhere of all gradients together.
#[derive(Default)]
struct Squares {
    /// With the device of the gradients, and F64 if one of them is, otherwise F32.
    host: Option<(f64, Device, DType)>,
    /// Gradients on other devices.
    elsewhere: Vec<DispatchTensor>,
}

impl Squares {
    /// Adds those of a gradient, which is given back.
    fn add<const D: usize>(&mut self, gradient: Tensor<D>) -> Tensor<D> {
        #[cfg(feature = "flex")]
        if host::is_on_host(&gradient) {
            let (device, wide) = (gradient.device(), computed_in(gradient.dtype()));
            let (square, gradient) = host::sum_of_squares(gradient);
            let (sum, _, dtype) = self.host.get_or_insert((0.0, device, wide));
            *sum += square;
            if wide == DType::F64 {
                *dtype = wide;
            }
            return gradient;
        }
        // Their sum is computed for all at once, in a few launches.
        // A handle, not a copy: the values stay where they are.
        self.elsewhere.push(gradient.clone().into_dispatch());
        gradient
    }

    /// The norm of the gradients times `share`, `[1]`, and the factor that makes them their share, with a norm of at most
    /// `max_norm`. Without any gradient there is no norm, and the factor is the share.
    fn clip(self, share: Factor, max_norm: f64) -> (Option<Tensor<1>>, Factor) {
        let host = self.host.as_ref().filter(|_| self.elsewhere.is_empty());
        if let (Some((sum, device, dtype)), Factor::Host(share)) = (host, &share) {
            let norm = sum.sqrt() * share;
            let clip = max_norm / (norm + 1e-6);
            // Not `min`, which would turn NaN into 1 and hide that the gradients have one.
            let clip = if clip > 1.0 { 1.0 } else { clip };
            let norm = Tensor::from_data(TensorData::from([norm]), (device, *dtype));
            return (Some(norm), Factor::Host(clip * share));
        }
        // Some gradients are elsewhere, or the share is: all of it stays on the device, which is not waited for.
        let host = self
            .host
            .map(|(sum, device, dtype)| Tensor::from_data(TensorData::from([sum]), (&device, dtype)));
        let squares = sums_of_squares(self.elsewhere).into_iter().chain(host).reduce(|total, sum| {
            let sum = sum.to_device(&total.device());
            if total.dtype() == sum.dtype() {
                return total + sum;
            }
            // A gradient in f64 has its sum there; the norm keeps the wider dtype.
            total.cast(FloatDType::F64) + sum.cast(FloatDType::F64)
        });
        let Some(squares) = squares else { return (None, share) };
        // 1e-6 is torch's: it keeps the factor finite where all gradients are 0.
        let norm = share.apply(squares.sqrt());
        let clip = norm.clone().add_scalar(1e-6).recip().mul_scalar(max_norm);
        // Not `clamp_max`, which on some devices makes 1 of NaN.
        let clip = clip.clone().mask_fill(clip.greater_scalar(1.0), 1.0);
        (Some(norm), Factor::Device(share.apply(clip)))
    }
}

/// Below 0 every gradient would change its sign.
pub(crate) fn check_max_norm(max_norm: f64) -> Result<()> {
    let problem = format!("is {max_norm}, but must be above 0");
    if max_norm > 0.0 { Ok(()) } else { Err(Error::data("max_norm", problem)) }
}

#[allow(clippy::large_enum_variant)] // one per step; how large depends on the devices that are compiled in
enum Factor {
    Host(f64),
    /// On a device and not read back, `[1]`.
    Device(Tensor<1>),
}

impl Factor {
    fn apply<const D: usize>(&self, gradient: Tensor<D>) -> Tensor<D> {
        let dtype = gradient.dtype();
        match self {
            // Most steps are not clipped: their gradients are not touched.
            Self::Host(1.0) => gradient,
            // In place where the gradient is not shared.
            #[cfg(feature = "flex")]
            Self::Host(factor) if host::is_on_host(&gradient) => host::scale(gradient, *factor),
            Self::Host(factor) => gradient.cast(computed_in(dtype)).mul_scalar(*factor).cast(dtype),
            Self::Device(factor) => {
                Tensor::from_dispatch(scaled(vec![gradient.into_dispatch()], factor).remove(0))
            }
        }
    }
}
