//! How far two results may differ, and why: the one table of tolerances of the whole suite.

#![allow(dead_code)] // every test file takes what it needs

use burn::module::{Module, ModuleVisitor, Param, Quantizer};
use burn::prelude::*;
use burn::tensor::quantization::{Calibration, QuantScheme, QuantStore};
use burn::tensor::{DType, Gradients};
use std::collections::BTreeMap;

/// Two numbers are close if |a − b| ≤ `absolute` + `relative` · |b|.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    pub absolute: f64,
    pub relative: f64,
}

/// f32 on a CPU: the relative part is torch.testing's, the absolute part is a few roundings of values near 1.
pub const F32: Tolerance = Tolerance { absolute: 1e-5, relative: 1.3e-6 };

/// f64: a few thousand roundings of 1.1e-16 in values near 1.
pub const F64: Tolerance = Tolerance { absolute: 1e-12, relative: 1e-12 };

/// Ten steps of Burn's AdamW in f32 or f64. Its settings are f32 and its 1 − βᵗ is computed in f32, so it ends
/// about 4e-7 away from PyTorch's whatever the tensors are; a loss of the smallest fixture, 5e-6.
pub const TRAINING: Tolerance = F32;

/// A whole model in f32: the fixtures themselves are 3e-6 from a f64 reference.
pub const MODEL_F32: Tolerance = Tolerance { absolute: 1e-5, relative: 1e-5 };

/// Scores of a real model in f32: each is a sum of hundreds of products of values near 1.
pub const LOGITS_F32: Tolerance = Tolerance { absolute: 1e-4, relative: 1e-5 };

/// f32 on a GPU: sums in another order, square roots and fused multiply-adds right to some units in the last place.
pub const GPU: Tolerance = Tolerance { absolute: 1e-4, relative: 1e-4 };

/// f16 has 11 bits: one rounding is 4.9e-4, and the three rows are added before LayerNorm widens them.
pub const F16: Tolerance = Tolerance { absolute: 1e-3, relative: 1e-3 };

/// bf16 has 8 bits: one rounding is 3.9e-3.
pub const BF16: Tolerance = Tolerance { absolute: 1e-2, relative: 1e-2 };

/// Scores of the fixtures' models held in 16 bits: every product and every LayerNorm of two layers with large random
/// weights is rounded. PyTorch's are up to 3.4e-2 and 4.2e-3 away.
pub const MODEL_BF16: Tolerance = Tolerance { absolute: 4e-2, relative: 1e-2 };
pub const MODEL_F16: Tolerance = Tolerance { absolute: 5e-3, relative: 1e-3 };

/// The tolerance of the embedding layer on a CPU.
pub fn layer_tolerance(dtype: DType) -> Tolerance {
    match dtype {
        DType::F64 => F64,
        DType::F16 => F16,
        DType::BF16 => BF16,
        _ => F32,
    }
}

/// The tolerance of an operator alone, relative to its largest value: a few roundings of a sum in f32, and one in 16 bits.
pub fn operator_tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-13,
        DType::F32 => 1e-5,
        DType::F16 => 4e-3,
        _ => 3e-2,
    }
}

/// Asserts that two row-major lists of numbers are close, and says where they are not.
#[track_caller]
pub fn assert_close(found: &[f64], expected: &[f64], tolerance: Tolerance) {
    assert_all_close("values", found, expected, tolerance);
}

/// The same, saying of what.
#[track_caller]
pub fn assert_all_close(what: &str, found: &[f64], expected: &[f64], tolerance: Tolerance) {
    assert_eq!(found.len(), expected.len(), "{what}: as many values");
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        let limit = tolerance.absolute + tolerance.relative * b.abs();
        assert!((a - b).abs() <= limit, "{what}[{i}] is {a}, expected {b} within {limit:e}");
    }
}

/// The quantiser of the tests.
pub fn quantizer() -> Quantizer {
    Quantizer::new(Calibration::MinMax, QuantScheme::default().with_store(QuantStore::Native))
}

/// All values of a tensor, row-major.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// ‖a − b‖ / ‖b‖.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "as many values");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied()).max(f64::MIN_POSITIVE)
}

/// max |a − b|.
pub fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "as many values");
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Values of all parameters of a module, in the order of their paths.
pub fn all_values(module: &impl Module) -> Vec<f64> {
    parameters(module, None).into_values().flatten().collect()
}

/// Values of a module's parameters by their paths, or the gradients of those that have one.
pub fn parameters(module: &impl Module, gradients: Option<&Gradients>) -> BTreeMap<String, Vec<f64>> {
    collect(module, gradients, false)
}

/// As [`parameters`], with linear layers as PyTorch keeps them: [outputs, inputs].
pub fn collected(module: &impl Module, gradients: Option<&Gradients>) -> BTreeMap<String, Vec<f64>> {
    collect(module, gradients, true)
}

fn collect(
    module: &impl Module,
    gradients: Option<&Gradients>,
    transposes: bool,
) -> BTreeMap<String, Vec<f64>> {
    /// The path, and what contains each of its parts.
    struct Collect<'a>(Vec<(String, String)>, Option<&'a Gradients>, bool, BTreeMap<String, Vec<f64>>);
    impl ModuleVisitor for Collect<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.push((name.into(), container.into()));
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.0.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let found = self.1.map_or_else(|| Some(param.val()), |gradients| param.grad(gradients));
            let Some(mut found) = found else { return };
            // The parameter itself is entered as well.
            let is_linear = self.0.iter().rev().take(2).any(|(_, container)| container == "Struct:Linear");
            if self.2 && D == 2 && is_linear {
                found = found.swap_dims(0, 1);
            }
            let path: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
            self.3.insert(path.join("."), values(found));
        }
    }
    let mut collect = Collect(Vec::new(), gradients, transposes, BTreeMap::new());
    module.visit(&mut collect);
    collect.3
}
