//! `TokenEmbedding`: lookup, padding row, initialisation.

use crate::tolerance::values;
use crate::turn;
use burn::module::Param;
use burn::prelude::*;
use burn_bert::{EmbeddingInitializer, TokenEmbeddingConfig};

#[test]
fn ids_of_every_rank_are_looked_up_and_sizes_known_before_the_table_is_drawn() {
    let device = Device::default();
    let mut table = TokenEmbeddingConfig::new(5, 2).with_padding_idx(Some(0)).init(&device);
    let rows = TensorData::from([[0.0f32, 1.0], [10.0, 11.0], [20.0, 21.0], [30.0, 31.0], [40.0, 41.0]]);
    table.weight = Param::from_data(rows, &device);
    let one = table.forward::<1, 2>(Tensor::from_ints([4, 0], &device));
    one.into_data().assert_eq(&TensorData::from([[40.0f32, 41.0], [0.0, 1.0]]), true);
    let two = table.forward::<2, 3>(Tensor::from_ints([[1], [2], [3]], &device));
    two.into_data().assert_eq(&TensorData::from([[[10.0f32, 11.0]], [[20.0, 21.0]], [[30.0, 31.0]]]), true);
    let three = table.forward::<3, 4>(Tensor::from_ints([[[1, 1]]], &device));
    three.into_data().assert_eq(&TensorData::from([[[[10.0f32, 11.0], [10.0, 11.0]]]]), true);
    let unchecked = table.forward_unchecked::<2, 3>(Tensor::from_ints([[4, 0], [1, 3]], &device));
    let expected = [[[40.0f32, 41.0], [0.0, 1.0]], [[10.0, 11.0], [30.0, 31.0]]];
    unchecked.into_data().assert_eq(&TensorData::from(expected), true);
    let table = TokenEmbeddingConfig::new(50, 8).init(&Device::default());
    assert_eq!((table.num_embeddings(), table.embedding_dim()), (50, 8));
    assert!(!table.weight.is_initialized());
}

#[test]
fn the_padding_row_is_zero_after_init_and_no_other_is() {
    let (_turn, device) = (turn(), Device::default());
    device.seed(1);
    for initializer in [
        EmbeddingInitializer::Normal { std: 0.02 },
        EmbeddingInitializer::TruncatedNormal { std: 0.02, bound: 2.0 },
    ] {
        for row in [Some(0), Some(3), Some(6), None] {
            let table = TokenEmbeddingConfig::new(7, 5)
                .with_padding_idx(row)
                .with_initializer(initializer.clone())
                .init(&device);
            for (i, values) in values(table.weight.val()).chunks(5).enumerate() {
                assert_eq!(values.iter().all(|&value| value == 0.0), Some(i) == row, "row {i}: {values:?}");
            }
        }
    }
}

#[test]
fn the_padding_row_stops_the_gradient_whatever_comes_back() {
    let (_turn, device) = (turn(), Device::default().autodiff());
    let table = TokenEmbeddingConfig::new(4, 3).with_padding_idx(Some(2)).init(&device);
    let ids = Tensor::<1, Int>::from_ints([2, 1, 2], &device);
    let upstream = Tensor::<2>::from_floats(
        [[f32::NAN, f32::INFINITY, -7.0], [1.0, 2.0, 3.0], [1e30, 4.0, 5.0]],
        &device,
    );
    let gradients = (table.forward::<1, 2>(ids) * upstream).sum().backward();
    let gradient = values(table.weight.grad(&gradients).unwrap());
    let expected = [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(gradient, expected);
}

#[test]
fn truncated_draws_respect_their_bound_and_have_their_moments() {
    let (_turn, device) = (turn(), Device::default());
    // The variance of a standard normal restricted to ±b is 1 − 2·b·φ(b)/(2·Φ(b) − 1), and its fourth moment
    // gives the error of the sample variance; both from the density, integrated here by the midpoint rule.
    let moment = |bound: f64, power: i32| {
        let (mut sum, mut whole) = (0.0, 0.0);
        for i in 0..20_000 {
            let x = bound * (f64::from(2 * i + 1) / 20_000.0 - 1.0);
            let density = (-x * x / 2.0).exp();
            (sum, whole) = (sum + x.powi(power) * density, whole + density);
        }
        sum / whole
    };
    for (std, bound) in [(0.02, 2.0), (1.0, 3.0), (0.5, 0.25), (1.0, 5.0)] {
        let config = TokenEmbeddingConfig::new(2000, 100)
            .with_initializer(EmbeddingInitializer::TruncatedNormal { std, bound });
        let drawn = |seed| {
            device.seed(seed);
            values(config.init(&device).weight.val())
        };
        assert!(drawn(4) == drawn(4) && drawn(4) != drawn(5), "the seed decides");
        let draws: Vec<f64> = drawn(4).iter().map(|x| x / std).collect();
        let n = draws.len() as f64;
        let largest = draws.iter().fold(0.0, |a: f64, x| a.max(x.abs()));
        assert!(largest <= bound * (1.0 + 1e-7), "bound {bound}, but {largest}");
        assert!(largest > 0.8 * bound, "the bound is reached: {largest} of {bound}");
        let (second, fourth) = (moment(bound, 2), moment(bound, 4));
        let mean = draws.iter().sum::<f64>() / n;
        assert!(mean.abs() < 4.0 * (second / n).sqrt(), "bound {bound}: mean {mean}");
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / n;
        let error = 4.0 * ((fourth - second * second) / n).sqrt();
        assert!((variance - second).abs() < error, "bound {bound}: variance {variance}, not {second}");
        // Mirror images are equally likely, and the shape is a normal's: the share within half the bound.
        let inner = draws.iter().filter(|x| x.abs() < bound / 2.0).count() as f64 / n;
        let erf = |x: f64| libm::erf(x / std::f64::consts::SQRT_2);
        let share = erf(bound / 2.0) / erf(bound);
        assert!((inner - share).abs() < 4.0 * (share * (1.0 - share) / n).sqrt(), "bound {bound}: {inner}");
    }
}
