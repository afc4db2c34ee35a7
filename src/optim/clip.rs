use crate::error::{Error, Result};
use burn::backend::DispatchTensor;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn_fused::clip;

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
    Ok(scale_and_clip(model, gradients, 1.0, Some(max_norm)))
}

/// As [`clip_by_global_norm`], in the same pass: multiplies gradients by `share`, so that a sum becomes a mean. Without `max_norm` no
/// norm is computed.
pub(crate) fn scale_and_clip<M: Module>(
    model: &M,
    gradients: &mut GradientsParams,
    share: f64,
    max_norm: Option<f64>,
) -> Option<Tensor<1>> {
    let mut taken = Taken { gradients, tensors: Vec::new(), owners: Vec::new() };
    model.visit(&mut taken);
    let (tensors, norm) = clip(taken.tensors, share, max_norm);
    for ((id, put_back), tensor) in taken.owners.into_iter().zip(tensors) {
        put_back(gradients, id, tensor);
    }
    norm
}

/// Gives a parameter its gradient as a tensor of its rank.
type PutBack = fn(&mut GradientsParams, ParamId, DispatchTensor);

/// The gradients of a module, taken out so that they can be changed in their own memory.
struct Taken<'a> {
    gradients: &'a mut GradientsParams,
    tensors: Vec<DispatchTensor>,
    owners: Vec<(ParamId, PutBack)>,
}

impl ModuleVisitor for Taken<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // None where fields share a parameter and it has been taken: it counts once.
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return };
        self.tensors.push(gradient.into_dispatch());
        let put_back: PutBack = |gradients, id, tensor| {
            gradients.register(id, Tensor::<D>::from_dispatch(tensor));
        };
        self.owners.push((param.id, put_back));
    }
}

/// Below 0 every gradient would change its sign.
pub(crate) fn check_max_norm(max_norm: f64) -> Result<()> {
    let problem = format!("is {max_norm}, but must be above 0");
    if max_norm > 0.0 { Ok(()) } else { Err(Error::data("max_norm", problem)) }
}
