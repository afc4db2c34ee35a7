//! A block of a Vision Transformer whose attention, LayerNorms, GELU and linear layers are fused operators, trained for some
//! steps, beside the same block on Burn's own operations.
//!
//!     cargo run -p burn-fused --example vit_block
//!
//! Exits with an error if the two differ by more than rounding, or if the block does not learn.

use burn::module::{Module, Param};
use burn::nn::{Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use burn_fused::{
    Activation, Norm, Positions, Sequences, add_layer_norm, attention, bias_activation, cross_entropy,
    linear, on_reference_path, with_one_draw,
};

const IMAGES: usize = 8;
/// Patches of an image of 32 × 32, each 8 × 8 pixels with three channels.
const PATCHES: usize = 16;
const PIXELS: usize = 192;
const HIDDEN: usize = 64;
const HEADS: usize = 4;
const CLASSES: usize = 4;
const DROPOUT: f64 = 0.1;
const STEPS: usize = 40;

/// Patches to classes: an embedding, one block with LayerNorm after each half, and the mean of the patches.
#[derive(Module, Debug)]
struct Vit {
    patches: Linear,
    positions: Param<Tensor<2>>,
    query_key_value: [Linear; 3],
    attended: Linear,
    first_norm: LayerNorm,
    inner: Linear,
    outer: Linear,
    second_norm: LayerNorm,
    classifier: Linear,
}

impl Vit {
    fn new(device: &Device) -> Self {
        let layer = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        let norm = || LayerNormConfig::new(HIDDEN).init(device);
        Self {
            patches: layer(PIXELS, HIDDEN),
            positions: Initializer::Normal { mean: 0.0, std: 0.02 }.init([PATCHES, HIDDEN], device),
            query_key_value: [(); 3].map(|()| layer(HIDDEN, HIDDEN)),
            attended: layer(HIDDEN, HIDDEN),
            first_norm: norm(),
            inner: layer(HIDDEN, 4 * HIDDEN),
            outer: layer(4 * HIDDEN, HIDDEN),
            second_norm: norm(),
            classifier: layer(HIDDEN, CLASSES),
        }
    }

    /// [IMAGES · PATCHES, PIXELS] → [IMAGES, CLASSES].
    fn forward(&self, pixels: Tensor<2>, images: &Sequences) -> Tensor<2> {
        // Attention, and dropout before each LayerNorm, get their seeds from one draw.
        with_one_draw(3, || {
            let positions = self.positions.val().repeat_dim(0, IMAGES);
            let x = apply(&self.patches, pixels) + positions; // [N, H]
            let heads = self.query_key_value.each_ref().map(|layer| apply(layer, x.clone()));
            let context = attention(heads, images, HEADS, Positions::default(), DROPOUT);
            let x = add_norm(&self.attended, context, x, &self.first_norm);
            let inner = linear(x.clone(), self.inner.weight.val(), None);
            let inner = bias_activation(inner, Some(bias(&self.inner)), Activation::Gelu);
            let x = add_norm(&self.outer, inner, x, &self.second_norm);
            let means = x.reshape([IMAGES, PATCHES, HIDDEN]).mean_dim(1).reshape([IMAGES, HIDDEN]);
            apply(&self.classifier, means)
        })
    }
}

fn bias(layer: &Linear) -> Tensor<1> {
    layer.bias.as_ref().expect("layers of this block have a bias").val()
}

fn apply(layer: &Linear, x: Tensor<2>) -> Tensor<2> {
    linear(x, layer.weight.val(), Some(bias(layer)))
}

/// `LayerNorm(residual + Dropout(x·W + b))`, whose bias and dropout are LayerNorm's kernel's.
fn add_norm(layer: &Linear, x: Tensor<2>, residual: Tensor<2>, norm: &LayerNorm) -> Tensor<2> {
    let x = linear(x, layer.weight.val(), None);
    let beta = norm.beta.as_ref().map(|beta| beta.val());
    let norm = Norm { gamma: norm.gamma.val(), beta, epsilon: 1e-6 };
    add_layer_norm(x, Some(bias(layer)), residual, norm, DROPOUT)
}

/// The largest difference of two tensors.
fn apart<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
    (a - b).abs().max().into_scalar()
}

fn main() {
    let device = Device::default().autodiff();
    device.seed(1);
    let mut vit = Vit::new(&device);
    let images = Sequences::new(vec![PATCHES; IMAGES], &device);
    let labels = Tensor::<1, Int>::from_ints([0, 1, 2, 3, 0, 1, 2, 3], &device);
    // Each class is brighter in another quarter of its patches.
    let noise = Tensor::<2>::random([IMAGES * PATCHES, PIXELS], burn::tensor::Distribution::Default, &device);
    let bright = |row: usize| (row % PATCHES) / (PATCHES / CLASSES) == (row / PATCHES) % CLASSES;
    let bright: Vec<f32> = (0..IMAGES * PATCHES).map(|row| f32::from(u8::from(bright(row)))).collect();
    let pixels = noise + Tensor::<1>::from_floats(bright.as_slice(), &device).reshape([IMAGES * PATCHES, 1]);

    // Kernels and references with one seed: the same dropout, and the same gradients up to rounding.
    let run = || {
        device.seed(7);
        let logits = vit.forward(pixels.clone(), &images);
        let gradients = cross_entropy(logits.clone(), labels.clone()).backward();
        let gradient = |layer: &Linear| layer.weight.val().grad(&gradients).expect("a trained layer");
        (logits.inner(), gradient(&vit.patches), gradient(&vit.outer))
    };
    run(); // parameters are initialised at first use, which would draw between the seed and dropout
    let (fused, reference) = (run(), on_reference_path(run));
    let largest =
        apart(fused.0, reference.0).max(apart(fused.1, reference.1)).max(apart(fused.2, reference.2));
    println!("logits and gradients of kernels and references differ by {largest:.1e} at most");
    assert!(largest < 1e-4, "fused operators differ from their references");

    let mut optimizer = AdamWConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let loss = cross_entropy(vit.forward(pixels.clone(), &images), labels.clone());
        losses.push(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &vit);
        vit = optimizer.step(1e-3, vit, gradients);
    }
    println!("loss {:.3} before, {:.3} after {STEPS} steps", losses[0], losses[STEPS - 1]);
    assert!(losses[STEPS - 1] < 0.5 * losses[0], "the block does not learn");
}
