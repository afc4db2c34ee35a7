//! Add a bias, take the activation: one operator with its own backward.

#[cfg(feature = "_cubecl")]
pub(crate) mod cube;
#[cfg(feature = "flex")]
mod flex;

use crate::engine::device::assert_computes;
use crate::engine::inputs::inputs;
use crate::engine::operator::{Gradients, Operator, Output, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::DropoutOps;
use crate::numerics::layer_norm::{total, vector};
use crate::numerics::precision::{narrow, wide};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::prelude::*;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// The largest `|z|` that activations compute with where a power of it would overflow: beyond it their tails are flat.
const FAR: f64 = 1e3;

/// The factor of z³ in the approximation of GELU.
const CUBIC: f64 = 0.044715;

inputs! {
    /// The inputs of [`gated_activation`]; without a gate, of [`bias_activation`].
    BiasActivation of BiasActivationOp, operands: 3, statistics: 0 {
        floats { x, }
        optional { bias, gate, }
        plain { activation: Activation, }
    }
}

/// `GELU(x + bias)` in one pass, with its own backward: the activation of a transformer's feed-forward network.
///
/// The exact GELU (Hendrycks and Gimpel, 2016, arXiv:1606.08415), not its tanh approximation, and the exact derivative
/// (that of Burn's `gelu` is the derivative of the approximation on some backends): with z = x + bias, Φ the normal
/// distribution's cumulative function and φ its density,
///
/// ```text
/// y        = z · Φ(z),                       Φ(z) = (1 + erf(z / √2)) / 2
/// ∂L/∂x    = ∂L/∂y · (Φ(z) + z · φ(z)),      φ(z) = exp(−z² / 2) / √(2π)
/// ∂L/∂bias = Σ ∂L/∂x                         over rows
/// ```
///
/// Source: `GELUActivation` of transformers 5.23, PyTorch's `gelu` with `approximate="none"`.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::bias_gelu;
///
/// let device = Device::default();
/// let bias = Tensor::from_floats([0.0, 1.0], &device);
/// let y = bias_gelu(Tensor::from_floats([[0.0, 1.0]], &device), bias);
/// let expected = Tensor::from_floats([[0.0, 1.954_499_7]], &device); // GELU of 0 and 2
/// assert!(y.all_close(expected, Some(5e-7), Some(0.0)));
/// ```
///
/// # Shapes
///
/// - `x`: [N, I], the output of a linear layer without its bias
/// - `bias`: `[I]`, that of the linear layer
/// - output: [N, I]
///
/// # Numerics
///
/// Everything is computed in f32 for f16 and bf16, otherwise in the dtype of x; y is rounded to it once. The relative error
/// of Flex's f32 kernel is at most 3e-7 for every z.
///
/// # Panics
///
/// If `bias` is not of length I, or the device computes wrongly in the dtype
/// ([`check_dtype`](crate::check_dtype)).
pub fn bias_gelu(x: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    bias_activation(x, Some(bias), Activation::Gelu)
}

/// As [`bias_gelu`], with any activation; without a bias `f(x)`.
pub fn bias_activation(x: Tensor<2>, bias: Option<Tensor<1>>, activation: Activation) -> Tensor<2> {
    compute(x, bias, None, activation)
}

/// `f(x + bias) ∘ gate` for an activation f, in one pass each way: the inner part of a gated feed-forward network (Shazeer 2020,
/// arXiv:2002.05202). Shapes and numerics are those of [`bias_gelu`], and `gate` is [N, I].
///
/// ```text
/// ∂L/∂x    = ∂L/∂y ∘ gate ∘ f′(x + bias)
/// ∂L/∂gate = ∂L/∂y ∘ f(x + bias)
/// ```
pub fn gated_activation(
    x: Tensor<2>,
    bias: Option<Tensor<1>>,
    gate: Tensor<2>,
    activation: Activation,
) -> Tensor<2> {
    assert_eq!(gate.dims(), x.dims(), "gate must have the shape of x");
    compute(x, bias, Some(gate), activation)
}

fn compute(
    x: Tensor<2>,
    bias: Option<Tensor<1>>,
    gate: Option<Tensor<2>>,
    activation: Activation,
) -> Tensor<2> {
    if let Some(bias) = &bias {
        assert_eq!(bias.dims(), [x.dims()[1]], "bias must be as long as a row of x");
    }
    assert_computes(&x);
    let x = x.dequantize().into_dispatch();
    let bias = bias.map(|bias| bias.dequantize().into_dispatch());
    let gate = gate.map(|gate| gate.dequantize().into_dispatch());
    Tensor::from_dispatch(run::<BiasActivationOp, _>(BiasActivation { x, bias, gate, activation }))
}

impl Operator for BiasActivationOp {
    fn reference<B: DropoutOps>(inputs: BiasActivation<B>) -> Output<Self, B> {
        let y = activated::<B>(biased::<B>(&inputs), inputs.activation);
        let y = match inputs.gate {
            Some(gate) => B::float_mul(y, wide::<B>(gate)),
            None => y,
        };
        (narrow::<B>(y, inputs.x.dtype()), [])
    }

    fn reference_backward<B: DropoutOps>(
        inputs: BiasActivation<B>,
        upstream: Upstream<Self, B>,
    ) -> Gradients<B> {
        let Upstream { grad, needs: [x, bias, gate], .. } = upstream;
        let z = biased::<B>(&inputs);
        let grad = wide::<B>(grad);
        let gate_grad = inputs.gate.as_ref().filter(|_| gate).map(|gate| {
            let value = activated::<B>(z.clone(), inputs.activation);
            narrow::<B>(B::float_mul(grad.clone(), value), gate.dtype())
        });
        let grad = match &inputs.gate {
            Some(gate) => B::float_mul(grad, wide::<B>(gate.clone())),
            None => grad,
        };
        let grad = differentiated::<B>(z, grad, inputs.activation);
        let bias = inputs.bias.as_ref().filter(|_| bias).map(|bias| total::<B>(grad.clone(), bias));
        vec![x.then(|| narrow::<B>(grad, inputs.x.dtype())), bias, gate_grad]
    }
}

/// f(z).
fn activated<B: Backend>(z: FloatTensor<B>, activation: Activation) -> FloatTensor<B> {
    match activation {
        Activation::Gelu => B::float_mul(cumulative::<B>(z.clone()), z),
        Activation::GeluTanh | Activation::GeluFast => {
            let tanh = B::float_tanh(cubic::<B>(&z, activation.slope(), 1.0));
            B::float_mul(half_above::<B>(tanh), z)
        }
        Activation::QuickGelu | Activation::Silu => {
            let slope = activation.slope();
            B::float_mul(sigmoid::<B>(B::float_mul_scalar(z.clone(), slope.into())), z)
        }
        Activation::Relu => B::relu(z),
        Activation::Tanh => B::float_tanh(z),
        Activation::Sigmoid => sigmoid::<B>(z),
        Activation::Identity => z,
    }
}

/// ∂L/∂z of ∂L/∂f(z).
fn differentiated<B: Backend>(
    z: FloatTensor<B>,
    grad: FloatTensor<B>,
    activation: Activation,
) -> FloatTensor<B> {
    match activation {
        Activation::Gelu => {
            let half_square = B::float_mul_scalar(B::float_mul(z.clone(), z.clone()), (-0.5).into());
            let density = B::float_mul_scalar(B::float_exp(half_square), (1.0 / (2.0 * PI).sqrt()).into());
            let slope = B::float_add(cumulative::<B>(z.clone()), B::float_mul(z, density));
            B::float_mul(grad, slope)
        }
        Activation::GeluTanh | Activation::GeluFast => {
            let slope = activation.slope();
            let tanh = B::float_tanh(cubic::<B>(&z, slope, 1.0));
            let square = B::float_mul(tanh.clone(), tanh.clone());
            let rest = B::float_add_scalar(B::float_mul_scalar(square, (-0.5).into()), 0.5.into());
            // z times the derivative of the cubic is the cubic with three times its last term.
            let inner = B::float_mul(rest, cubic::<B>(&z, slope, 3.0));
            B::float_mul(grad, B::float_add(half_above::<B>(tanh), flat_far::<B>(z, inner)))
        }
        Activation::QuickGelu | Activation::Silu => {
            let u = B::float_mul_scalar(z.clone(), activation.slope().into());
            let share = sigmoid::<B>(u.clone());
            // σ(u) + u · σ(u) · (1 − σ(u))
            let rest = B::float_sub(share.clone(), B::float_mul(share.clone(), share.clone()));
            B::float_mul(grad, B::float_add(share, flat_far::<B>(z, B::float_mul(u, rest))))
        }
        Activation::Relu => B::relu_backward(B::relu(z), grad),
        Activation::Tanh => {
            let y = B::float_tanh(z);
            B::float_sub(grad.clone(), B::float_mul(grad, B::float_mul(y.clone(), y)))
        }
        Activation::Sigmoid => {
            let y = sigmoid::<B>(z);
            let slope = B::float_sub(y.clone(), B::float_mul(y.clone(), y));
            B::float_mul(grad, slope)
        }
        Activation::Identity => grad,
    }
}

/// `values`, but 0 where z is far: there they are 0 · ∞ if a power of z overflows.
fn flat_far<B: Backend>(z: FloatTensor<B>, values: FloatTensor<B>) -> FloatTensor<B> {
    let bool_dtype = get_or_init_device_settings::<B>(&z.device()).bool_dtype;
    B::float_mask_fill(values, B::float_greater_elem(B::float_abs(z), FAR.into(), bool_dtype), 0.0.into())
}

/// x + bias, wide.
fn biased<B: Backend>(inputs: &BiasActivation<B>) -> FloatTensor<B> {
    let x = wide::<B>(inputs.x.clone());
    let bias = inputs.bias.as_ref().map(|bias| vector::<B>(bias, &x));
    [x].into_iter().chain(bias).reduce(B::float_add).expect("x")
}

/// Φ(z).
fn cumulative<B: Backend>(z: FloatTensor<B>) -> FloatTensor<B> {
    half_above::<B>(B::float_erf(B::float_mul_scalar(z, FRAC_1_SQRT_2.into())))
}

/// (1 + x) / 2.
fn half_above<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_mul_scalar(B::float_add_scalar(x, 1.0.into()), 0.5.into())
}

/// 1 / (1 + e⁻ᶻ). Burn's own passes through f32 on some backends.
fn sigmoid<B: Backend>(z: FloatTensor<B>) -> FloatTensor<B> {
    B::float_recip(B::float_add_scalar(B::float_exp(B::float_neg(z)), 1.0.into()))
}

/// `slope` · (z + `weight` · 0.044715 z³).
fn cubic<B: Backend>(z: &FloatTensor<B>, slope: f64, weight: f64) -> FloatTensor<B> {
    let square = B::float_mul(z.clone(), z.clone());
    let factor = B::float_add_scalar(B::float_mul_scalar(square, (weight * CUBIC).into()), 1.0.into());
    B::float_mul_scalar(B::float_mul(factor, z.clone()), slope.into())
}

/// An activation: `hidden_act` and the like of a `config.json`.
///
/// ```
/// use burn_fused::Activation;
///
/// assert_eq!(Activation::from_name("gelu_new"), Some(Activation::GeluTanh));
/// assert_eq!(Activation::GeluTanh.names()[0], "gelu_new");
/// ```
#[derive(Config, Debug, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// z: `linear`.
    Identity,
    /// The exact GELU, `z · Φ(z)`: `gelu`.
    Gelu,
    /// GELU's approximation `z / 2 · (1 + tanh(√(2/π) · (z + 0.044715 z³)))`: `gelu_new` and `gelu_pytorch_tanh`.
    GeluTanh,
    /// The same with 0.7978845608 for √(2/π), as transformers' `gelu_fast` has it.
    GeluFast,
    /// GELU's approximation `z / (1 + exp(−1.702 z))`: `quick_gelu`.
    QuickGelu,
    /// `z / (1 + exp(−z))`: `silu` and `swish`.
    Silu,
    /// `max(z, 0)`: `relu`.
    Relu,
    /// tanh z: `tanh`.
    Tanh,
    /// `1 / (1 + exp(−z))`: `sigmoid`.
    Sigmoid,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 9] = {
        use Activation::*;
        [Identity, Gelu, GeluTanh, GeluFast, QuickGelu, Silu, Relu, Tanh, Sigmoid]
    };

    /// transformers' names; the first is the one that is written.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Identity => &["linear"],
            Self::Gelu => &["gelu", "gelu_python"],
            Self::GeluTanh => &["gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate"],
            Self::GeluFast => &["gelu_fast"],
            Self::QuickGelu => &["quick_gelu"],
            Self::Silu => &["silu", "swish"],
            Self::Relu => &["relu"],
            Self::Tanh => &["tanh"],
            Self::Sigmoid => &["sigmoid"],
        }
    }

    /// The activation that transformers calls `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|activation| activation.names().contains(&name))
    }

    /// The names of all activations, for a message.
    pub fn all_names() -> String {
        Self::ALL.map(Self::names).concat().join(", ")
    }

    /// `[a, b]` of `z · σ(a · z + b · z³)`: SiLU and all approximations of GELU.
    #[cfg(any(feature = "flex", feature = "_cubecl"))]
    fn logistic(self) -> [f64; 2] {
        match self {
            // (1 + tanh(u / 2)) / 2 is σ(u).
            Self::GeluTanh | Self::GeluFast => [2.0 * self.slope(), 2.0 * self.slope() * CUBIC],
            _ => [self.slope(), 0.0],
        }
    }

    /// The factor of z in tanh or σ; of the tanh approximations of GELU, what they have for √(2/π).
    fn slope(self) -> f64 {
        match self {
            Self::GeluFast => 0.797_884_560_8,
            Self::QuickGelu => 1.702,
            Self::Silu => 1.0,
            _ => (2.0 / PI).sqrt(),
        }
    }
}
