//! Dropout's mask.

use super::{Case, weights};
use crate::devices::supported;
use crate::tolerance::{assert_close, values};
use crate::turn;
use burn::prelude::*;
use burn::tensor::{DType, Distribution};
use burn_bert::functional::{Norm, Rows, embed_layer_norm};

const DROPOUT: f64 = 0.1;

/// γ = 0 and β = 1 lay the mask bare: y is 0 or 1 / (1 − p), and so is β's gradient by token.
struct Masked {
    tokens: usize,
    hidden: usize,
}

impl Masked {
    fn input(&self, device: &Device) -> (Rows, Norm) {
        let values = Tensor::random([1, self.tokens, self.hidden], Distribution::Default, device);
        let gamma = Tensor::zeros([self.hidden], device);
        let beta = Some(Tensor::ones([self.hidden], device).require_grad());
        (Rows::Values(values), Norm { gamma, beta, epsilon: 1e-12 })
    }

    /// Whether each element is kept, [tokens, hidden].
    fn draw(&self, device: &Device) -> Vec<bool> {
        let (rows, norm) = self.input(device);
        let y = embed_layer_norm([1, self.tokens], [rows, Rows::Absent, Rows::Absent], norm, DROPOUT);
        values(y).into_iter().map(|value| value != 0.0).collect()
    }
}

/// How many standard deviations `kept` of `drawn` is from the expected share.
fn sigmas(kept: usize, drawn: usize) -> f64 {
    let expected = drawn as f64 * (1.0 - DROPOUT);
    (kept as f64 - expected) / (drawn as f64 * DROPOUT * (1.0 - DROPOUT)).sqrt()
}

/// How many standard deviations the correlation of two lists of draws is from 0.
fn correlation<'a>(pairs: impl Iterator<Item = (&'a bool, &'a bool)>) -> f64 {
    let centered = |kept: bool| f64::from(u8::from(kept)) - (1.0 - DROPOUT);
    let (sum, count) =
        pairs.fold((0.0, 0.0), |(sum, count), (&a, &b)| (sum + centered(a) * centered(b), count + 1.0));
    sum / (DROPOUT * (1.0 - DROPOUT) * f64::sqrt(count))
}

pub(super) fn share_of_kept_values_is_right_in_every_call_and_every_column(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    device.seed(11);
    let shape = Masked { tokens: 2000, hidden: 100 };
    let calls: Vec<_> = (0..10).map(|_| shape.draw(&device)).collect();
    let count = |kept: &mut dyn Iterator<Item = &bool>| kept.filter(|&&kept| kept).count();
    for call in &calls {
        let sigmas = sigmas(count(&mut call.iter()), call.len());
        assert!(sigmas.abs() < 4.0, "{sigmas} σ");
    }
    for column in 0..shape.hidden {
        let kept: usize =
            calls.iter().map(|call| count(&mut call.iter().skip(column).step_by(shape.hidden))).sum();
        let sigmas = sigmas(kept, calls.len() * shape.tokens);
        assert!(sigmas.abs() < 4.0, "column {column}: {sigmas} σ");
    }
}

pub(super) fn neighbouring_calls_rows_and_columns_do_not_correlate(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    device.seed(12);
    let shape = Masked { tokens: 3000, hidden: 100 };
    let [first, second] = [shape.draw(&device), shape.draw(&device)];
    let columns = first.chunks(shape.hidden).flat_map(|row| row.iter().zip(&row[1..]));
    let sixteen_apart = first.chunks(shape.hidden).flat_map(|row| row.iter().zip(&row[16..]));
    for (what, sigmas) in [
        ("calls", correlation(first.iter().zip(&second))),
        ("rows", correlation(first.iter().zip(&first[shape.hidden..]))),
        ("columns", correlation(columns)),
        ("words of one counter", correlation(sixteen_apart)),
    ] {
        assert!(sigmas.abs() < 4.0, "{what}: {sigmas} σ");
    }
}

pub(super) fn backward_drops_what_the_forward_dropped(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    for (tokens, hidden) in [(1, 1000), (3, 65), (200, 64), (130, 7)] {
        device.seed(13);
        let (rows, norm) = Masked { tokens, hidden }.input(&device);
        let beta = norm.beta.clone().unwrap();
        let y = embed_layer_norm([1, tokens], [rows, Rows::Absent, Rows::Absent], norm, DROPOUT);
        let weights = weights([1, tokens, hidden], &device);
        let expected = values((y.clone() * weights.clone()).inner().sum_dim(1)); // β is 1
        let gradients = (y * weights).sum().backward();
        assert_close(&values(beta.grad(&gradients).unwrap()), &expected, case.sums);
    }
}

pub(super) fn mask_does_not_depend_on_the_dtype(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    let draw = |dtype| {
        device.seed(14);
        let shape = [1, 50, 70];
        let rows = Rows::Values(Tensor::ones(shape, (&device, dtype)));
        let norm = Norm {
            gamma: Tensor::zeros([70], (&device, dtype)),
            beta: Some(Tensor::ones([70], (&device, dtype))),
            epsilon: 1e-12,
        };
        let y = embed_layer_norm([1, 50], [rows, Rows::Absent, Rows::Absent], norm, 0.5);
        values(y).into_iter().map(|value| value != 0.0).collect::<Vec<_>>()
    };
    let expected = draw(DType::F32);
    assert!(expected.contains(&true) && expected.contains(&false));
    for dtype in supported(&device, &[DType::F64, DType::F16, DType::BF16]) {
        assert!(draw(dtype) == expected, "{dtype:?}");
    }
}
