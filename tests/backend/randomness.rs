//! Dropout, and what a seed fixes. The shares that are dropped are tested in `burn-fused`.

use crate::case::*;
use crate::tolerance::{all_values, parameters};
use burn::prelude::*;
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig};

pub fn dropout_is_the_identity_bit_for_bit_outside_training(case: &Case) {
    let (plain, training) = (&case.device, &case.autodiff());
    let dropping = |device| module(&config().with_hidden_dropout_prob(0.9), device);
    let whole = |device| module(&config(), device);
    let bits = |module: BertEmbeddings, device: &Device| -> Vec<u64> {
        host(module.forward(&input(device))).into_iter().map(f64::to_bits).collect()
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
            .with_type_vocab_size(3)
            .with_max_position_embeddings(64)
            .init(&case.autodiff());
        let output = module.forward(&input(&case.autodiff()));
        let gradients = loss(output.clone()).backward();
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
