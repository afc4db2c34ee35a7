//! Linear layers with operands in 16 bits.

use super::leaves::{Operator, assert_near};
use crate::devices::{flex, supported, with_kernels};
use crate::tolerance::values;
use crate::turn;
use burn::nn::LinearConfig;
use burn::prelude::*;
use burn::tensor::{DType, bf16, f16};
use burn_bert::functional::{Precision, autocast, linear, on_reference_path};
use burn_bert::optim::LossScale;
use proptest::prelude::*;

const NARROW: [(Precision, DType); 2] = [(Precision::Bf16, DType::BF16), (Precision::F16, DType::F16)];

fn operator(
    [rows, inputs, outputs]: [usize; 3],
    seed: u64,
    precision: Precision,
) -> Operator<impl Fn(&[Tensor<1>]) -> Tensor<2> + Sync> {
    let forward = move |leaves: &[Tensor<1>]| {
        let [x, weight, bias] = leaves else { panic!("three leaves") };
        let (x, weight) = (x.clone().reshape([rows, inputs]), weight.clone().reshape([inputs, outputs]));
        autocast(precision, || linear(x, weight, Some(bias.clone())))
    };
    Operator::new(&[rows * inputs, inputs * outputs, outputs], seed, forward)
}

/// Of which `device` has floats; none is not an error on a device without.
fn precisions(device: &Device) -> impl Iterator<Item = Precision> {
    NARROW.into_iter().filter(move |(_, dtype)| device.supports_dtype(*dtype)).map(|(precision, _)| precision)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() })]

    /// Leaves hold values that need no rounding.
    #[test]
    fn without_rounding_value_and_gradients_are_those_of_burns_layer(
        dims in prop::sample::select(vec![[1usize, 1usize, 1usize], [70, 3, 5], [129, 127, 65], [3, 1023, 33]]),
        trained in any::<[bool; 3]>(),
        seed in any::<u64>(),
    ) {
        let _turn = turn();
        let with = |precision| Operator { trained: trained.to_vec(), ..operator(dims, seed, precision) };
        let expected = with(Precision::F32).run(&flex().autodiff(), DType::F64);
        for device in with_kernels() {
            for precision in precisions(&device) {
                // Upstream gradients are no larger than 2, so f16 holds them times 1.
                with(precision).assert_near_on(&device.clone().autodiff(), &expected, &[DType::F32]);
            }
        }
    }
}

/// What a value is after a rounding.
fn rounded(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => bf16::from_f32(value as f32).to_f64(),
        DType::F16 => f16::from_f32(value as f32).to_f64(),
        _ => value,
    }
}

/// Values that 16 bits do not hold.
fn draw(count: usize, step: f64) -> Vec<f64> {
    (0..count).map(|i| f64::from((i as f64 * step).sin() as f32)).collect()
}

/// The value of a row-major matrix by row and column, rounded by `round`.
fn value(values: &[f64], columns: usize, round: &impl Fn(f64) -> f64) -> impl Fn(usize, usize) -> f64 + Copy {
    move |row, column| round(values[row * columns + column])
}

/// A · B, row-major, by the definition; `a` and `b` give a value by row and column.
fn product(
    [rows, inner, columns]: [usize; 3],
    a: impl Fn(usize, usize) -> f64,
    b: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let mut c = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        for column in 0..columns {
            c.push((0..inner).map(|i| a(row, i) * b(i, column)).sum());
        }
    }
    c
}

#[test]
fn the_operands_of_all_three_products_are_rounded_and_nothing_else() {
    let [rows, inputs, outputs] = [37, 65, 19];
    let (x, w) = (draw(rows * inputs, 0.37), draw(inputs * outputs, 0.73));
    let (b, g) = (draw(outputs, 1.1), draw(rows * outputs, 0.51));
    let expected = |dtype| {
        let r = |value| rounded(value, dtype);
        let (x, w, g_rounded) = (value(&x, inputs, &r), value(&w, outputs, &r), value(&g, outputs, &r));
        let mut y = product([rows, inputs, outputs], x, w);
        y.iter_mut().enumerate().for_each(|(i, y)| *y += b[i % outputs]);
        vec![
            y,
            product([rows, outputs, inputs], g_rounded, |i, j| w(j, i)),
            product([inputs, rows, outputs], |i, j| x(j, i), g_rounded),
            product([1, rows, outputs], |_, _| 1.0, |i, j| g[i * outputs + j]),
        ]
    };
    let run = |device: &Device, forward: &dyn Fn(Tensor<2>, Tensor<2>, Tensor<1>) -> Tensor<2>| {
        let device = device.clone().autodiff();
        let leaf = |values: &[f64]| {
            Tensor::<1>::from_data(TensorData::from(values), (&device, DType::F32)).require_grad()
        };
        let leaves = [leaf(&x), leaf(&w), leaf(&b)];
        let [x, w, b] = leaves.clone();
        // As a view, as in a head that is tied to the word table.
        let w = w.reshape([inputs, outputs]).transpose().transpose();
        let y = forward(x.reshape([rows, inputs]), w, b);
        assert_eq!(y.dtype(), DType::F32);
        let upstream = Tensor::<1>::from_data(TensorData::from(g.as_slice()), (&device, DType::F32));
        let gradients = (y.clone() * upstream.reshape([rows, outputs])).sum().backward();
        let mut found = vec![values(y)];
        found.extend(leaves.iter().map(|leaf| values(leaf.grad(&gradients).unwrap())));
        found
    };
    for device in with_kernels() {
        for (precision, dtype) in NARROW.into_iter().filter(|(_, dtype)| device.supports_dtype(*dtype)) {
            let compute = || run(&device, &|x, w, b| autocast(precision, || linear(x, w, Some(b))));
            for found in [compute(), on_reference_path(compute)] {
                assert_near(&found, &expected(dtype), 1e-5, dtype);
                let exact = expected(DType::F32);
                for which in 0..3 {
                    let far = found[which].iter().zip(&exact[which]).any(|(a, b)| (a - b).abs() > 3e-4);
                    assert!(far, "result {which} of {precision} is not rounded");
                }
            }
            if precision == Precision::F16 {
                let scale = LossScale::new();
                let found = run(&device, &|x, w, b| scale.autocast(|| linear(x, w, Some(b))));
                // 65536 times a gradient of 1 is too large.
                assert!(found[1].iter().any(|value| !value.is_finite()));
            }
        }
    }
}

#[test]
fn a_loss_scale_keeps_gradients_that_f16_would_lose() {
    let device = flex().autodiff();
    let layer = LinearConfig::new(8, 4).with_bias(false).init(&device);
    let x = Tensor::<2>::ones([3, 8], &device);
    let gradient = |scale: &dyn Fn(&dyn Fn() -> Tensor<2>) -> Tensor<2>| {
        let y = scale(&|| linear(x.clone(), layer.weight.val(), None));
        values(layer.weight.grad(&y.sum().mul_scalar(1e-9).backward()).unwrap())
    };
    let lost = gradient(&|f| autocast(Precision::F16, f));
    assert!(lost.iter().all(|&value| value == 0.0), "{lost:?}");
    let scale = LossScale::new();
    let kept = gradient(&|f| scale.autocast(f));
    assert!(kept.iter().all(|&value| (value / 3e-9 - 1.0).abs() < 2e-3), "{kept:?}");
}

#[test]
fn outside_autocast_and_in_f32_it_is_burns_layer_bit_for_bit() {
    let device = flex().autodiff();
    let layer = LinearConfig::new(33, 17).init(&device);
    let x = draw(5 * 7 * 33, 0.3);
    let x = Tensor::<1>::from_data(TensorData::from(x.as_slice()), (&device, DType::F32)).reshape([5, 7, 33]);
    let ours = || linear(x.clone(), layer.weight.val(), layer.bias.as_ref().map(|bias| bias.val()));
    let run = |y: Tensor<3>| {
        let gradients = y.clone().square().sum().backward();
        (values(y), values(layer.weight.grad(&gradients).unwrap()))
    };
    let expected = run(layer.forward(x.clone()));
    assert!(run(ours()) == expected);
    assert!(run(autocast(Precision::F32, ours)) == expected);
    assert!(run(autocast(Precision::Bf16, || autocast(Precision::F32, ours))) == expected);
    assert!(run(autocast(Precision::Bf16, ours)) != expected);
    assert!(run(ours()) == expected, "autocast ended");
    let panicked = std::panic::catch_unwind(|| autocast::<()>(Precision::Bf16, || panic!("in autocast")));
    assert!(panicked.is_err() && run(ours()) == expected, "a panic ended autocast");
    let elsewhere = autocast(Precision::Bf16, || {
        let (x, layer) = (x.clone(), layer.clone());
        let product = move || values(linear(x, layer.weight.val(), layer.bias.map(|bias| bias.val())));
        std::thread::spawn(product).join().unwrap()
    });
    assert!(elsewhere == expected.0, "autocast is this thread's");
}

#[test]
fn a_layer_without_rows_inputs_or_outputs_has_what_is_left() {
    let device = flex().autodiff();
    for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
        for [rows, inputs, outputs] in [[0, 3, 2], [2, 0, 3], [2, 3, 0]] {
            let x = Tensor::<2>::ones([rows, inputs], &device).require_grad();
            let weight = Tensor::<2>::ones([inputs, outputs], &device).require_grad();
            let bias = Tensor::<1>::ones([outputs], &device).mul_scalar(3.0).require_grad();
            let y = autocast(precision, || linear(x.clone(), weight.clone(), Some(bias.clone())));
            assert_eq!(y.dims(), [rows, outputs]);
            assert!(values(y.clone()).iter().all(|&value| value == 3.0));
            let gradients = y.sum().backward();
            assert_eq!(x.grad(&gradients).unwrap().dims(), x.dims());
            assert_eq!(weight.grad(&gradients).unwrap().dims(), weight.dims());
            assert_eq!(values(bias.grad(&gradients).unwrap()), vec![rows as f64; outputs]);
        }
    }
}

/// As the documentation of autocast says.
#[test]
fn the_backward_is_in_the_precision_of_the_forward_wherever_it_is_called() {
    let device = flex().autodiff();
    let layer = LinearConfig::new(33, 17).init(&device);
    let x = Tensor::<2>::ones([5, 33], &device);
    let gradient = |backward: Precision| {
        let y = autocast(Precision::Bf16, || linear(x.clone(), layer.weight.val(), None));
        let loss = y.mul_scalar(0.3).square().sum();
        values(layer.weight.grad(&autocast(backward, || loss.backward())).unwrap())
    };
    let expected = gradient(Precision::Bf16);
    assert!([Precision::F32, Precision::F16].into_iter().all(|precision| gradient(precision) == expected));
}

#[test]
fn two_runs_are_equal_bit_for_bit() {
    let _turn = turn();
    for device in with_kernels() {
        for precision in precisions(&device) {
            operator([301, 127, 65], 3, precision).assert_runs_are_equal(&device.clone().autodiff());
        }
    }
}

#[test]
fn thread_count_changes_no_bit() {
    let _turn = turn();
    operator([301, 257, 129], 3, Precision::Bf16).assert_thread_count_changes_no_bit(&flex().autodiff());
}

#[test]
fn gradients_are_the_same_under_checkpointing() {
    let _turn = turn();
    let operator = operator([5, 9, 7], 3, Precision::Bf16);
    let plain = operator.run(&flex().autodiff(), DType::F32);
    assert_eq!(plain, operator.run(&flex().autodiff().gradient_checkpointing(), DType::F32));
}

#[test]
fn a_device_says_which_precision_it_lacks() {
    assert_eq!(supported(&flex(), &[DType::BF16, DType::F16]).len(), 2);
    #[cfg(feature = "ndarray")]
    {
        let message = Precision::Bf16.check(&crate::devices::ndarray()).unwrap_err().to_string();
        assert!(
            message.contains("the precision is bf16, which") && message.contains("choose f32"),
            "{message}"
        );
        assert!(Precision::F32.check(&crate::devices::ndarray()).is_ok());
    }
}

#[cfg(feature = "ndarray")]
#[test]
#[should_panic(expected = "the precision is f16, which")]
fn a_product_on_a_device_that_lacks_the_precision_panics() {
    let device = crate::devices::ndarray();
    autocast(Precision::F16, || {
        linear(Tensor::<2>::ones([1, 2], &device), Tensor::ones([2, 2], &device), None)
    });
}
