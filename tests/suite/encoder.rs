//! The encoder: padding that takes no part, relative positions, dropout.

use crate::prelude::*;
use burn::nn::{LayerNormConfig, Linear};
use burn::tensor::activation::softmax;
use burn_bert::encoder::{BertEncoder, BertLayer};
use proptest::prelude::*;

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

/// In f64, trainable.
fn encoder(scheme: Scheme) -> BertEncoder {
    cast_module(config(scheme).init_encoder(&autodiff()).unwrap(), FloatDType::F64).unwrap()
}

/// Numbers that differ, in f64, trainable.
fn hidden([batch, seq]: [usize; 2]) -> Tensor<3> {
    let data = (0..batch * seq * H).map(|i| (i as f64 * 0.7).sin() * 1.5).collect();
    let data = TensorData::new::<f64, _>(data, [batch, seq, H]);
    Tensor::from_data(data, (&autodiff(), DType::F64)).require_grad()
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
        let mut burn = LayerNormConfig::new(width).with_epsilon(norm.epsilon()).init(&autodiff());
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
    Tensor::from_data(TensorData::new::<f64, _>(data, dims), (&autodiff(), DType::F64))
}

/// Padding nowhere, at the end, at the start, in the middle, nearly everywhere and everywhere.
fn every_kind() -> PaddingMask {
    let kinds = ["TTTTTTTT", "TTTTT...", "...TTTTT", "TT..T.TT", "...T....", "TTTTT...", "........"];
    PaddingMask::from_rows(&kinds.map(|row| row.chars().map(|place| place == '.').collect::<Vec<_>>()))
        .unwrap()
}

#[test]
fn bad_input_is_an_error() {
    let encoder = encoder(RELATIVE_KEY);
    let result = encoder.try_forward(hidden([2, 3]), Some(&PaddingMask::from_lengths(&[3], 3).unwrap()));
    fails!(result, Error::ShapeMismatch { input: "padding", .. });
    let results = |input: Tensor<3>| {
        [
            encoder.try_forward(input.clone(), None).map(drop),
            encoder.forward_packed(input.clone(), None).map(drop),
            encoder.forward_all(input, None).map(drop),
        ]
    };
    for result in results(Tensor::cat(vec![hidden([2, 3]); 2], 2)) {
        fails!(result, Error::ShapeMismatch { input: "hidden", found, .. } if *found == [2, 3, 2 * H]);
    }
    for [batch, seq] in [[0, 3], [2, 0], [0, 0]] {
        for result in results(Tensor::zeros([batch, seq, H], (&autodiff(), DType::F64))) {
            fails!(result, Error::Empty { input: "hidden", .. });
        }
    }
    fails!(encoder.forward_all(hidden([1, 13]), None), Error::SequenceTooLong { needed: 12, rows: 12, .. });
    encoder.try_forward(hidden([1, 12]), None).unwrap();
}

/// That it is active in training alone is in `tests/matrix`.
#[test]
fn dropout_is_off_where_a_layer_is_frozen_and_has_a_range() {
    let mut dropped = config(ABSOLUTE).init_encoder(&autodiff()).unwrap();
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

/// The encoder against the formula over the whole rectangle: outputs and every gradient.
///
/// The formula gets zeros at padding, the encoder gets `garbage` there.
fn assert_equals_the_rectangle(scheme: Scheme, mask: &PaddingMask, garbage: f64) {
    let [batch, seq] = mask.dims();
    let encoder = encoder(scheme);
    let is_padding = mask.tensor(&autodiff());
    let of_padding: Tensor<3, Bool> = is_padding.clone().unsqueeze_dim::<3>(2).expand([batch, seq, H]);

    let input = hidden([batch, seq]);
    let found = encoder.forward(input.clone().mask_fill(of_padding.clone(), garbage), Some(mask));
    let found_gradients = (found.clone() * weights([batch, seq, H])).sum().backward();
    let other = hidden([batch, seq]);
    let expected = rectangle(scheme, &encoder, other.clone().mask_fill(of_padding.clone(), 0.0), &is_padding);
    let expected = expected.mask_fill(of_padding, 0.0);
    let expected_gradients = (expected.clone() * weights([batch, seq, H])).sum().backward();

    assert_close(&values(found), &values(expected), F64);
    let of_input = |input: &Tensor<3>, gradients| values(input.grad(gradients).unwrap());
    let found_input = of_input(&input, &found_gradients);
    assert_close(&found_input, &of_input(&other, &expected_gradients), F64);
    let found = parameters(&encoder, Some(&found_gradients));
    let expected = parameters(&encoder, Some(&expected_gradients));
    assert!(found.keys().eq(expected.keys()));
    for (path, expected) in &expected {
        // The key's bias has a gradient of rounding errors alone, if it is anything.
        let limit = Tolerance { absolute: 1e-11, relative: 1e-11 };
        assert_close(&found[path], expected, limit);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_padding_gives_what_the_whole_rectangle_gives(
        scheme in proptest::sample::select(SCHEMES.to_vec()),
        rows in (1..5usize, 1..9usize).prop_flat_map(|(batch, seq)| {
            proptest::collection::vec(proptest::collection::vec(any::<bool>(), seq), batch)
        }),
    ) {
        // A batch without any token has a test of its own.
        prop_assume!(rows.iter().flatten().any(|is_padding| !is_padding));
        assert_equals_the_rectangle(scheme, &PaddingMask::from_rows(&rows).unwrap(), 1e3);
    }
}

#[test]
fn every_kind_of_padding_and_every_length_give_what_the_whole_rectangle_gives() {
    for scheme in SCHEMES {
        assert_equals_the_rectangle(scheme, &every_kind(), 7.0);
        for seq in [1, 2, 12] {
            assert_equals_the_rectangle(scheme, &PaddingMask::from_lengths(&[seq, seq], seq).unwrap(), 0.0);
        }
    }
}

#[test]
fn padding_is_zero_in_the_output_and_in_the_gradient_whatever_it_holds_and_where_there_is_nothing_else() {
    let mask = every_kind();
    let [batch, seq] = mask.dims();
    let of_padding = mask.tensor(&autodiff()).unsqueeze_dim::<3>(2).expand([batch, seq, H]);
    for garbage in [1e3, f64::NAN, f64::INFINITY] {
        let input = hidden([batch, seq]).mask_fill(of_padding.clone(), garbage).detach().require_grad();
        let encoder = encoder(RELATIVE_KEY_QUERY);
        let output = encoder.forward(input.clone(), Some(&mask));
        let gradients = (output.clone() * weights([batch, seq, H])).sum().backward();
        let (output, gradient) = (values(output), values(input.grad(&gradients).unwrap()));
        for (place, is_padding) in mask.rows().flatten().enumerate() {
            let range = place * H..(place + 1) * H;
            for values in [&output[range.clone()], &gradient[range]] {
                if *is_padding {
                    assert_eq!(values, [0.0; H]);
                } else {
                    assert!(values.iter().all(|value| value.is_finite() && *value != 0.0));
                }
            }
        }
    }
    let mask = PaddingMask::from_lengths(&[0, 0], 3).unwrap();
    let encoder = encoder(RELATIVE_KEY);
    let input = hidden([2, 3]);
    let all = encoder.forward_all(input.clone(), Some(&mask)).unwrap();
    assert_eq!(values(all.hidden_states[2].clone()), [0.0; 6 * H]);
    assert_eq!(values(all.attentions[1].clone()), [0.0; 2 * 2 * 9]);
    let packed = encoder.forward_packed(input.clone(), Some(&mask)).unwrap();
    assert_eq!(packed.rows().dims(), [0, H]);
    assert_eq!(values(packed.select(&[4])), [0.0; H]);
    let gradients = encoder.forward(input.clone(), Some(&mask)).sum().backward();
    assert_eq!(values(input.grad(&gradients).unwrap()), [0.0; 6 * H]);
}

#[test]
fn a_mask_without_padding_changes_no_bit() {
    let encoder = encoder(RELATIVE_KEY_QUERY);
    let full = PaddingMask::from_lengths(&[5, 5, 5], 5).unwrap();
    let without = encoder.forward(hidden([3, 5]), None);
    encoder.forward(hidden([3, 5]), Some(&full)).into_data().assert_eq(&without.into_data(), true);
}

#[test]
fn rows_of_some_places_are_those_of_the_whole_output() {
    let encoder = encoder(ABSOLUTE);
    let mask = every_kind();
    let [batch, seq] = mask.dims();
    let places: Vec<usize> = (0..batch * seq).rev().chain([3, 3]).collect();
    let tokens = (0..).zip(mask.rows().flatten()).filter(|(_, is_padding)| !**is_padding);
    let tokens: Vec<usize> = tokens.map(|(place, _)| place).collect();
    for (padding, places) in [(None, &places), (Some(&mask), &places), (Some(&mask), &tokens)] {
        let all = values(encoder.forward(hidden([batch, seq]), padding));
        let expected: Vec<f64> = places.iter().flat_map(|place| &all[place * H..][..H]).copied().collect();
        let packed = encoder.forward_packed(hidden([batch, seq]), padding).unwrap();
        assert_eq!(values(packed.select(places)), expected);
        let num_tokens = padding.map_or(batch * seq, PaddingMask::num_tokens);
        assert_eq!(packed.rows().dims(), [num_tokens, H]);
        assert_eq!(packed.packing().num_tokens(), num_tokens);
    }
}

#[test]
fn attention_weights_of_a_token_sum_to_one_over_the_tokens_of_its_sequence() {
    for scheme in SCHEMES {
        let encoder = encoder(scheme);
        let mask = every_kind();
        let [batch, seq] = mask.dims();
        let all = encoder.forward_all(hidden([batch, seq]), Some(&mask)).unwrap();
        let last = encoder.forward(hidden([batch, seq]), Some(&mask));
        assert_close(&values(all.hidden_states[2].clone()), &values(last), F64);
        assert_eq!((all.hidden_states.len(), all.attentions.len()), (3, 2));
        for weights in all.attentions {
            assert_eq!(weights.dims(), [batch, 2, seq, seq]);
            let weights = values(weights);
            for (sequence, is_padding) in mask.rows().enumerate() {
                for head in 0..2 {
                    for query in 0..seq {
                        let row = &weights[((sequence * 2 + head) * seq + query) * seq..][..seq];
                        let sum = if is_padding[query] { 0.0 } else { 1.0 };
                        assert_close(&[row.iter().sum()], &[sum], F64);
                        for (key, &weight) in row.iter().enumerate() {
                            assert_eq!(weight > 0.0, !is_padding[query] && !is_padding[key]);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn lengths_that_no_batch_has_are_refused() {
    let expected = PaddingMask::from_rows(&[[false, false, true], [true, true, true]]).unwrap();
    assert_eq!(PaddingMask::from_lengths(&[2, 0], 3).unwrap(), expected);
    let error = PaddingMask::from_lengths(&[3, 4], 3).unwrap_err().to_string();
    assert_eq!(error, "lengths[1] is 4, but sequences are padded to 3");
    for (lengths, seq) in [(&[][..], 3), (&[0], 0)] {
        fails!(PaddingMask::from_lengths(lengths, seq), Error::Empty { input: "lengths", .. });
    }
}

#[test]
fn an_attention_mask_is_taken_as_rows_or_as_a_tensor_of_zeros_and_ones() {
    let expected = PaddingMask::from_rows(&[[false, false, true], [true, false, false]]).unwrap();
    let rows = [[1, 1, 0], [0, 1, 1]];
    assert_eq!(PaddingMask::from_attention_mask(&rows).unwrap(), expected);
    let rows = rows.map(|row| row.map(|value| value as u8).to_vec()).to_vec();
    assert_eq!(PaddingMask::from_attention_mask(&rows).unwrap(), expected);
    let tensor = expected.tensor(&device()).bool_not().int();
    assert_eq!(PaddingMask::from_attention_mask(tensor).unwrap(), expected);

    let tensor = Tensor::<2, Int>::from_data([[1, 0], [-1, 0]], &device());
    let error = PaddingMask::from_attention_mask(tensor).unwrap_err().to_string();
    assert_eq!(error, "attention_mask[1][0] is -1, but must be 1 at a token and 0 at padding");
    let error = PaddingMask::from_attention_mask(&[[1, 2]]).unwrap_err().to_string();
    assert_eq!(error, "attention_mask[0][1] is 2, but must be 1 at a token and 0 at padding");
    let result = PaddingMask::from_attention_mask(&[vec![1, 0], vec![1]]);
    fails!(result, Error::RaggedRows { input: "attention_mask", row: 1, .. });
    let none: [[i64; 0]; 2] = [[]; 2];
    assert!(matches!(PaddingMask::from_attention_mask(&none), Err(Error::Empty { .. })));
}
