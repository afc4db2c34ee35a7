//! The encoder: padding that takes no part, relative positions, dropout.

mod padding;

use crate::prelude::*;
use burn::nn::{LayerNormConfig, Linear};
use burn::tensor::activation::softmax;
use burn_bert::encoder::{BertEncoder, BertLayer};

/// A family and its positions.
type Scheme = (Family, PositionEmbeddingType);

const ABSOLUTE: Scheme = (Family::Bert, PositionEmbeddingType::Absolute);
const RELATIVE_KEY: Scheme = (Family::Bert, PositionEmbeddingType::RelativeKey);
const RELATIVE_KEY_QUERY: Scheme = (Family::Bert, PositionEmbeddingType::RelativeKeyQuery);
const SCHEMES: [Scheme; 5] = [
    ABSOLUTE,
    RELATIVE_KEY,
    RELATIVE_KEY_QUERY,
    (Family::Albert, PositionEmbeddingType::RelativeKey),
    (Family::Albert, PositionEmbeddingType::RelativeKeyQuery),
];

const H: usize = 6;

fn config((family, positions): Scheme) -> BertModelConfig {
    let mut bert = small_bert(9, H).with_num_hidden_layers(2).with_intermediate_size(7);
    bert.embeddings = bert
        .embeddings
        .with_family(family)
        .with_embedding_size((family == Family::Albert).then_some(H))
        .with_initializer(EmbeddingInitializer::Normal { std: 0.5 })
        .with_position_embedding_type(positions)
        .with_max_position_embeddings(12);
    bert
}

fn device() -> Device {
    Device::default().autodiff()
}

/// In f64, trainable.
fn encoder(scheme: Scheme) -> BertEncoder {
    cast_module(config(scheme).init_encoder(&device()).unwrap(), FloatDType::F64).unwrap()
}

/// Numbers that differ, in f64, trainable.
fn hidden([batch, seq]: [usize; 2]) -> Tensor<3> {
    let data = (0..batch * seq * H).map(|i| (i as f64 * 0.7).sin() * 1.5).collect();
    let data = TensorData::new::<f64, _>(data, [batch, seq, H]);
    Tensor::from_data(data, (&device(), DType::F64)).require_grad()
}

/// What an encoder is by its formula: the whole rectangle, padding included, position by position.
fn rectangle(
    (family, _): Scheme,
    encoder: &BertEncoder,
    hidden: Tensor<3>,
    padding: &Tensor<2, Bool>,
) -> Tensor<3> {
    let hidden = match &encoder.embeddings_projection {
        Some(projection) => projection.forward(hidden),
        None => hidden,
    };
    let layers = encoder.layers.iter().cycle().take(encoder.num_hidden_layers());
    layers.fold(hidden, |hidden, layer| rectangle_layer(family, layer, hidden, padding))
}

fn rectangle_layer(
    family: Family,
    layer: &BertLayer,
    hidden: Tensor<3>,
    padding: &Tensor<2, Bool>,
) -> Tensor<3> {
    let [batch, seq, width] = hidden.dims();
    let attention = &layer.attention;
    let heads = attention.num_attention_heads();
    let split = |linear: &Linear| {
        let all = linear.forward(hidden.clone());
        all.reshape([batch, seq, heads, width / heads]).swap_dims(1, 2)
    };
    let [query, key, value] = [&attention.query, &attention.key, &attention.value].map(split);
    // Of transformers 4.49: `BertSelfAttention` divides the sum, `AlbertAttention` the product alone.
    let root = ((width / heads) as f64).sqrt();
    let [before, after] = if family == Family::Albert { [1.0 / root, 1.0] } else { [1.0, 1.0 / root] };
    let mut scores = query.clone().matmul(key.clone().transpose()).mul_scalar(before);
    if let Some(positions) = &attention.relative_positions {
        let table = positions.distance_embedding.weight.val();
        let middle = positions.max_position_embeddings() - 1;
        for l in 0..seq {
            for r in 0..seq {
                let mut of = query.clone().narrow(2, l, 1);
                if positions.with_keys() {
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
    let scores = scores.mul_scalar(after);
    let scores = scores.mask_fill(padding.clone().reshape([batch, 1, 1, seq]), -1e300);
    let context = softmax(scores, 3).matmul(value).swap_dims(1, 2).reshape([batch, seq, width]);
    let norm = |norm: &burn_bert::LayerNorm, x: Tensor<3>| {
        let mut burn = LayerNormConfig::new(width).with_epsilon(norm.epsilon()).init(&device());
        (burn.gamma, burn.beta) = (norm.gamma.clone(), norm.beta.clone());
        burn.forward(x)
    };
    let attention_norm = layer.attention_layer_norm.as_ref().unwrap();
    let hidden = norm(attention_norm, hidden + layer.attention_output.forward(context));
    let inner = layer.intermediate.forward(hidden.clone());
    let active = inner.clone() * (inner.mul_scalar(0.5f64.sqrt()).erf() + 1.0).mul_scalar(0.5);
    norm(&layer.output_layer_norm, hidden + layer.output.forward(active))
}

/// Numbers of order 1, another one for each value.
fn weights(dims: [usize; 3]) -> Tensor<3> {
    let data = (0..dims.iter().product()).map(|i| (i as f64 * 1.3).cos()).collect();
    Tensor::from_data(TensorData::new::<f64, _>(data, dims), (&device(), DType::F64))
}

/// Padding nowhere, at the end, at the start, in the middle, nearly everywhere and everywhere.
fn every_kind() -> Vec<Vec<bool>> {
    ["TTTTTTTT", "TTTTT...", "...TTTTT", "TT..T.TT", "...T....", "TTTTT...", "........"]
        .map(|row| row.chars().map(|place| place == '.').collect())
        .into()
}

#[test]
fn bad_input_is_an_error() {
    let encoder = encoder(RELATIVE_KEY);
    let error = encoder.try_forward(hidden([2, 3]), Some(&PaddingMask::from_lengths(&[3], 3))).unwrap_err();
    assert!(matches!(error, Error::ShapeMismatch { input: "padding", .. }), "{error}");
    let errors = |input: Tensor<3>| {
        [
            encoder.try_forward(input.clone(), None).unwrap_err(),
            encoder.forward_packed(input.clone(), None).map(|_| ()).unwrap_err(),
            encoder.forward_all(input, None).map(|_| ()).unwrap_err(),
        ]
    };
    for error in errors(Tensor::cat(vec![hidden([2, 3]); 2], 2)) {
        assert!(
            matches!(&error, Error::ShapeMismatch { input: "hidden", found, .. } if *found == [2, 3, 2 * H]),
            "{error}"
        );
    }
    for [batch, seq] in [[0, 3], [2, 0], [0, 0]] {
        for error in errors(Tensor::zeros([batch, seq, H], (&device(), DType::F64))) {
            assert!(matches!(error, Error::Empty { input: "hidden", .. }), "{error}");
        }
    }
    let error = encoder.forward_all(hidden([1, 13]), None).unwrap_err();
    assert!(matches!(error, Error::SequenceTooLong { needed: 12, rows: 12, .. }), "{error}");
    encoder.try_forward(hidden([1, 12]), None).unwrap();
    let error = PaddingMask::from_rows(&[vec![true], vec![]]).unwrap_err();
    assert!(matches!(error, Error::RaggedRows { row: 1, .. }), "{error}");
}

/// That it is active in training alone is in `tests/matrix`.
#[test]
fn dropout_is_off_where_a_layer_is_frozen_and_has_a_range() {
    let mut dropped = config(ABSOLUTE).init_encoder(&device()).unwrap();
    dropped.set_dropout(0.5, 0.5).unwrap();
    let input = hidden([2, 5]).cast(FloatDType::F32);
    let is_random = |encoder: &BertEncoder| {
        let run = || values(encoder.forward(input.clone(), None));
        run() != run()
    };
    assert!(is_random(&dropped));
    assert!(!is_random(&dropped.clone().freeze()), "a frozen layer drops nothing on a device that trains");
    for (hidden, attention) in [(1.0, 0.0), (0.0, f64::NAN), (-0.1, 0.0)] {
        assert!(matches!(dropped.set_dropout(hidden, attention), Err(Error::Config { .. })));
    }
    dropped.set_dropout(0.0, 0.0).unwrap();
    assert!(!is_random(&dropped));
}
