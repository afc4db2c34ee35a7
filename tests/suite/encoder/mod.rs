//! The encoder: padding that takes no part, relative positions, what is frozen or adapted.

mod padding;
mod training;

use crate::tolerance::{F64, assert_close, values};
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{LayerNormConfig, Linear};
use burn::prelude::*;
use burn::tensor::activation::softmax;
use burn::tensor::{FloatDType, Gradients};
use burn_bert::encoder::{BertEncoder, BertEncoderConfig, BertLayer};
use burn_bert::{Error, PaddingMask, PositionEmbeddingType, cast_module};

const SCHEMES: [PositionEmbeddingType; 3] = [
    PositionEmbeddingType::Absolute,
    PositionEmbeddingType::RelativeKey,
    PositionEmbeddingType::RelativeKeyQuery,
];

const H: usize = 6;

fn config(scheme: PositionEmbeddingType) -> BertEncoderConfig {
    BertEncoderConfig::new()
        .with_hidden_size(H)
        .with_num_hidden_layers(2)
        .with_num_attention_heads(2)
        .with_intermediate_size(7)
        .with_hidden_dropout_prob(0.0)
        .with_attention_probs_dropout_prob(0.0)
        .with_initializer_range(0.5)
        .with_position_embedding_type(scheme)
        .with_max_position_embeddings(12)
}

fn device() -> Device {
    Device::default().autodiff()
}

/// In f64, trainable.
fn encoder(scheme: PositionEmbeddingType) -> BertEncoder {
    cast_module(config(scheme).init(&device()), FloatDType::F64)
}

/// Numbers that differ, in f64, trainable.
fn hidden([batch, seq]: [usize; 2]) -> Tensor<3> {
    let data = (0..batch * seq * H).map(|i| (i as f64 * 0.7).sin() * 1.5).collect();
    let data = TensorData::new::<f64, _>(data, [batch, seq, H]);
    Tensor::from_data(data, (&device(), burn::tensor::DType::F64)).require_grad()
}

/// What an encoder is by its formula: the whole rectangle, padding included, position by position.
fn rectangle(encoder: &BertEncoder, hidden: Tensor<3>, padding: &Tensor<2, Bool>) -> Tensor<3> {
    encoder.layers.iter().fold(hidden, |hidden, layer| rectangle_layer(layer, hidden, padding))
}

fn rectangle_layer(layer: &BertLayer, hidden: Tensor<3>, padding: &Tensor<2, Bool>) -> Tensor<3> {
    let [batch, seq, width] = hidden.dims();
    let attention = &layer.attention;
    let heads = attention.num_attention_heads;
    let split = |linear: &Linear| {
        let all = linear.forward(hidden.clone());
        all.reshape([batch, seq, heads, width / heads]).swap_dims(1, 2)
    };
    let [query, key, value] = [&attention.query, &attention.key, &attention.value].map(split);
    let mut scores = query.clone().matmul(key.clone().transpose());
    if let Some(positions) = &attention.relative_positions {
        let table = positions.distance_embedding.weight.val();
        let middle = positions.max_position_embeddings() - 1;
        for l in 0..seq {
            for r in 0..seq {
                let mut of = query.clone().narrow(2, l, 1);
                if positions.with_keys {
                    of = of + key.clone().narrow(2, r, 1);
                }
                let vector = table.clone().narrow(0, l + middle - r, 1).reshape([1, 1, 1, width / heads]);
                let added = (of * vector).sum_dim(3);
                let place = [0..batch, 0..heads, l..l + 1, r..r + 1];
                let old = scores.clone().slice(place.clone());
                scores = scores.slice_assign(place, old + added);
            }
        }
    }
    let scores = scores.mul_scalar(1.0 / ((width / heads) as f64).sqrt());
    let scores = scores.mask_fill(padding.clone().reshape([batch, 1, 1, seq]), -1e300);
    let context = softmax(scores, 3).matmul(value).swap_dims(1, 2).reshape([batch, seq, width]);
    let norm = |norm: &burn_bert::LayerNorm, x: Tensor<3>| {
        let mut burn = LayerNormConfig::new(width).with_epsilon(norm.epsilon()).init(&device());
        (burn.gamma, burn.beta) = (norm.gamma.clone(), norm.beta.clone());
        burn.forward(x)
    };
    let hidden = norm(&layer.attention_layer_norm, hidden + layer.attention_output.forward(context));
    let inner = layer.intermediate.forward(hidden.clone());
    let active = inner.clone() * (inner.mul_scalar(0.5f64.sqrt()).erf() + 1.0).mul_scalar(0.5);
    norm(&layer.output_layer_norm, hidden + layer.output.forward(active))
}

/// The gradient of every parameter, in visiting order; empty where there is none.
fn gradients<M: Module>(module: &M, gradients: &Gradients) -> Vec<Vec<f64>> {
    struct Collect<'a>(&'a Gradients, Vec<Vec<f64>>);
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push(param.grad(self.0).map_or_else(Vec::new, values));
        }
    }
    let mut collect = Collect(gradients, Vec::new());
    module.visit(&mut collect);
    collect.1
}

/// Numbers of order 1, another one for each value.
fn weights(dims: [usize; 3]) -> Tensor<3> {
    let data = (0..dims.iter().product()).map(|i| (i as f64 * 1.3).cos()).collect();
    Tensor::from_data(TensorData::new::<f64, _>(data, dims), (&device(), burn::tensor::DType::F64))
}

/// Padding nowhere, at the end, at the start, in the middle, nearly everywhere and everywhere.
fn every_kind() -> Vec<Vec<bool>> {
    ["TTTTTTTT", "TTTTT...", "...TTTTT", "TT..T.TT", "...T....", "TTTTT...", "........"]
        .map(|row| row.chars().map(|place| place == '.').collect())
        .into()
}

#[test]
fn bad_input_is_an_error() {
    let encoder = encoder(PositionEmbeddingType::RelativeKey);
    let error = encoder.try_forward(hidden([2, 3]), Some(&PaddingMask::from_lengths(&[3], 3))).unwrap_err();
    assert!(matches!(error, Error::ShapeMismatch { input: "padding", .. }), "{error}");
    let wide = Tensor::cat(vec![hidden([2, 3]); 2], 2);
    let [_, _, width] = wide.dims();
    for error in [
        encoder.try_forward(wide.clone(), None).unwrap_err(),
        encoder.try_forward_packed(wide.clone(), None).map(|_| ()).unwrap_err(),
        encoder.try_forward_all(wide, None).map(|_| ()).unwrap_err(),
    ] {
        let found = vec![2, 3, width];
        assert!(
            matches!(&error, Error::ShapeMismatch { input: "hidden", found: f, .. } if *f == found),
            "{error}"
        );
    }
    let error = encoder.try_forward_all(hidden([1, 13]), None).unwrap_err();
    assert!(matches!(error, Error::SequenceTooLong { needed: 12, rows: 12, .. }), "{error}");
    encoder.try_forward(hidden([1, 12]), None).unwrap();
    let error = PaddingMask::from_rows(&[vec![true], vec![]]).unwrap_err();
    assert!(matches!(error, Error::RaggedRows { row: 1, .. }), "{error}");
}

#[test]
fn a_config_that_no_encoder_has_names_the_field() {
    let valid = || config(PositionEmbeddingType::Absolute);
    let relative = config(PositionEmbeddingType::RelativeKey);
    for (field, config) in [
        ("num_attention_heads", valid().with_num_attention_heads(4)),
        ("intermediate_size", valid().with_intermediate_size(0)),
        ("hidden_dropout_prob", valid().with_hidden_dropout_prob(1.0)),
        ("initializer_range", valid().with_initializer_range(-0.1)),
        ("initializer_range", valid().with_initializer_range(f64::NAN)),
        ("layer_norm_eps", valid().with_layer_norm_eps(0.0)),
        ("layer_norm_eps", valid().with_layer_norm_eps(1e-300)), // 0 in f32
        ("max_position_embeddings", relative.clone().with_max_position_embeddings(0)),
        ("max_position_embeddings", relative.clone().with_max_position_embeddings(usize::MAX)),
        ("max_position_embeddings", relative.with_max_position_embeddings(1 << 63)),
    ] {
        let error = config.try_init(&Device::default()).unwrap_err();
        assert!(matches!(&error, Error::Config { field: found, .. } if *found == field), "{error}");
    }
    assert!(valid().with_layer_norm_eps(0.0).validate().is_err());
    valid().with_max_position_embeddings(0).validate().unwrap();
}

#[test]
fn the_epsilon_of_each_layer_norm_counts() {
    let mut encoder = encoder(PositionEmbeddingType::Absolute);
    let norm = |epsilon| {
        let other = config(PositionEmbeddingType::Absolute).with_layer_norm_eps(epsilon).init(&device());
        cast_module(other, FloatDType::F64).layers.remove(0).output_layer_norm
    };
    for layer in &mut encoder.layers {
        layer.attention_layer_norm = norm(0.5);
        layer.output_layer_norm = norm(1.5);
    }
    let no_padding = PaddingMask::from_lengths(&[3, 3], 3).tensor(&device());
    let expected = rectangle(&encoder, hidden([2, 3]), &no_padding);
    assert_close(&values(encoder.forward(hidden([2, 3]), None)), &values(expected), F64);
}

#[test]
fn a_field_that_was_changed_after_init_is_named() {
    type Change = fn(&mut BertLayer);
    let changes: [(Change, &str); 9] = [
        (
            |layer| layer.attention.num_attention_heads = 0,
            "invalid config: num_attention_heads is 0 in layers[1], but must be at least 1 and divide hidden_size 6",
        ),
        (
            |layer| layer.attention.num_attention_heads = 4,
            "invalid config: num_attention_heads is 4 in layers[1], but must be at least 1 and divide hidden_size 6",
        ),
        (
            |layer| layer.dropout.prob = f64::NAN,
            "invalid config: hidden_dropout_prob is NaN, but must lie in [0, 1)",
        ),
        (
            |layer| layer.attention.dropout.prob = 1.0,
            "invalid config: attention_probs_dropout_prob is 1, but must lie in [0, 1)",
        ),
        (
            |layer| {
                *layer = config(PositionEmbeddingType::Absolute)
                    .with_hidden_size(4)
                    .init(&device())
                    .layers
                    .remove(0)
            },
            "layers[1].attention.query.weight has shape [4, 4], but expected [6, 6]",
        ),
        (
            |layer| layer.output.bias = Some(Param::from_tensor(Tensor::zeros([5], &device()))),
            "layers[1].output.bias has shape [5], but expected [6]",
        ),
        (
            |layer| layer.output_layer_norm.gamma = Param::from_tensor(Tensor::ones([1], &device())),
            "layers[1].output_layer_norm.gamma has shape [1], but expected [6]",
        ),
        (
            |layer| layer.attention.num_attention_heads = 3,
            "layers[1].attention.relative_positions.distance_embedding.weight has shape [23, 3], but expected [23, 2]",
        ),
        (
            |layer| *layer = config(PositionEmbeddingType::RelativeKey).init(&device()).layers.remove(0),
            "layers[1].attention.query.weight is F32, but hidden is F64; cast the whole model with cast_module",
        ),
    ];
    for (change, message) in changes {
        let mut encoder = encoder(PositionEmbeddingType::RelativeKey);
        change(&mut encoder.layers[1]);
        assert_eq!(encoder.try_forward(hidden([2, 3]), None).unwrap_err().to_string(), message);
        assert_eq!(encoder.try_forward_all(hidden([2, 3]), None).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_batch_of_no_sequence_or_no_token_is_an_error() {
    let encoder = encoder(PositionEmbeddingType::Absolute);
    for dims in [[0, 3], [2, 0], [0, 0]] {
        let empty = || Tensor::zeros([dims[0], dims[1], H], (&device(), burn::tensor::DType::F64));
        for error in [
            encoder.try_forward(empty(), None).unwrap_err(),
            encoder.try_forward_packed(empty(), None).map(|_| ()).unwrap_err(),
            encoder.try_forward_all(empty(), None).map(|_| ()).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Empty { input: "hidden", .. }), "{error}");
        }
    }
}
