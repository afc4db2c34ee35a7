//! Dropout, and what a seed fixes.

use crate::case::*;
use crate::reference::{Batch, host};
use crate::tolerance::{all_values, parameters};
use burn::module::Module;
use burn::prelude::*;
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};

pub fn dropout_keeps_its_share_and_scales_what_it_keeps(case: &Case) {
    let _held = hold_random_numbers();
    case.device.seed(1);
    let batch = batch(16, 64);
    for prob in [0.1, 0.5, 0.9] {
        let module = module(&config().with_hidden_size(64).with_hidden_dropout_prob(prob), &case.autodiff());
        let dropped = host(module.forward(&batch.input(&case.autodiff())));
        let whole = host(module.valid().forward(&batch.input(&case.device)));
        let keep = 1.0 - prob;
        let kept: Vec<usize> = (0..whole.len()).filter(|&i| dropped[i] != 0.0).collect();
        let share = kept.len() as f64 / whole.len() as f64;
        let sigma = (prob * keep / whole.len() as f64).sqrt();
        assert!((share - keep).abs() < 4.0 * sigma, "kept {share}, not {keep} ± {}", 4.0 * sigma);
        let pick = |values: &[f64], factor: f64| kept.iter().map(|&i| values[i] * factor).collect::<Vec<_>>();
        assert_close("kept values", &pick(&dropped, 1.0), &pick(&whole, 1.0 / keep), case.tolerance);
    }
}

pub fn dropout_drops_no_feature_and_no_token_more_than_another(case: &Case) {
    let _held = hold_random_numbers();
    case.device.seed(2);
    let (tokens, hidden, keep) = (1024, 64, 0.5);
    let module =
        module(&config().with_hidden_size(hidden).with_hidden_dropout_prob(1.0 - keep), &case.autodiff());
    let output = host(module.forward(&batch(16, 64).input(&case.autodiff())));
    let kept = |i: usize| f64::from(output[i] != 0.0);
    let of_feature = |h: usize| (0..tokens).map(|n| kept(n * hidden + h)).sum::<f64>() / tokens as f64;
    let of_token = |n: usize| (0..hidden).map(|h| kept(n * hidden + h)).sum::<f64>() / hidden as f64;
    // Of a thousand shares the largest lies beyond 4σ once in 16; beyond 6σ once in half a million.
    let far = |share: f64, n: usize| (share - keep).abs() > 6.0 * (keep * (1.0 - keep) / n as f64).sqrt();
    assert!(!(0..hidden).any(|h| far(of_feature(h), tokens)), "a feature stands out");
    assert!(!(0..tokens).any(|n| far(of_token(n), hidden)), "a token stands out");
}

pub fn dropout_stops_the_gradient_exactly_where_it_stops_the_output(case: &Case) {
    let _held = hold_random_numbers();
    case.device.seed(3);
    // One token: the gradient of β is the mask itself, over 1 − p.
    let module = module(&config().with_hidden_size(4096).with_hidden_dropout_prob(0.3), &case.autodiff());
    let output = module.forward(&BertEmbeddingsInput::from_rows(&[[5]], &case.autodiff()).unwrap());
    let gradients = output.clone().sum().backward();
    let gradient = host(module.layer_norm.beta.as_ref().unwrap().grad(&gradients).unwrap());
    for (value, gradient) in host(output).into_iter().zip(gradient) {
        let expected = if value == 0.0 { 0.0 } else { 1.0 / 0.7 };
        assert!((gradient - expected).abs() < 1e-6, "output {value} has gradient {gradient}");
    }
}

pub fn dropout_is_the_identity_bit_for_bit_outside_training(case: &Case) {
    let (plain, training) = (&case.device, &case.autodiff());
    let dropping = |device| module(&config().with_hidden_dropout_prob(0.9), device);
    let whole = |device| module(&config(), device);
    let bits = |module: BertEmbeddings, device: &Device| -> Vec<u64> {
        host(module.forward(&batch(2, 6).input(device))).into_iter().map(f64::to_bits).collect()
    };
    let expected = bits(whole(plain), plain);
    assert_eq!(bits(dropping(plain), plain), expected, "on a plain device");
    assert_eq!(bits(dropping(training).valid(), plain), expected, "after valid()");
    assert_eq!(bits(dropping(training).freeze(), training), expected, "after freeze()");
    let _held = hold_random_numbers();
    let expected = bits(whole(training), training);
    assert_ne!(bits(dropping(training).valid().train(), training), expected, "after train()");
}

pub fn the_same_seed_gives_the_same_bits(case: &Case) {
    let _held = hold_random_numbers();
    let run = |seed: u64| {
        case.device.seed(seed);
        let module = BertEmbeddingsConfig::new()
            .with_vocab_size(200)
            .with_hidden_size(32)
            .with_max_position_embeddings(64)
            .init(&case.autodiff());
        let output = module.forward(&batch(8, 64).input(&case.autodiff()));
        let (weight, _) = weights(&output);
        let gradients = (output.clone() * weight).sum().backward();
        let gradients = parameters(&module, Some(&gradients));
        assert_eq!(gradients.len(), 5);
        let all = [all_values(&module), host(output)].into_iter().chain(gradients.into_values());
        all.flatten().map(f64::to_bits).collect::<Vec<u64>>()
    };
    let first = run(42);
    assert!(run(42) == first, "two runs with one seed differ");
    assert!(run(43) != first, "two seeds give the same numbers");
}

pub fn a_new_table_is_normal_with_a_zero_padding_row(case: &Case) {
    let _held = hold_random_numbers();
    case.device.seed(4);
    let module = BertEmbeddingsConfig::new().with_vocab_size(400).with_hidden_size(64).init(&case.device);
    let table = host(module.word_embeddings.weight.val());
    let (padding, drawn) = table.split_at(64);
    assert!(padding.iter().all(|&value| value == 0.0));
    let n = drawn.len() as f64;
    let mean = drawn.iter().sum::<f64>() / n;
    let std = (drawn.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n).sqrt();
    assert!(drawn.iter().any(|value| value.abs() > 3.0 * 0.02), "a normal distribution has no bound");
    // 4σ of the mean and of the standard deviation of n normal draws.
    assert!(mean.abs() < 4.0 * 0.02 / n.sqrt(), "mean {mean}");
    assert!((std - 0.02).abs() < 4.0 * 0.02 / (2.0 * n).sqrt(), "standard deviation {std}");
}

fn batch(batch: usize, seq: usize) -> Batch {
    let ids = (0..batch).map(|b| (0..seq).map(|s| ((b * seq + s) % 12) as i32).collect()).collect();
    let positions = vec![(0..seq).map(|s| (s % 20) as i32).collect()];
    Batch { ids, positions: Some(positions), ..Batch::default() }
}
