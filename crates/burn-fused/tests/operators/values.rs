//! Values that stand elsewhere: transformers' activations, and what devices and dtypes cannot compute.

use crate::devices::{all, flex, supported, with_kernels};
use crate::tolerance::values;
use crate::{assert_near, draw, tensor};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::quantization::{QuantScheme, QuantStore, QuantValue, ScaleDtype};
use burn_fused::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `ACT2FN` of transformers 5.23 and its gradient in f64, at −3.7, −0.9, 0.25 and 2.4.
const TRANSFORMERS: [(&str, [f64; 4], [f64; 4]); 9] = [
    (
        "gelu",
        [-0.000398859013866415, -0.16565411281208353, 0.14967658142073093, 2.380325913780969],
        [-0.0014638872675603709, -0.05541659956211986, 0.695373354883636, 1.0455493367830269],
    ),
    (
        "gelu_new",
        [-0.0002718060213921236, -0.1657715112902794, 0.149675350701685, 2.3807231538443983],
        [-0.001156727235788211, -0.055067204759616684, 0.6953540951510604, 1.0460599586057284],
    ),
    (
        "gelu_fast",
        [-0.0002718060214013662, -0.1657715112910022, 0.1496753507015987, 2.3807231538440674],
        [-0.0011567272358231238, -0.055067204758762034, 0.6953540951503956, 1.0460599586063168],
    ),
    (
        "quick_gelu",
        [-0.0067994974563366116, -0.15995742924209627, 0.1511996499001942, 2.360284660064668],
        [-0.009713775399255786, -0.04613038169338768, 0.7065004409742669, 1.0499288758464815],
    ),
    (
        "swish",
        [-0.08926997924537602, -0.2601454476374964, 0.14054412522144952, 2.200385528414586],
        [-0.06298913912649876, 0.1041002207669589, 0.6237100215701977, 1.099839301230523],
    ),
    ("relu", [0.0, 0.0, 0.25, 2.4], [0.0, 0.0, 1.0, 1.0]),
    (
        "tanh",
        [-0.9987782412811312, -0.7162978701990245, 0.24491866240370913, 0.9836748576936802],
        [0.002442024743370387, 0.4869173611483415, 0.940014848806378, 0.03238377434131793],
    ),
    (
        "sigmoid",
        [0.024127021417669196, 0.289050497374996, 0.5621765008857981, 0.9168273035060777],
        [0.02354490825518053, 0.20550030734226343, 0.24613408273759835, 0.07625499905185222],
    ),
    ("linear", [-3.7, -0.9, 0.25, 2.4], [1.0; 4]),
];

/// x, and `torch.nn.functional.gelu(x, approximate="none")` and its derivative, PyTorch 2.15.0 in f64.
const GELU: [[f64; 3]; 16] = [
    [-14.0, -0.0, -1.53524918314456e-42],
    [-6.0, -5.919525869479969e-09, -3.546870945402639e-08],
    [-3.5, -0.0008142017766243903, -0.0028217603536246205],
    [-2.0, -0.04550026389635842, -0.08523180107819692],
    [-1.0, -0.15865525393145702, -0.08331547058768635],
    [-0.75, -0.16997051428265111, 0.0007742782607648296],
    [-0.125, -0.056282721896235885, 0.4007820643017934],
    [0.0, 0.0, 0.5],
    [0.001, 0.000500398942213911, 0.5007978842948414],
    [0.5, 0.34573123063700656, 0.8674951246561629],
    [1.0, 0.841344746068543, 1.0833154705876864],
    [1.75, 1.67989647548832, 1.110926151082578],
    [2.5, 2.4844758366855597, 1.037611085908145],
    [4.0, 3.9998733150326675, 1.0005036496612265],
    [6.0, 5.999999994080474, 1.0000000354687093],
    [14.0, 14.0, 1.0],
];

#[test]
fn gelu_and_its_derivative_are_those_of_pytorch() {
    let device = flex().autodiff();
    let [x, expected @ ..] = [0, 1, 2].map(|column| GELU.map(|row| row[column]).to_vec());
    let run = |dtype| {
        let x = tensor(&x, &device, dtype).reshape([GELU.len(), 1]).require_grad();
        let y = bias_gelu(x.clone(), Tensor::zeros([1], (&device, dtype)));
        [values(y.clone()), values(x.grad(&y.sum().backward()).unwrap())]
    };
    for (dtype, limit) in [(DType::F64, 1e-15), (DType::F32, 3e-7)] {
        for found in [run(dtype), on_reference_path(|| run(dtype))] {
            assert_near("GELU", &found, &expected, limit);
        }
    }
}

#[test]
fn activations_in_f64_are_those_of_transformers_and_so_are_their_gradients() {
    for device in all() {
        if !device.supports_dtype(DType::F64) || check_dtype(&device, DType::F64).is_err() {
            continue;
        }
        let device = device.autodiff();
        for (name, expected, slopes) in TRANSFORMERS {
            let activation = Activation::from_name(name).unwrap();
            let x = tensor(&[-4.0, -1.0, 0.5, 2.0], &device, DType::F64).require_grad();
            let y = bias_activation(
                x.clone().reshape([1, 4]),
                Some(tensor(&[0.3, 0.1, -0.25, 0.4], &device, DType::F64)),
                activation,
            );
            let of_x = values(x.grad(&y.clone().sum().backward()).unwrap());
            for (found, expected) in [(values(y), expected), (of_x, slopes)] {
                // erf of ndarray is good to some units of the last place at 1.
                let close = |(a, b): (&f64, &f64)| (a - b).abs() < 4e-15 * b.abs().max(1.0);
                let is_close = found.iter().zip(&expected).all(close);
                assert!(is_close, "{name} on {device:?}: {found:?}, not {expected:?}");
            }
        }
    }
}

#[test]
fn every_name_of_an_activation_leads_back_to_it() {
    for activation in Activation::ALL {
        for name in activation.names() {
            assert_eq!(Activation::from_name(name), Some(activation));
            assert!(Activation::all_names().contains(name));
        }
    }
}

/// The drivers of some adapters compute f64's exponential, tanh and error function as NaN.
#[test]
fn f64_is_right_on_every_device_or_refused_by_name() {
    let run = |device: &Device| {
        let x = tensor(&[0.3, -1.0, 2.0, 0.5, 1.5, -0.25], device, DType::F64).reshape([3, 2]);
        let sequences = Sequences::new(vec![2, 1], device);
        let context = attention([x.clone(), x.clone(), x.clone()], &sequences, 1, Positions::default(), 0.0);
        let gelu = bias_gelu(x.clone(), tensor(&[0.1, 0.2], device, DType::F64));
        let loss = cross_entropy(x, Tensor::from_ints([1, 0, 1], device));
        [values(context), values(gelu), values(loss)].concat()
    };
    let expected = run(&flex());
    for device in all().into_iter().filter(|device| device.supports_dtype(DType::F64)) {
        let found = catch_unwind(AssertUnwindSafe(|| run(&device)));
        match (found, check_dtype(&device, DType::F64)) {
            (Ok(found), Ok(())) => {
                let close = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5);
                assert!(close, "{device:?}: {found:?}, not {expected:?}");
            }
            (Err(panic), Err(error)) => {
                assert_eq!(*panic.downcast::<String>().unwrap(), error.to_string());
                assert!(error.to_string().contains("in F64 wrongly; choose f32"), "{error}");
            }
            (found, check) => panic!("{device:?} says {check:?} and gives {found:?}"),
        }
    }
}

/// A model of which some layers are quantised: those before leave their outputs in 16 bits.
#[test]
fn a_quantised_layer_takes_what_a_layer_in_autocast_leaves_in_16_bits() {
    let device = flex().autodiff();
    let matrix = |rows, columns, step: f32| {
        let values: Vec<f32> = (0..rows * columns).map(|i| (i as f32 * step).sin()).collect();
        Tensor::<1>::from_floats(values.as_slice(), &device).reshape([rows, columns])
    };
    let (x, inner) = (matrix(4, 32, 0.7), matrix(32, 32, 0.3).require_grad());
    let packed = QuantScheme::default();
    let is_packed = device.supports_dtype(DType::QFloat(packed));
    let scheme = if is_packed { packed } else { packed.with_store(QuantStore::Native) };
    let outer = matrix(32, 32, 0.9).inner().quantize_dynamic(&scheme);
    let between = autocast(Precision::Bf16, || linear_narrow(x, inner.clone(), None));
    assert_eq!(between.dtype(), DType::BF16);
    let expected = between.clone().cast(DType::F32).inner().matmul(outer.clone().dequantize());
    let y = autocast(Precision::Bf16, || linear(between, outer, None));
    assert!(y.clone().inner().all_close(expected, Some(1e-4), Some(1e-4)));
    let gradient = inner.grad(&y.sum().backward()).unwrap();
    assert!(values(gradient).iter().any(|value| *value != 0.0));
}

/// Within half of one of 255 steps for each value of x, and as Burn multiplies where there is no kernel.
#[test]
fn quantised_weights_of_every_scheme_give_what_they_dequantise_to() {
    let device = flex();
    let matrix = |rows, columns, step: f32| {
        let values: Vec<f32> = (0..rows * columns).map(|i| (i as f32 * step).sin() + 0.3).collect();
        Tensor::<1>::from_floats(values.as_slice(), &device).reshape([rows, columns])
    };
    let (x, bias) = (matrix(15, 64, 0.7), matrix(1, 64, 0.2).reshape([64]));
    // Of another size in each row and column, so that no scale is another's.
    let sizes = |rows: usize, columns: usize| {
        Tensor::arange(1..65, &device).float().narrow(0, 0, rows * columns).reshape([rows, columns])
    };
    let weight = matrix(64, 64, 0.31) * sizes(1, 64) * sizes(32, 1).repeat_dim(0, 2).cumsum(0) / 1e3;
    // Burn quantises blocks anew when it reshapes them, which only a range around 0 survives.
    let native = QuantScheme::default().with_store(QuantStore::Native).with_value(QuantValue::Q8S);
    let blocks = |block: [u8; 2]| native.per_block(block, ScaleDtype::F32);
    let two_levels = native.per_block([16], ScaleDtype::UE4M3).per_tensor(ScaleDtype::F32);
    for (what, scheme, is_burns) in [
        ("a scale for the tensor", native, false),
        ("4 bits", native.with_value(QuantValue::Q4S), false),
        ("columns of blocks", blocks([32, 1]), false),
        ("blocks over columns", blocks([16, 4]), false),
        ("short blocks", blocks([8, 1]), true),
        ("two levels", two_levels, true),
    ] {
        // Burn's blocks must divide the shape.
        let weight =
            if scheme.num_levels() == 2 { weight.clone().slice([0..64, 0..32]) } else { weight.clone() };
        let columns = weight.dims()[1];
        let (bias, quantised) = (bias.clone().narrow(0, 0, columns), weight.quantize_dynamic(&scheme));
        let plain = quantised.clone().dequantize();
        let expected = x.clone().matmul(plain.clone()) + bias.clone().unsqueeze();
        let range = x.clone().max_dim(1).clamp_min(0.0) - x.clone().min_dim(1).clamp_max(0.0);
        let off = range.matmul(plain.clone().abs().sum_dim(0)) / 510.0 + 1e-4;
        let y = |x: Tensor<2>| linear(x, quantised.clone(), Some(bias.clone()));
        let found = (y(x.clone()) - expected).abs();
        assert!(values(found.clone().lower_equal(off).all().float()) == [1.0], "{what}: {found}");
        let burns = values(burn::tensor::module::linear(x.clone(), quantised.clone(), Some(bias.clone())));
        assert_eq!(values(y(x.clone())) == burns, is_burns, "{what}");
        assert_eq!(values(on_reference_path(|| y(x.clone()))), burns, "{what}");
        // Packed they are the same numbers.
        let kept = prepared(quantised.clone());
        let found = linear(x.clone(), kept.clone(), Some(bias.clone()));
        assert_eq!(values(found), values(y(x.clone())), "{what}");
        assert_eq!(values(kept.clone().dequantize()), values(plain), "{what}");
        assert_eq!(kept.into_data(), quantised.clone().into_data(), "{what}");
        // A row does not depend on what stands beside it, nor on its dims.
        let row = x.clone().slice([7..8, 0..64]).reshape([1, 1, 64]);
        let row = linear(row, quantised.clone(), Some(bias.clone()));
        assert_eq!(row.dims(), [1, 1, columns]);
        assert_eq!(values(row), values(y(x.clone()).slice([7..8, 0..columns])), "{what}");
    }
    let quantised = weight.quantize_dynamic(&blocks([16, 1]));
    let empty = Tensor::<2>::zeros([0, 64], &device);
    assert_eq!(linear(empty, quantised.clone(), None).dims(), [0, 64]);
    // In bf16, which a model stays in and autocast leaves, and where x has a gradient.
    let narrow = x.clone().cast(DType::BF16);
    let y = |x: &Tensor<2>| linear(x.clone(), quantised.clone(), None);
    let wide = y(&narrow.clone().cast(DType::F32));
    let (stays, leaves) = (y(&narrow), autocast(Precision::Bf16, || y(&narrow)));
    assert_eq!((stays.dtype(), leaves.dtype()), (DType::BF16, DType::F32));
    assert_eq!(values(leaves), values(wide.clone()));
    assert_eq!(values(stays), values(wide.cast(DType::BF16)));
    let tracked = Tensor::from_data(x.into_data(), &device.clone().autodiff()).require_grad();
    let gradient = tracked.grad(&linear(tracked.clone(), quantised.clone(), None).sum().backward()).unwrap();
    let expected = quantised.dequantize().sum_dim(1).reshape([1, 64]).expand([15, 64]);
    assert!(gradient.all_close(expected, Some(1e-4), Some(1e-4)));
}

#[test]
fn one_bias_for_all_sequences_gives_what_copies_of_it_give() {
    let [lengths, heads, hidden] = [vec![150, 20, 150], vec![2], vec![16]];
    let (heads, hidden, tokens) = (heads[0], hidden[0], lengths.iter().sum::<usize>());
    for device in with_kernels().into_iter().map(Device::autodiff) {
        let rows = [1, 2, 3].map(|seed| {
            tensor(&draw(tokens * hidden, seed), &device, DType::F32).reshape([tokens, hidden]).require_grad()
        });
        let bias = tensor(&draw(heads * 150 * 150, 4), &device, DType::F32).reshape([1, heads, 150, 150]);
        let bias = bias.require_grad();
        let sequences = Sequences::new(lengths.clone(), &device);
        let run = |given: Tensor<4>| {
            let positions = Positions { bias: Some(given), ..Positions::default() };
            let y = attention(rows.clone(), &sequences, heads, positions, 0.0);
            let gradients = (y.clone() * y.clone().detach()).sum().backward();
            let of_rows = rows.each_ref().map(|rows| values(rows.grad(&gradients).unwrap()));
            (values(y), of_rows, values(bias.grad(&gradients).unwrap()))
        };
        let (of_one, of_copies) = (run(bias.clone()), run(bias.clone().expand([3, -1, -1, -1])));
        assert!(of_one.0 == of_copies.0 && of_one.1 == of_copies.1, "{device:?}");
        assert_near("the bias's gradient", &[of_one.2], &[of_copies.2], 1e-6);
    }
}

#[test]
fn attention_weights_without_a_token_are_empty() {
    for device in all() {
        for lengths in [vec![], vec![0, 0]] {
            let rows = || Tensor::<2>::zeros([0, 8], &device);
            let sequences = Sequences::new(lengths.clone(), &device);
            let weights = attention_weights([rows(), rows()], &sequences, 2, Positions::default());
            assert_eq!(weights.dims(), [lengths.len(), 2, 0, 0], "{device:?}");
        }
    }
}

/// More tensors than a launch takes, of no value to more than all cubes take at once; in 16 bits squares are f32.
#[test]
fn squares_of_any_number_of_tensors_of_any_size_and_layout_are_added_up() {
    let value = |i: usize| (i % 17) as f32 - 8.0;
    let norm = |tensors| values(clip(tensors, 1.0, Some(f64::INFINITY)).1.expect("the norm"))[0];
    for device in all() {
        let many: Vec<usize> = (0..83).map(|i| 37 * i).collect();
        let dtypes =
            [DType::F32, DType::F16, DType::BF16].into_iter().filter(|dtype| device.supports_dtype(*dtype));
        for (dtype, counts) in
            dtypes.flat_map(|dtype| [(dtype, vec![0, 1, 3, 255, 257, 600_001]), (dtype, many.clone())])
        {
            let tensor = |count: usize| {
                let data = TensorData::new((0..count).map(value).collect::<Vec<_>>(), [count]);
                Tensor::<1>::from_data(data, (&device, dtype)).into_dispatch()
            };
            let found = norm(counts.iter().map(|&count| tensor(count)).collect()).powi(2);
            let expected: f64 =
                counts.iter().flat_map(|&count| 0..count).map(|i| f64::from(value(i)).powi(2)).sum();
            assert!(
                (found - expected).abs() <= 2e-6 * expected,
                "{dtype:?}, {device:?}: {found}, not {expected}"
            );
        }
        let matrix = Tensor::<1, Int>::arange(0..12, &device).float().reshape([3, 4]);
        let column = matrix.clone().narrow(1, 1, 1);
        let found = |tensor: Tensor<2>| norm(vec![tensor.into_dispatch()]) as f32;
        assert_eq!(found(matrix.transpose()), 506f32.sqrt(), "{device:?}");
        assert_eq!(found(column), 107f32.sqrt(), "{device:?}");
    }
}

/// Tokens are sorted by row in runs of 1,024, of which a launch merges eight: these are two merges. The gradients are
/// integers, so sums are exact in any order; those of the row of padding are 0.
#[test]
fn the_gradient_of_a_table_is_exact_for_any_number_of_tokens() {
    for device in all().into_iter().map(Device::autodiff) {
        let sizes = [(1, 3), (1023, 5), (1025, 700), (20_001, 3), (20_001, 9000)];
        // Of words and of positions.
        for ((tokens, rows), role) in sizes.into_iter().flat_map(|size| [(size, 0), (size, 2)]) {
            let ids: Vec<i32> = (0..tokens).map(|i| ((i * 7919) % rows) as i32).collect();
            let table = Tensor::<2>::zeros([rows, 2], &device).require_grad();
            let index = Tensor::<1, Int>::from_ints(ids.as_slice(), &device).reshape([1, tokens]);
            let mut looked_up = [Rows::Absent, Rows::Absent, Rows::Absent];
            looked_up[role] = Rows::Lookup { table: table.clone(), ids: index, padding_idx: Some(1) };
            let norm = Norm { gamma: Tensor::ones([2], &device), beta: None, epsilon: 1.0 };
            let y = embed_layer_norm([1, tokens], looked_up, norm, 0.0);
            // At a table of zeros with ε = 1, LayerNorm takes the mean off the gradient: ±1 of 2 and 0.
            let upstream = Tensor::<1>::from_floats([2.0, 0.0], &device).reshape([1, 1, 2]);
            let gradients = (y * upstream).sum().backward();
            let mut expected = vec![0.0; 2 * rows];
            for &id in ids.iter().filter(|id| **id != 1) {
                expected[2 * id as usize] += 1.0;
                expected[2 * id as usize + 1] -= 1.0;
            }
            assert!(values(table.grad(&gradients).unwrap()) == expected, "{tokens} tokens on {device:?}");
        }
    }
}

/// β₁ = β₂ = 1/2 and w ← w − m / √v: with m = v = 0 and g = 2, m is 1 and v is 2.
#[test]
fn adam_changes_nothing_that_others_hold() {
    let step = AdamStep { beta_1: 0.5, beta_2: 0.5, epsilon: 0.0, keep: 1.0, root: 1.0, size: 1.0 };
    for device in all() {
        let tensors = || [5.0, 0.0, 0.0, 2.0].map(|value| Tensor::<2>::full([300, 3], value, &device));
        let assert_stepped = |[w, m, v, g]: [Tensor<2>; 4]| {
            let (w, [m, v]) = adam(step, w, [m, v], g);
            for (found, expected) in [w, m, v].map(values).iter().zip([5.0 - 1.0 / 2f64.sqrt(), 1.0, 2.0]) {
                let is_near = found.iter().all(|value| (value - expected).abs() < 1e-6);
                assert!(found.len() == 900 && is_near, "{device:?}");
            }
        };
        assert_stepped(tensors());
        let held = tensors();
        assert_stepped(held.clone());
        assert_eq!(held.map(|tensor| values(tensor)[899]), [5.0, 0.0, 0.0, 2.0], "{device:?}");
    }
}

/// More steps than a launch takes, of several dtypes, β, rates and sizes, none among them and more than all cubes take at once; some
/// read one gradient, which is held.
#[test]
fn fused_steps_of_adam_have_the_bits_that_they_have_alone() {
    const COUNTS: [usize; 7] = [3000, 1, 257, 0, 31, 600_001, 255];
    for device in all() {
        let dtypes = supported(&device, &[DType::F32, DType::F64, DType::F16, DType::BF16]);
        let held = tensor(&draw(257, 9), &device, DType::F32);
        let step = |i: usize| {
            let (count, dtype) = (COUNTS[i % 7], dtypes[i / 7 % dtypes.len()]);
            let draw = |seed: usize| tensor(&draw(count, (4 * i + seed) as u64), &device, dtype);
            let (beta_1, keep) = ([0.5, 0.9][i % 2], 1.0 - 1e-4 * i as f64);
            let size = 1e-3 * (1 + i) as f64;
            let step = AdamStep { beta_1, beta_2: 0.999, epsilon: 1e-8, keep, root: 1.5, size };
            let moments = [draw(0), draw(1).abs() + 0.5].map(|moment| moment.cast(computed_in(dtype)));
            let gradient = if (count, dtype) == (257, DType::F32) { held.clone() } else { draw(3) };
            adam(step, draw(2), moments, gradient)
        };
        let steps = || (0..110).map(step).collect::<Vec<_>>();
        let read = |steps: Vec<(Tensor<1>, [Tensor<1>; 2])>| {
            steps.into_iter().flat_map(|(w, [m, v])| [w, m, v].map(values)).collect::<Vec<_>>()
        };
        let fused = read(fuse_adam(steps));
        assert!(fused == read(steps()), "{device:?}");
        assert_near(&format!("{device:?}"), &fused, &read(on_reference_path(|| fuse_adam(steps))), 1e-2);
    }
}
