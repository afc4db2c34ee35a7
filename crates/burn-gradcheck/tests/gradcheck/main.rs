//! `gradcheck` finds wrong gradients, passes right ones, and refuses what it cannot check.

mod right_gradients;
mod what_cannot_be_checked;
mod wrong_gradients;

use burn::prelude::*;
use burn::tensor::Distribution;

fn device() -> Device {
    Device::default().autodiff()
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &device())
}
