//! Outputs and gradients.

use crate::case::*;
use crate::devices::{all, supported};
use crate::golden::Golden;
use crate::tolerance::{self, Tolerance, assert_all_close, operator_tolerance};
use burn::prelude::*;
use burn::tensor::DType;
use burn_bert::PositionEmbeddingType::AfterPadding;
use burn_bert::functional::{Positions, Sequences, attention, on_reference_path};
use burn_bert::{BertEmbeddingsInput, TokenEmbeddingConfig};
use burn_fused::check_dtype;

/// Every way to say where a token is, of ids and of vectors, in every dtype that the device computes in: a row of the table
/// of `docs/checkpoints.md` for each fixture.
pub fn outputs_gradients_and_ten_steps_of_adamw_equal_hugging_faces(case: &Case) {
    let _held = hold_random_numbers();
    let mut failures = Vec::new();
    for golden in Golden::all().iter().filter(|golden| case.device.supports_dtype(golden.dtype)) {
        let dtype = DType::from(golden.dtype);
        let tolerance = if dtype == DType::F32 { case.tolerance } else { tolerance::layer_tolerance(dtype) };
        let file = golden.path.file_stem().unwrap().to_string_lossy();
        let mut worst = (0.0f64, 0.0f64);
        for (name, values) in golden.compute(&case.device) {
            let miss = golden.miss(&name, &values, tolerance);
            if miss.1 > 1.0 {
                failures.push(format!("{file}: {name} is off by {:.1e}", miss.0));
            }
            worst = (worst.0.max(miss.0), worst.1.max(miss.1));
        }
        println!("{file:<42} {:>8.1e} {:>6.1} % of the tolerance", worst.0, 100.0 * worst.1);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

pub fn a_lookup_returns_the_rows_bit_for_bit(case: &Case) {
    let _held = hold_random_numbers();
    let mut table = TokenEmbeddingConfig::new(300, 7).with_padding_idx(Some(4)).init(&case.autodiff());
    let values: Vec<f32> = numbers(2100, 8).iter().map(|&x| x as f32).collect();
    let data = TensorData::new(values.clone(), [300, 7]);
    table.weight = burn::module::Param::from_data(data, &case.autodiff());
    let ids: Vec<i32> = (0..64).map(|i| (i * 89) % 300).chain([4, 0, 299, 4]).collect();
    let found = table.forward::<1, 2>(Tensor::from_ints(ids.as_slice(), &case.autodiff()));
    let found: Vec<f32> = found.into_data().try_into_vec().unwrap();
    let expected = ids.iter().flat_map(|&id| values[id as usize * 7..][..7].iter());
    assert!(found.iter().map(|x| x.to_bits()).eq(expected.map(|x| x.to_bits())));
}

/// Gradients of whole numbers, whose sums are exact in any order.
pub fn a_row_that_is_looked_up_8192_times_gets_the_sum_of_its_gradients(case: &Case) {
    let _held = hold_random_numbers();
    const TIMES: usize = 8192;
    let table = TokenEmbeddingConfig::new(3, 2).with_padding_idx(Some(0)).init(&case.autodiff());
    let ids: Vec<i32> = (0..TIMES + 2).map(|i| if i < TIMES { 1 } else { 2 }).collect();
    let rows = table.forward::<1, 2>(Tensor::from_ints(ids.as_slice(), &case.autodiff()));
    let upstream = (0..2 * (TIMES + 2)).map(|i| (i % 23) as f32 - 7.0).collect::<Vec<_>>();
    let mut expected = [0.0; 6];
    for (i, value) in upstream.iter().enumerate() {
        expected[2 * ids[i / 2] as usize + i % 2] += f64::from(*value);
    }
    let upstream = Tensor::<2>::from_data(TensorData::new(upstream, [TIMES + 2, 2]), &case.autodiff());
    let gradients = (rows * upstream).sum().backward();
    assert_eq!(host(table.weight.grad(&gradients).unwrap()), expected);
}

pub fn ids_of_every_int_dtype_give_the_same_values_and_gradients(case: &Case) {
    // The padding id and the tables are past what 8 bits can count, the ids themselves are not.
    let config = config()
        .with_vocab_size(600)
        .with_max_position_embeddings(320)
        .with_type_vocab_size(300)
        .with_pad_token_id(Some(300))
        .with_position_embedding_type(AfterPadding);
    let device = case.autodiff();
    let module = module(&config, &device);
    let table = &module.word_embeddings;
    let ids = |dtype: DType| {
        let ids = TensorData::new(vec![1i64, 44, 127, 5, 44, 0], [2, 3]).convert_dtype(dtype);
        Tensor::<2, Int>::from_data(ids, (&device, dtype))
    };
    let run = |dtype: DType| {
        let input = BertEmbeddingsInput::from_ids(ids(dtype)).unwrap();
        let input = input.with_token_type_ids(ids(dtype)).unwrap();
        let explicit = input.clone().with_position_ids(ids(dtype)).unwrap();
        let mut all = Vec::new();
        for input in [input.clone(), input.unchecked_ids(), explicit] {
            let output = module.try_forward(&input).unwrap();
            let gradients = loss(output.clone()).backward();
            all.push(host(output));
            all.push(host(table.weight.grad(&gradients).unwrap()));
            all.push(host(module.position_embeddings.as_ref().unwrap().weight.grad(&gradients).unwrap()));
        }
        for found in [table.forward::<2, 3>(ids(dtype)), table.forward_unchecked::<2, 3>(ids(dtype))] {
            let gradients = found.clone().powi_scalar(3).sum().backward();
            all.push(host(found));
            all.push(host(table.weight.grad(&gradients).unwrap()));
        }
        // Unchecked ids look up the same rows, of a layer and of a table of its own: outputs and gradients.
        assert!(all[..3] == all[3..6] && all[9..11] == all[11..], "{dtype:?}");
        all
    };
    let expected = run(DType::I32);
    let others = [DType::I8, DType::U8, DType::I16, DType::U16, DType::U32, DType::I64, DType::U64];
    for dtype in others.into_iter().filter(|&dtype| case.device.supports_dtype(dtype)) {
        println!("{dtype:?}");
        // A GPU device may fuse the conversion of the ids with what follows, and rounds otherwise then.
        for (found, expected) in run(dtype).iter().zip(&expected) {
            tolerance::assert_close(found, expected, case.tolerance);
        }
    }
}

/// Sequences of one tile and several, heads that fill a tile and that do not, windows, biases, vectors of distances and dropout.
pub fn attention_has_the_values_and_gradients_of_the_reference_up_to_rounding_in_every_dtype(case: &Case) {
    let _held = hold_random_numbers();
    let cases = [
        (vec![129, 3, 64], [2, 64], None, false, 0.0),
        (vec![70, 0, 31], [1, 127], Some(20), true, 0.0),
        (vec![40, 70], [3, 33], None, true, 0.1),
    ];
    // Another device than the one under test, if there is one.
    let oracle = all().swap_remove(0);
    let has_f64 = oracle.supports_dtype(DType::F64) && check_dtype(&oracle, DType::F64).is_ok();
    let exact = if has_f64 { DType::F64 } else { DType::F32 };
    for dtype in supported(&case.device, &[DType::F32, DType::F16, DType::BF16]) {
        for (lengths, [heads, columns], window, has_distances, dropout) in cases.clone() {
            let what = format!("{dtype:?}, {lengths:?}, {heads} heads of {columns}");
            let tokens: usize = lengths.iter().sum();
            let longest = *lengths.iter().max().unwrap();
            let run = |device: &Device, dtype: DType| {
                let device = device.clone().autodiff();
                device.seed(3);
                let leaf = |seed: u64, dims: &[usize]| {
                    // All dtypes hold these.
                    let values: Vec<f64> = numbers(dims.iter().product(), seed)
                        .iter()
                        .map(|x| (x * 128.0).round() / 64.0)
                        .collect();
                    Tensor::<1>::from_data(TensorData::from(values.as_slice()), (&device, dtype))
                        .require_grad()
                };
                let bias_dims = [1, heads, longest, longest];
                let vectors = [2 * longest - 1, heads * columns];
                let leaves: Vec<_> = (0..3)
                    .map(|i| leaf(i, &[tokens, heads * columns]))
                    .chain([leaf(3, &bias_dims)])
                    .chain([5, 6].into_iter().filter(|_| has_distances).map(|i| leaf(i, &vectors)))
                    .collect();
                let rows = [0, 1, 2].map(|i| leaves[i].clone().reshape([tokens, heads * columns]));
                let [by_query, by_key] =
                    [4, 5].map(|i| leaves.get(i).map(|leaf| leaf.clone().reshape(vectors)));
                let bias = Some(leaves[3].clone().reshape(bias_dims));
                let positions = Positions { bias, by_query, by_key, scale: None };
                let sequences = Sequences::new(lengths.clone(), &device);
                let sequences = window.map_or(sequences.clone(), |window| sequences.with_window(window));
                let y = attention(rows, &sequences, heads, positions, dropout);
                let weights = leaf(4, &[tokens, heads * columns]).detach().reshape([tokens, heads * columns]);
                let gradients = (y.clone() * weights).sum().backward();
                let gradients = leaves.iter().map(|leaf| host(leaf.grad(&gradients).unwrap()));
                [host(y)].into_iter().chain(gradients).collect::<Vec<_>>()
            };
            let expected = match dropout {
                0.0 => on_reference_path(|| run(&oracle, exact)),
                // Each device draws seeds of its own, so here the 16-bit dtypes alone are compared.
                _ => run(&case.device, DType::F32),
            };
            for (i, (found, expected)) in run(&case.device, dtype).iter().zip(&expected).enumerate() {
                let scale = expected.iter().fold(1.0, |scale: f64, value| scale.max(value.abs()));
                let tolerance = Tolerance { absolute: operator_tolerance(dtype) * scale, relative: 0.0 };
                assert_all_close(&format!("{what}: result {i}"), found, expected, tolerance);
            }
        }
    }
}
