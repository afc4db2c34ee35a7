use crate::error::{Error, Result};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::prelude::*;

pub(super) const UNTRAINED: &str =
    "the model trains no parameter: make or load it on `device.autodiff()`, and freeze not all of it";

/// What a [`TrainableModel`](super::TrainableModel) makes of a batch; [a custom head](crate::model::Stored#a-custom-head) makes one.
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// The mean loss, `[1]`, with its graph if the model is on an autodiff device.
    pub loss: Tensor<1>,
    /// What it is a mean over: masked tokens, labelled tokens, texts; 0 if nothing. Batches weigh as much in a step.
    pub count: f64,
    /// What metrics are computed from.
    pub output: T,
}

impl<T> Outcome<T> {
    /// The gradients of the loss times its count.
    pub(super) fn gradients<M: Module>(&self, model: &M) -> Result<GradientsParams> {
        if !self.loss.is_tracked() {
            return Err(Error::data("the model", UNTRAINED));
        }
        Ok(GradientsParams::from_grads(self.loss.clone().mul_scalar(self.count).backward(), model))
    }
}
