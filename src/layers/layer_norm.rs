use burn::module::Param;
use burn::nn::Initializer;
use burn::prelude::*;
use burn_fused::{Norm, Rows, computed_in, embed_layer_norm};

/// `(x − mean) / √(variance + ε) · γ + β` over the last axis, or, in a family with RMSNorm (EuroBERT), `x / √(mean(x²) + ε) · γ`.
///
/// LayerNorm of [`BertEmbeddings`](crate::BertEmbeddings) and of every layer. Parameter paths are those of Burn's `LayerNorm`. ε is that
/// of the model's config and cannot be changed, so that a saved model computes with the ε in its config.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// γ, `[H]`.
    pub gamma: Param<Tensor<1>>,
    /// β, `[H]`; `None` is zero.
    pub beta: Option<Param<Tensor<1>>>,
    epsilon: f64,
    #[module(skip)]
    is_rms: bool,
}

impl LayerNorm {
    /// For vectors of length `hidden`, with γ = 1 and β = 0, or none; an RMSNorm if `is_rms`.
    pub(crate) fn new(hidden: usize, epsilon: f64, [has_bias, is_rms]: [bool; 2], device: &Device) -> Self {
        Self {
            gamma: Initializer::Ones.init([hidden], device),
            beta: has_bias.then(|| Initializer::Zeros.init([hidden], device)),
            epsilon,
            is_rms,
        }
    }

    /// ε.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    pub(crate) fn norm(&self) -> Norm {
        let beta = self.beta.as_ref().map(|beta| beta.val());
        Norm { gamma: self.gamma.val(), beta, epsilon: self.epsilon }
    }

    /// LayerNorm of `x`, [.., H], computed in f32 for 16 bits. Panics if the last axis is not of length H.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let dims = x.dims();
        let (rows, hidden) = (dims[..D - 1].iter().product(), dims[D - 1]);
        let norm = self.norm();
        assert_eq!(norm.gamma.dims(), [hidden], "the last axis of x must be as long as gamma");
        if self.is_rms {
            let (dtype, wide) = (x.dtype(), computed_in(x.dtype()));
            let x = x.cast(wide);
            let rms = x.clone().square().mean_dim(D - 1).add_scalar(norm.epsilon).sqrt();
            return (x / rms * norm.gamma.dequantize().cast(wide).unsqueeze()).cast(dtype);
        }
        // Burn's layer_norm rounds otherwise under autodiff, and by the number of rows.
        let rows_of_x = Rows::Values(x.reshape([1, rows, hidden]));
        embed_layer_norm([1, rows], [rows_of_x, Rows::Absent, Rows::Absent], norm, 0.0).reshape(dims)
    }
}
