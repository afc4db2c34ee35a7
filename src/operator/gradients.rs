//! Gradients handed to autodiff.

use burn::backend::Backend;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::tensor::FloatTensor;

/// Registers each gradient with the parent that it belongs to, where both exist.
pub(crate) fn register<B: Backend, const N: usize>(
    parents: [Option<NodeId>; N],
    gradients: Vec<Option<FloatTensor<B>>>,
    grads: &mut Gradients,
) {
    for (parent, gradient) in parents.into_iter().zip(gradients) {
        if let (Some(parent), Some(gradient)) = (parent, gradient) {
            grads.register::<B>(parent, gradient);
        }
    }
}
