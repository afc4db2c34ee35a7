//! Autodiff over any backend.

use super::input::BiasGelu;
use super::ops::BiasGeluOps;
use crate::operator::graph::Operator;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::tensor::FloatTensor;

impl<B: BiasGeluOps, C: CheckpointStrategy> BiasGeluOps for Autodiff<B, C> {
    fn bias_gelu(input: BiasGelu<Self>) -> FloatTensor<Self> {
        let BiasGelu { x, bias, path } = input;
        let nodes = [x.node(), bias.node()];
        let operator = Operator::<B, _, _, 2> {
            forward: B::bias_gelu,
            with_statistics: |input| (B::bias_gelu(input), ()),
            backward: |input, (), grad, needs| B::bias_gelu_backward(input, grad, needs),
        };
        operator.record::<C>(nodes, BiasGelu { x: x.into_primitive(), bias: bias.into_primitive(), path })
    }
}
