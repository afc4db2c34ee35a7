//! PyTorch's classes of activations, by which sentence-transformers' files name them.

use crate::encoder::Activation;

const CLASSES: [(Activation, &str); 5] = [
    (Activation::Identity, "torch.nn.modules.linear.Identity"),
    (Activation::Tanh, "torch.nn.modules.activation.Tanh"),
    (Activation::Relu, "torch.nn.modules.activation.ReLU"),
    (Activation::Gelu, "torch.nn.modules.activation.GELU"),
    (Activation::Sigmoid, "torch.nn.modules.activation.Sigmoid"),
];

/// The class of an activation; an error for the approximations of GELU, which are GELU's with an argument.
pub(super) fn torch_class(activation: Activation) -> Result<&'static str, String> {
    let class = CLASSES.into_iter().find(|(known, _)| *known == activation).map(|(_, class)| class);
    class.ok_or_else(|| {
        format!("has the activation {activation:?}, but files can state {} only", torch_classes())
    })
}

/// The activation of a class, also under a shorter path such as `torch.nn.Tanh`.
#[cfg(feature = "checkpoint")]
pub(super) fn of_torch_class(class: &str) -> Option<Activation> {
    let name = class.strip_prefix("torch.nn.")?.rsplit('.').next();
    let known = CLASSES.into_iter().find(|(_, known)| known.rsplit('.').next() == name);
    known.map(|(activation, _)| activation)
}

/// All classes, for a message.
pub(super) fn torch_classes() -> String {
    CLASSES.map(|(_, class)| class).join(", ")
}
