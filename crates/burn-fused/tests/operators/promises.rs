//! What single operators promise beside what the table says of all.

use crate::devices::{all, flex, supported, with_kernels};
use crate::tolerance::{assert_close, values};
use crate::{assert_near, draw, tensor, turn};
use burn::nn::LinearConfig;
use burn::prelude::*;
use burn::tensor::quantization::{QuantScheme, QuantStore};
use burn::tensor::{DType, Distribution, bf16};
use burn_fused::*;
use std::panic::catch_unwind;

#[test]
fn the_backward_of_a_reference_is_the_references_wherever_it_is_called() {
    let device = flex().autodiff();
    let x = tensor(&draw(65 * 128, 1), &device, DType::F32);
    let x = x.reshape([65, 128]).require_grad();
    let forward = || bias_gelu(x.clone(), Tensor::ones([128], &device)).sum();
    let gradient = |loss: Tensor<1>| values(x.grad(&loss.backward()).unwrap());
    let inside = on_reference_path(|| gradient(forward()));
    assert!(gradient(on_reference_path(forward)) == inside);
    assert!(gradient(forward()) != inside, "the kernel rounds as the reference does");
}

#[test]
fn extreme_values_of_gelu_have_their_limits_and_large_scores_do_not_overflow() {
    let x = Tensor::<2>::from_floats([[f32::NAN, f32::INFINITY, -1e30, 1e30]], &flex());
    let y = values(bias_gelu(x, Tensor::zeros([4], &flex())));
    assert!(y[0].is_nan());
    assert_eq!(y[1..], [f64::INFINITY, -0.0, f64::from(1e30f32)]);
    let rows = || Tensor::<2>::from_floats([[1e4], [-1e4], [1.0]], &flex());
    let y =
        attention([rows(), rows(), rows()], &Sequences::new(vec![3], &flex()), 1, Positions::default(), 0.0);
    assert_eq!(values(y), [1e4, -1e4, 1e4]);
}

#[test]
fn keys_that_a_bias_of_minus_infinity_hides_count_for_nothing_however_many_come_first() {
    const TOKENS: usize = 1200;
    const HIDDEN: usize = 800;
    for device in with_kernels().into_iter().map(Device::autodiff) {
        let zeros = || Tensor::<2>::zeros([TOKENS, 1], &device);
        let value = Tensor::arange(0..TOKENS as i64, &device).float().div_scalar(TOKENS as f32);
        let value = value.reshape([TOKENS, 1]).require_grad();
        let is_hidden = Tensor::<1, Int>::arange(0..TOKENS as i64, &device).lower_elem(HIDDEN as i64);
        let bias = Tensor::<1>::zeros([TOKENS], &device).mask_fill(is_hidden, f32::NEG_INFINITY);
        let bias = bias.reshape([1, 1, 1, TOKENS]).expand([1, 1, TOKENS, TOKENS]);
        let positions = Positions { bias: Some(bias), ..Positions::default() };
        let sequences = Sequences::new(vec![TOKENS], &device);
        let output = attention([zeros(), zeros(), value.clone()], &sequences, 1, positions, 0.0);
        let mean = (HIDDEN + TOKENS - 1) as f64 / (2 * TOKENS) as f64;
        assert!(values(output.clone()).iter().all(|value| (value - mean).abs() < 1e-5), "{device:?}");
        let gradient = values(value.grad(&output.sum().backward()).unwrap());
        let share = |key| if key < HIDDEN { 0.0 } else { TOKENS as f64 / (TOKENS - HIDDEN) as f64 };
        assert!(gradient.iter().enumerate().all(|(key, g)| (g - share(key)).abs() < 1e-4), "{device:?}");
    }
}

/// The loss, and the gradient of logits that are held.
fn loss(logits: &Tensor<2>, labels: &[i32]) -> (f64, Vec<f64>) {
    let logits = logits.clone().require_grad();
    let loss = cross_entropy(logits.clone(), Tensor::from_ints(labels, &logits.device()));
    let gradient = logits.grad(&loss.backward()).unwrap();
    (loss.into_scalar::<f64>(), values(gradient))
}

#[test]
fn extreme_logits_neither_overflow_nor_lose_the_label() {
    for device in with_kernels().into_iter().map(Device::autodiff) {
        let logits = Tensor::<2>::from_floats(
            [[1e30, -1e30, 0.0], [-500.0, -500.0, -500.0], [f32::NEG_INFINITY, 0.0, 1.0]],
            &device,
        );
        for found in [loss(&logits, &[0, 1, 2]), on_reference_path(|| loss(&logits, &[0, 1, 2]))] {
            let expected = (3f64.ln() + (1.0 + (-1f64).exp()).ln()) / 3.0;
            assert!((found.0 - expected).abs() < 1e-6, "{found:?}");
            assert!(found.1.iter().all(|g| g.is_finite()), "{found:?}");
            assert!(found.1[..3].iter().all(|g| g.abs() < 1e-6), "{found:?}: the first is certain");
        }
        let with_nan = Tensor::<2>::from_floats([[0.0, f32::NAN], [1.0, 2.0]], &device);
        let (of_nan, gradient) = loss(&with_nan, &[0, 1]);
        assert!(of_nan.is_nan() && gradient[0].is_nan() && gradient[2].is_finite());
        // The kernels read a row in pieces.
        let late = (0..600).map(|class| if class == 550 { 300.0 } else { 0.0 }).collect();
        let late = Tensor::<2>::from_data(TensorData::new::<f32, _>(late, [1, 600]), &device);
        let (of_late, gradient) = loss(&late, &[0]);
        assert_eq!((of_late, gradient[0], gradient[550]), (300.0, -1.0, 1.0));
    }
}

/// Logits become their gradient where nothing holds them.
#[test]
fn logits_that_are_held_stay_and_those_that_are_not_have_the_same_gradient() {
    for device in with_kernels().into_iter().map(Device::autodiff) {
        let labels: Vec<i32> = (0..40).map(|row| row * 791 % 1000).collect();
        let data = TensorData::new((0..40_000).map(|i| (i % 977) as f32 / 99.0).collect(), [40, 1000]);
        let logits = Tensor::<2>::from_data(data.clone(), &device);
        let (_, expected) = loss(&logits, &labels);
        logits.clone().into_data().assert_eq(&data, true);
        let leaf = logits.require_grad();
        let loss = cross_entropy(leaf.clone() * 1.0, Tensor::from_ints(labels.as_slice(), &device));
        assert!(values(leaf.grad(&loss.backward()).unwrap()) == expected, "{device:?}");
    }
}

#[test]
fn a_label_out_of_range_is_the_nearest_class_but_on_flex() {
    for device in with_kernels().into_iter().filter(|device| *device != flex()) {
        let logits = Tensor::<2>::from_floats([[0.0, 1.0, 2.0, 3.0, 4.0]; 2], &device.autodiff());
        assert!(loss(&logits, &[-3, 5]) == loss(&logits, &[0, 4]));
    }
}

/// Which of [tokens, hidden] are kept: γ = 0 and β = 1 lay the mask bare.
fn mask(device: &Device, [tokens, hidden]: [usize; 2], prob: f64, dtype: DType) -> Vec<bool> {
    let words = Rows::Values(Tensor::ones([1, tokens, hidden], (device, dtype)));
    let gamma = Tensor::zeros([hidden], (device, dtype));
    let norm = Norm { gamma, beta: Some(Tensor::ones([hidden], (device, dtype))), epsilon: 1e-12 };
    let y = embed_layer_norm([1, tokens], [words, Rows::Absent, Rows::Absent], norm, prob);
    let kept = |value: f64| {
        // What is kept is scaled, up to a rounding of 16 bits.
        assert!(value == 0.0 || (value * (1.0 - prob) - 1.0).abs() < 4e-3, "{value}");
        value != 0.0
    };
    values(y).into_iter().map(kept).collect()
}

/// All shares within four standard deviations, which is one failure in 16,000 draws: the seeds are fixed.
#[test]
fn dropout_keeps_its_share_in_every_call_and_column_and_no_two_draws_correlate() {
    let _turn = turn();
    const PROB: f64 = 0.1;
    let shape @ [tokens, hidden] = [2000, 100];
    let correlation = |pairs: &mut dyn Iterator<Item = (&bool, &bool)>| {
        let centered = |kept: bool| f64::from(u8::from(kept)) - (1.0 - PROB);
        let (sum, count) =
            pairs.fold((0.0, 0.0), |(sum, count), (&a, &b)| (sum + centered(a) * centered(b), count + 1.0));
        sum / (PROB * (1.0 - PROB) * f64::sqrt(count))
    };
    let sigmas = |kept: usize, drawn: usize| {
        (kept as f64 - drawn as f64 * (1.0 - PROB)) / (drawn as f64 * PROB * (1.0 - PROB)).sqrt()
    };
    for device in all().into_iter().map(Device::autodiff) {
        device.seed(12);
        let calls: Vec<_> = (0..10).map(|_| mask(&device, shape, PROB, DType::F32)).collect();
        let mut found: Vec<(String, f64)> = Vec::new();
        for call in &calls {
            found.push(("a call".into(), sigmas(call.iter().filter(|kept| **kept).count(), call.len())));
        }
        for column in 0..hidden {
            let kept = calls.iter().flat_map(|call| call.iter().skip(column).step_by(hidden));
            let kept = kept.filter(|kept| **kept).count();
            found.push((format!("column {column}"), sigmas(kept, calls.len() * tokens)));
        }
        let rows = || calls[0].chunks(hidden);
        found.extend([
            ("calls".into(), correlation(&mut calls[0].iter().zip(&calls[1]))),
            ("rows".into(), correlation(&mut calls[0].iter().zip(&calls[0][hidden..]))),
            ("columns".into(), correlation(&mut rows().flat_map(|row| row.iter().zip(&row[1..])))),
            (
                "words of one counter".into(),
                correlation(&mut rows().flat_map(|row| row.iter().zip(&row[16..]))),
            ),
        ]);
        for (what, sigmas) in found {
            assert!(sigmas.abs() < 4.0, "{device:?}, {what}: {sigmas} σ");
        }
        // Whatever the dtype.
        let draw = |dtype| {
            device.seed(14);
            mask(&device, [50, 70], 0.5, dtype)
        };
        let expected = draw(DType::F32);
        assert!(
            supported(&device, &[DType::F32, DType::F64, DType::F16, DType::BF16])
                .into_iter()
                .all(|dtype| draw(dtype) == expected)
        );
    }
}

/// With V the identity and zeros in Q, O is mask / ((1 − p) · L) itself; with x = 1 and a residual of 0, y is positive where
/// x was kept.
#[test]
fn attention_and_add_layer_norm_drop_their_share_in_forward_and_backward() {
    let _turn = turn();
    let (size, prob) = (200, 0.25);
    let limit = 4.0 * (prob * (1.0 - prob) / (size * size) as f64).sqrt();
    for device in with_kernels().into_iter().map(Device::autodiff) {
        device.seed(4);
        let matrix = |value: f32| Tensor::<2>::full([size, size], value, &device);
        let weights = Tensor::<2>::from_data(
            TensorData::new(draw(size * size, 3).iter().map(|x| x + 3.0).collect(), [size, size]),
            (&device, DType::F32),
        );
        let value = Tensor::<2>::eye(size, &device).require_grad();
        let sequences = Sequences::new(vec![size], &device);
        let y =
            attention([matrix(0.0), matrix(0.0), value.clone()], &sequences, 1, Positions::default(), prob);
        let gradients = (y.clone() * weights.clone()).sum().backward();
        let expected = values(y.clone().inner().transpose().matmul(weights.clone().inner()));
        assert_near("V's gradient", &[values(value.grad(&gradients).unwrap())], &[expected], 1e-5);
        let of_attention: Vec<bool> = values(y).iter().map(|&y| y != 0.0).collect();

        let x = matrix(1.0).require_grad();
        let norm = Norm { gamma: Tensor::ones([size], &device), beta: None, epsilon: 1.0 };
        let y = add_layer_norm(x.clone(), None, matrix(0.0), norm, prob);
        let gradient = values(x.grad(&(y.clone() * weights).sum().backward()).unwrap());
        let kept: Vec<bool> = values(y).iter().map(|&y| y > 0.0).collect();
        assert!(kept.iter().zip(gradient).all(|(&kept, gradient)| kept == (gradient != 0.0)), "{device:?}");
        for kept in [of_attention, kept] {
            let dropped = kept.iter().filter(|kept| !**kept).count() as f64 / (size * size) as f64;
            assert!((dropped - prob).abs() < limit, "{device:?}: {dropped} dropped");
        }
    }
}

#[test]
fn quantised_tensors_give_what_they_dequantise_to() {
    let _turn = turn();
    for device in all() {
        let packed = QuantScheme::default();
        let is_packed = device.supports_dtype(DType::QFloat(packed));
        let scheme = if is_packed { packed } else { packed.with_store(QuantStore::Native) };
        let random = |rows| Tensor::<2>::random([rows, 32], Distribution::Uniform(-1.0, 1.0), &device);
        let tables = [8, 4].map(|rows| random(rows).quantize_dynamic(&scheme));
        let vectors = [1, 1].map(|rows| random(rows).reshape([32]).quantize_dynamic(&scheme));
        let y = |[words, positions]: [Tensor<2>; 2], [gamma, beta]: [Tensor<1>; 2]| {
            let lookup = |table, ids, padding_idx| Rows::Lookup { table, ids, padding_idx };
            let words = lookup(words, Tensor::from_ints([[7, 0, 3], [1, 1, 0]], &device), Some(0));
            let positions = lookup(positions, Tensor::from_ints([[2, 0, 3]], &device), None); // for both sequences
            let norm = Norm { gamma, beta: Some(beta), epsilon: 1e-12 };
            values(embed_layer_norm([2, 3], [words, Rows::Absent, positions], norm, 0.0))
        };
        let expected = y(tables.clone().map(Tensor::dequantize), vectors.clone().map(Tensor::dequantize));
        assert_close(&y(tables, vectors), &expected, crate::tolerance::GPU);
    }
}

/// 2049 tokens: a sum that f16 would round.
#[test]
fn gradients_come_back_in_the_dtype_of_their_parameter() {
    for device in all().into_iter().map(Device::autodiff) {
        for dtype in supported(&device, &[DType::F32, DType::F64, DType::F16, DType::BF16]) {
            for (wide, narrow) in [(DType::F32, dtype), (dtype, DType::F32)] {
                let (tokens, hidden) = (2049, 4);
                let table = Tensor::<2>::ones([7, hidden], (&device, narrow)).require_grad();
                let [gamma, beta] = [1.0, 0.0]
                    .map(|value| Tensor::<1>::full([hidden], value, (&device, wide)).require_grad());
                let ids = Tensor::zeros([1, tokens], &device);
                let words = Rows::Lookup { table: table.clone(), ids, padding_idx: None };
                let norm = Norm { gamma: gamma.clone(), beta: Some(beta.clone()), epsilon: 1e-12 };
                let y = embed_layer_norm([1, tokens], [words, Rows::Absent, Rows::Absent], norm, 0.0);
                assert_eq!(y.dtype(), narrow);
                let gradients = y.sum().backward();
                assert_eq!(table.grad(&gradients).unwrap().dtype(), narrow);
                let [gamma, beta] = [gamma, beta].map(|vector| vector.grad(&gradients).unwrap());
                assert_eq!([gamma.dtype(), beta.dtype()], [wide; 2]);
                if wide == DType::F32 {
                    assert_eq!(values(beta), [2049.0; 4]);
                }
            }
        }
    }
}

/// y, and the gradients of x, W and b where y's is `upstream`, by the definition; `round` is applied to the operands of the
/// three matmuls.
fn by_loops(
    [rows, inputs, outputs]: [usize; 3],
    leaves: [&[f64]; 4],
    round: fn(f64) -> f64,
) -> Vec<Vec<f64>> {
    let [x, w, b, g] = leaves;
    let x = |i: usize, j: usize| round(x[i * inputs + j]);
    let w = |i: usize, j: usize| round(w[i * outputs + j]);
    let g_rounded = |i: usize, j: usize| round(g[i * outputs + j]);
    let matrix = |rows: usize, columns: usize, value: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
        (0..rows * columns).map(|i| value(i / columns, i % columns)).collect()
    };
    vec![
        matrix(rows, outputs, &|i, j| (0..inputs).map(|k| x(i, k) * w(k, j)).sum::<f64>() + b[j]),
        matrix(rows, inputs, &|i, j| (0..outputs).map(|k| g_rounded(i, k) * w(j, k)).sum()),
        matrix(inputs, outputs, &|i, j| (0..rows).map(|k| x(k, i) * g_rounded(k, j)).sum()),
        matrix(1, outputs, &|_, j| (0..rows).map(|i| g[i * outputs + j]).sum()),
    ]
}

#[test]
fn autocast_rounds_the_operands_of_all_three_matmuls_and_nothing_else() {
    let shape @ [rows, inputs, outputs] = [37, 65, 19];
    let wave = |count: usize, step: f64| {
        (0..count).map(|i| f64::from((i as f64 * step).sin() as f32)).collect::<Vec<_>>()
    };
    let leaves = [
        wave(rows * inputs, 0.37),
        wave(inputs * outputs, 0.73),
        wave(outputs, 1.1),
        wave(rows * outputs, 0.51),
    ];
    let slices = [&leaves[0][..], &leaves[1], &leaves[2], &leaves[3]];
    let expected = by_loops(shape, slices, |value| bf16::from_f32(value as f32).to_f64());
    let exact = by_loops(shape, slices, |value| value);
    for device in with_kernels().into_iter().filter(|device| device.supports_dtype(DType::BF16)) {
        let device = device.autodiff();
        let run = || {
            let tensors = leaves.each_ref().map(|leaf| tensor(leaf, &device, DType::F32).require_grad());
            let [x, w, b, g] = tensors.clone();
            // As a view, as in a head that is tied to the word embeddings.
            let w = w.reshape([inputs, outputs]).transpose().transpose();
            let y = autocast(Precision::Bf16, || linear(x.reshape([rows, inputs]), w, Some(b)));
            assert_eq!(y.dtype(), DType::F32);
            let gradients = (y.clone() * g.reshape([rows, outputs])).sum().backward();
            let mut found = vec![values(y)];
            found.extend(tensors[..3].iter().map(|leaf| values(leaf.grad(&gradients).unwrap())));
            found
        };
        for found in [run(), on_reference_path(run)] {
            assert_near("bf16", &found, &expected, 1e-5);
            for which in 0..3 {
                let is_far = found[which].iter().zip(&exact[which]).any(|(a, b)| (a - b).abs() > 3e-4);
                assert!(is_far, "result {which} is not rounded");
            }
        }
    }
}

#[test]
fn autocast_is_of_its_thread_and_scope_and_the_backward_is_in_the_precision_of_the_forward() {
    let device = flex().autodiff();
    let layer = LinearConfig::new(33, 17).init(&device);
    let x = tensor(&draw(5 * 7 * 33, 1), &device, DType::F32);
    let x = (x / 3.0).reshape([5, 7, 33]);
    let ours = || linear(x.clone(), layer.weight.val(), layer.bias.as_ref().map(|bias| bias.val()));
    let run = |y: Tensor<3>| {
        let gradients = y.clone().square().sum().backward();
        (values(y), values(layer.weight.grad(&gradients).unwrap()))
    };
    let expected = run(layer.forward(x.clone()));
    assert!(run(ours()) == expected);
    assert!(run(autocast(Precision::F32, ours)) == expected);
    assert!(run(autocast(Precision::Bf16, || autocast(Precision::F32, ours))) == expected);
    let rounded = run(autocast(Precision::Bf16, ours));
    assert!(rounded != expected);
    assert!(run(ours()) == expected, "autocast ended");
    let panicked = catch_unwind(|| autocast::<()>(Precision::Bf16, || panic!("in autocast")));
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"in autocast"));
    assert!(run(ours()) == expected, "a panic ended autocast");
    let elsewhere = autocast(Precision::Bf16, || {
        let (x, layer) = (x.clone(), layer.clone());
        let y = move || values(linear(x, layer.weight.val(), layer.bias.map(|bias| bias.val())));
        std::thread::spawn(y).join().unwrap()
    });
    assert!(elsewhere == expected.0, "autocast is this thread's");
    let y = autocast(Precision::Bf16, ours);
    let gradients = autocast(Precision::F32, || y.square().sum().backward());
    assert!(values(layer.weight.grad(&gradients).unwrap()) == rounded.1);
}

/// Not on ndarray: burn-ndarray 0.22.1 divides by zero in a matmul without rows.
#[test]
fn a_linear_layer_without_rows_inputs_or_outputs_has_what_is_left() {
    let _turn = turn();
    for device in with_kernels() {
        let shapes: &[[usize; 3]] =
            if device == flex() { &[[0, 3, 2], [2, 0, 3], [2, 3, 0]] } else { &[[0, 3, 2]] };
        let device = device.autodiff();
        let precision = Precision::Bf16.check(&device).map_or(Precision::F32, |()| Precision::Bf16);
        for (precision, &[rows, inputs, outputs]) in [Precision::F32, precision]
            .into_iter()
            .flat_map(|precision| shapes.iter().map(move |shape| (precision, shape)))
        {
            let x = Tensor::<2>::ones([rows, inputs], &device).require_grad();
            let weight = Tensor::<2>::ones([inputs, outputs], &device).require_grad();
            let bias = Tensor::<1>::ones([outputs], &device).mul_scalar(3.0).require_grad();
            let y = autocast(precision, || linear(x.clone(), weight.clone(), Some(bias.clone())));
            assert_eq!(y.dims(), [rows, outputs]);
            assert!(values(y.clone()).iter().all(|&value| value == 3.0));
            let gradients = y.sum().backward();
            assert_eq!(x.grad(&gradients).unwrap().dims(), x.dims());
            let of_weight = weight.grad(&gradients).unwrap();
            assert_eq!(of_weight.dims(), weight.dims());
            assert!(values(of_weight).iter().all(|&value| value == rows as f64), "{precision}");
            assert_eq!(values(bias.grad(&gradients).unwrap()), vec![rows as f64; outputs]);
        }
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn a_step_that_waits_is_not_read_and_is_taken_even_if_the_closure_panics() {
    let device = crate::devices::wgpu();
    let of = |value: f32| Tensor::<1>::full([5], value, &device);
    let step = AdamStep { beta_1: 0.5, beta_2: 0.5, epsilon: 0.0, keep: 1.0, root: 1.0, size: 1.0 };
    let mut stepped = None;
    let panicked = crate::panics::unless_panics(|| {
        fuse_adam(|| {
            let (w, [m, _]) = stepped.insert(adam(step, of(5.0), [of(0.0), of(0.0)], of(2.0)));
            let early = crate::panics::panic_of(|| values(w.clone() + m.clone()));
            assert!(early.contains("`fuse_adam`"), "{early}");
            panic!("in the closure")
        })
    });
    assert_eq!(panicked, Err::<(), _>("in the closure".into()));
    let (w, [m, v]) = stepped.expect("the step");
    let expected = [5.0 - 1.0 / 2f64.sqrt(), 1.0, 2.0].map(|value| vec![value; 5]);
    assert_near("the step", &[w, m, v].map(values), &expected, 1e-6);
}
