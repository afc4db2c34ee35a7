//! Values far from zero, against formulas in f64.

use crate::devices::{all, flex};
use crate::tolerance::values;
use crate::{assert_near, draw, tensor};
use burn::prelude::*;
use burn::tensor::DType;
use burn_fused::*;

/// f32 by the kernel against the formula in f64, at a million places.
#[test]
fn the_approximations_of_gelu_are_right_to_rounding_far_out_too() {
    let device = flex();
    let z: Vec<f32> = (-500_000..=500_000).map(|i| 14.0 * i as f32 / 5e5).collect();
    let x = Tensor::<1>::from_floats(z.as_slice(), &device).reshape([z.len(), 1]);
    for (activation, slope) in
        [(Activation::GeluTanh, (2.0 / std::f64::consts::PI).sqrt()), (Activation::GeluFast, 0.7978845608)]
    {
        let y = values(bias_activation(x.clone(), None, activation));
        for (z, y) in z.iter().map(|&z| f64::from(z)).zip(y) {
            let expected = z / 2.0 * (1.0 + (slope * (z + 0.044715 * z.powi(3))).tanh());
            assert!((y - expected).abs() < 2e-6, "{activation:?} of {z} is {y}, not {expected}");
        }
        let far = Tensor::<1>::from_floats([1e3, 1e30, -1e3, -1e30, f32::NAN], &device).reshape([5, 1]);
        let far = values(bias_activation(far, None, activation));
        assert_eq!(far[..4], [1e3, f64::from(1e30f32), 0.0, 0.0]);
        assert!(far[4].is_nan());
    }
}

/// Also where powers of z overflow.
#[test]
fn slopes_far_out_are_those_of_the_tails_and_that_of_nan_is_no_other_number() {
    let far = [1e3, 1e18, 1e20, 5e36, f32::MAX];
    for device in all().into_iter().map(Device::autodiff) {
        for activation in Activation::ALL {
            let slopes = |z: &[f32]| {
                let x = Tensor::<1>::from_floats(z, &device).reshape([z.len(), 1]).require_grad();
                let y = bias_activation(x.clone(), None, activation);
                values(x.grad(&y.sum().backward()).unwrap())
            };
            let [right, left] = match activation {
                Activation::Identity => [1.0, 1.0],
                Activation::Tanh | Activation::Sigmoid => [0.0, 0.0],
                _ => [1.0, 0.0],
            };
            for run in [&slopes as &dyn Fn(&[f32]) -> Vec<f64>, &|z| on_reference_path(|| slopes(z))] {
                assert_eq!(run(&far), [right; 5], "{activation:?} on {device:?}");
                assert_eq!(run(&far.map(|z| -z)), [left; 5], "{activation:?} on {device:?}");
                // PyTorch's slope of ReLU at NaN is 1.
                let is_one = matches!(activation, Activation::Identity | Activation::Relu);
                let of_nan = run(&[f32::NAN])[0];
                assert!(if is_one { of_nan == 1.0 } else { of_nan.is_nan() }, "{activation:?} on {device:?}");
            }
        }
    }
}

/// Of x̂ in f64: y loses no digits that x has.
#[test]
fn layer_norm_of_rows_far_from_zero_is_right_to_rounding() {
    const HIDDEN: usize = 768;
    for device in all() {
        for (mean, spread) in [(1e5, 1.0), (1e6, 0.5), (-1e7, 4.0)] {
            let row = draw(HIDDEN, 3).into_iter().map(|x| f64::from((mean + spread * x) as f32));
            let row: Vec<f64> = row.collect();
            let mean = row.iter().sum::<f64>() / HIDDEN as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / HIDDEN as f64;
            let expected: Vec<f64> = row.iter().map(|x| (x - mean) / variance.sqrt()).collect();
            let y = || {
                let x = tensor(&row, &device, DType::F32).reshape([1, HIDDEN]);
                let norm = Norm { gamma: Tensor::ones([HIDDEN], &device), beta: None, epsilon: 1e-12 };
                values(add_layer_norm(x.clone(), None, x.zeros_like(), norm, 0.0))
            };
            for found in [y(), on_reference_path(y)] {
                assert_near(
                    &format!("{mean} on {device:?}"),
                    &[found],
                    std::slice::from_ref(&expected),
                    1e-5,
                );
            }
        }
    }
}
