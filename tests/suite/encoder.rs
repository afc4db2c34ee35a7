//! The encoder: padding that takes no part, relative positions, what is frozen or adapted.

use crate::tolerance::{F32, F64, Tolerance, assert_close, values};
use burn::module::{Lora, Module, ModuleVisitor, Param, ParamGroup};
use burn::nn::Linear;
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::activation::softmax;
use burn::tensor::{Distribution, FloatDType, Gradients};
use burn_bert::encoder::{BertEncoder, BertEncoderConfig, BertLayer};
use burn_bert::gradcheck::GradCheck;
use burn_bert::{Error, PaddingMask, PositionEmbeddingType, cast_module};
use proptest::prelude::*;

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
    let hidden = layer.attention_layer_norm.forward(hidden + layer.attention_output.forward(context));
    let inner = layer.intermediate.forward(hidden.clone());
    let active = inner.clone() * (inner.mul_scalar(0.5f64.sqrt()).erf() + 1.0).mul_scalar(0.5);
    layer.output_layer_norm.forward(hidden + layer.output.forward(active))
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

/// Places that hold a token, row · S + column.
fn tokens(mask: &PaddingMask) -> Vec<usize> {
    let is_padding = mask.rows().flatten().enumerate();
    is_padding.filter(|(_, is_padding)| !**is_padding).map(|(place, _)| place).collect()
}

/// The encoder against the formula over the whole rectangle: outputs and every gradient.
///
/// The formula gets zeros at padding, the encoder gets `garbage` there.
fn assert_equals_the_rectangle(scheme: PositionEmbeddingType, rows: &[Vec<bool>], garbage: f64) {
    let mask = PaddingMask::from_rows(rows).unwrap();
    let [batch, seq] = mask.dims();
    let encoder = encoder(scheme);
    let is_padding = mask.tensor(&device());
    let of_padding: Tensor<3, Bool> = is_padding.clone().unsqueeze_dim::<3>(2).expand([batch, seq, H]);

    let input = hidden([batch, seq]);
    let found = encoder.forward(input.clone().mask_fill(of_padding.clone(), garbage), Some(&mask));
    let found_gradients = (found.clone() * weights([batch, seq, H])).sum().backward();
    let other = hidden([batch, seq]);
    let expected = rectangle(&encoder, other.clone().mask_fill(of_padding.clone(), 0.0), &is_padding);
    let expected = expected.mask_fill(of_padding, 0.0);
    let expected_gradients = (expected.clone() * weights([batch, seq, H])).sum().backward();

    assert_close(&values(found), &values(expected), F64);
    let of_input = |input: &Tensor<3>, gradients| values(input.grad(gradients).unwrap());
    let found_input = of_input(&input, &found_gradients);
    assert_close(&found_input, &of_input(&other, &expected_gradients), F64);
    let found = gradients(&encoder, &found_gradients);
    let expected = gradients(&encoder, &expected_gradients);
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        // The key's bias has a gradient of rounding errors alone, if it is anything.
        let limit = Tolerance { absolute: 1e-11, relative: 1e-11 };
        assert_eq!(found.len(), expected.len(), "parameter {i}");
        assert_close(found, expected, limit);
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
        assert_equals_the_rectangle(scheme, &rows, 1e3);
    }
}

/// Padding nowhere, at the end, at the start, in the middle, nearly everywhere and everywhere.
fn every_kind() -> Vec<Vec<bool>> {
    ["TTTTTTTT", "TTTTT...", "...TTTTT", "TT..T.TT", "...T....", "TTTTT...", "........"]
        .map(|row| row.chars().map(|place| place == '.').collect())
        .into()
}

#[test]
fn every_kind_of_padding_in_one_batch_gives_what_the_whole_rectangle_gives() {
    for scheme in SCHEMES {
        assert_equals_the_rectangle(scheme, &every_kind(), 7.0);
    }
}

#[test]
fn padding_is_zero_in_the_output_and_in_the_gradient_whatever_it_holds() {
    let mask = PaddingMask::from_rows(&every_kind()).unwrap();
    let [batch, seq] = mask.dims();
    let of_padding = mask.tensor(&device()).unsqueeze_dim::<3>(2).expand([batch, seq, H]);
    for garbage in [1e3, f64::NAN, f64::INFINITY] {
        let input = hidden([batch, seq]).mask_fill(of_padding.clone(), garbage).detach().require_grad();
        let encoder = encoder(PositionEmbeddingType::RelativeKeyQuery);
        let output = encoder.forward(input.clone(), Some(&mask));
        let gradients = (output.clone() * weights([batch, seq, H])).sum().backward();
        let (output, gradient) = (values(output), values(input.grad(&gradients).unwrap()));
        for (place, is_padding) in mask.rows().flatten().enumerate() {
            let range = place * H..(place + 1) * H;
            for values in [&output[range.clone()], &gradient[range]] {
                match is_padding {
                    true => assert_eq!(values, [0.0; H]),
                    false => assert!(values.iter().all(|value| value.is_finite() && *value != 0.0)),
                }
            }
        }
    }
}

#[test]
fn a_batch_of_nothing_but_padding_gives_zeros() {
    let mask = PaddingMask::from_lengths(&[0, 0], 3);
    let encoder = encoder(PositionEmbeddingType::RelativeKey);
    let input = hidden([2, 3]);
    let all = encoder.forward_all(input.clone(), Some(&mask));
    assert_eq!(values(all.hidden_states[2].clone()), [0.0; 6 * H]);
    assert_eq!(values(all.attentions[1].clone()), [0.0; 2 * 2 * 9]);
    let packed = encoder.forward_packed(input.clone(), Some(&mask));
    assert_eq!(packed.rows().dims(), [0, H]);
    assert_eq!(values(packed.select(&[4])), [0.0; H]);
    let gradients = encoder.forward(input.clone(), Some(&mask)).sum().backward();
    assert_eq!(values(input.grad(&gradients).unwrap()), [0.0; 6 * H]);
}

#[test]
fn a_mask_without_padding_changes_no_bit() {
    let encoder = encoder(PositionEmbeddingType::RelativeKeyQuery);
    let full = PaddingMask::from_lengths(&[5, 5, 5], 5);
    let without = encoder.forward(hidden([3, 5]), None);
    encoder.forward(hidden([3, 5]), Some(&full)).into_data().assert_eq(&without.into_data(), true);
}

#[test]
fn a_sequence_is_the_same_alone_and_among_others() {
    for scheme in SCHEMES {
        let encoder = encoder(scheme);
        let mask = PaddingMask::from_rows(&every_kind()).unwrap();
        let all = encoder.forward(hidden(mask.dims()), Some(&mask));
        for (row, length) in [(0, 8), (1, 5), (5, 5)] {
            let alone = hidden(mask.dims()).narrow(0, row, 1).narrow(1, 0, length);
            let found = all.clone().narrow(0, row, 1).narrow(1, 0, length);
            assert_close(&values(found), &values(encoder.forward(alone, None)), F64);
        }
        let one = hidden(mask.dims()).narrow(0, 4, 1).narrow(1, 3, 1);
        let found = all.narrow(0, 4, 1).narrow(1, 3, 1);
        assert_close(&values(found), &values(encoder.forward(one, None)), F64);
    }
}

#[test]
fn rows_of_some_places_are_those_of_the_whole_output() {
    let encoder = encoder(PositionEmbeddingType::Absolute);
    let mask = PaddingMask::from_rows(&every_kind()).unwrap();
    let [batch, seq] = mask.dims();
    let places: Vec<usize> = (0..batch * seq).rev().chain([3, 3]).collect();
    for (padding, places) in [(None, &places), (Some(&mask), &places), (Some(&mask), &tokens(&mask))] {
        let all = values(encoder.forward(hidden([batch, seq]), padding));
        let expected: Vec<f64> = places.iter().flat_map(|place| &all[place * H..][..H]).copied().collect();
        let packed = encoder.forward_packed(hidden([batch, seq]), padding);
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
        let mask = PaddingMask::from_rows(&every_kind()).unwrap();
        let [batch, seq] = mask.dims();
        let all = encoder.forward_all(hidden([batch, seq]), Some(&mask));
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
fn the_gradient_passes_the_finite_difference_check_in_every_scheme() {
    for scheme in SCHEMES {
        let mask = PaddingMask::from_rows(&every_kind()[1..5]).unwrap();
        for padding in [None, Some(&mask)] {
            let report = GradCheck::new()
                .run_with_input(
                    &config(scheme).init(&device()),
                    Tensor::random([4, 8, H], Distribution::Normal(0.0, 1.0), &device()),
                    |encoder, hidden, probe| probe.weighted_sum(encoder.forward(hidden, padding)),
                )
                .unwrap();
            report.assert_passes();
            let relative = if scheme.has_table() { 0 } else { 1 };
            assert_eq!(report.parameters.len(), 1 + 2 * (16 + relative), "{report}");
        }
    }
}

#[test]
fn dropout_is_active_in_training_alone() {
    let dropped = config(PositionEmbeddingType::Absolute)
        .with_hidden_dropout_prob(0.5)
        .with_attention_probs_dropout_prob(0.5)
        .init(&device());
    let mask = PaddingMask::from_lengths(&[5, 2], 5);
    let input = || hidden([2, 5]).cast(FloatDType::F32);
    let twice = |encoder: &BertEncoder, input: &dyn Fn() -> Tensor<3>| {
        [0, 1].map(|_| values(encoder.forward(input(), Some(&mask))))
    };
    let [first, second] = twice(&dropped, &input);
    assert_ne!(first, second);
    let still = dropped.clone().valid();
    let [first, second] = twice(&still, &|| input().inner());
    assert_eq!(first, second);
    let mut undropped = still.clone();
    for layer in &mut undropped.layers {
        layer.dropout.prob = 0.0;
        layer.attention.dropout.prob = 0.0;
    }
    assert_eq!(twice(&undropped, &|| input().inner())[0], first);
}

#[test]
fn lora_on_query_and_value_trains_its_factors_and_no_base() {
    let plain = config(PositionEmbeddingType::Absolute).init(&device());
    let input = || hidden([2, 5]).cast(FloatDType::F32);
    let before = values(plain.forward(input(), None));
    let group = ParamGroup::from_any_predicates(vec!["query.weight", "value.weight"]);
    let mut adapted = plain.apply_lora(Lora::new(2, 2.0).set_param_group(group));
    assert_close(&values(adapted.forward(input(), None)), &before, F32);
    let bases = |encoder: &BertEncoder| {
        let of = |layer: &BertLayer| {
            [&layer.attention.query, &layer.attention.value].map(|linear| values(linear.weight.base()))
        };
        encoder.layers.iter().map(of).collect::<Vec<_>>()
    };
    let bases_before = bases(&adapted);

    let loss = |encoder: &BertEncoder| {
        (encoder.forward(input(), None) * weights([2, 5, H]).cast(FloatDType::F32)).sum()
    };
    let first = values(loss(&adapted))[0];
    let mut optimizer = SgdConfig::new().init();
    for _ in 0..3 {
        let gradients = GradientsParams::from_grads(loss(&adapted).backward(), &adapted);
        adapted = optimizer.step(1e-2, adapted, gradients);
    }
    assert!(values(loss(&adapted))[0] < first, "the factors take part in the output");
    assert_eq!(bases(&adapted), bases_before);
    let attention = &adapted.layers[1].attention;
    assert!(attention.query.weight.adapter().is_some() && attention.key.weight.adapter().is_none());
    let b = &attention.query.weight.adapter().expect("adapted").b;
    assert!(values(b.val()).iter().all(|&value| value != 0.0), "B starts at zero and trains");
}

#[test]
fn a_frozen_layer_gets_no_gradient_and_passes_it_on() {
    let mut encoder = config(PositionEmbeddingType::RelativeKey).init(&device());
    encoder.layers[1] = encoder.layers[1].clone().freeze();
    let input = hidden([2, 5]).cast(FloatDType::F32);
    let output = encoder.forward(input, None);
    let gradients = (output * weights([2, 5, H]).cast(FloatDType::F32)).sum().backward();
    let of = |layer: &BertLayer| self::gradients(layer, &gradients);
    assert!(of(&encoder.layers[0]).iter().all(|gradient| gradient.iter().any(|&value| value != 0.0)));
    assert!(of(&encoder.layers[1]).iter().all(Vec::is_empty));
}

#[test]
fn bad_input_is_an_error() {
    let encoder = encoder(PositionEmbeddingType::RelativeKey);
    let error = encoder.try_forward(hidden([2, 3]), Some(&PaddingMask::from_lengths(&[3], 3))).unwrap_err();
    assert!(matches!(error, Error::ShapeMismatch { input: "padding", .. }), "{error}");
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
        ("max_position_embeddings", relative.with_max_position_embeddings(0)),
    ] {
        let error = config.try_init(&Device::default()).unwrap_err();
        assert!(matches!(&error, Error::Config { field: found, .. } if *found == field), "{error}");
    }
    valid().with_max_position_embeddings(0).validate().unwrap();
}

#[test]
fn operators_and_their_references_give_the_same_layer() {
    let mask = PaddingMask::from_rows(&every_kind()).unwrap();
    let [batch, seq] = mask.dims();
    let run = || {
        let encoder = encoder(PositionEmbeddingType::Absolute);
        let loaded = BertEncoder { layers: encoder.layers.iter().map(filled).collect() };
        let output = loaded.forward(hidden([batch, seq]), Some(&mask));
        let found = (output.clone() * weights([batch, seq, H])).sum().backward();
        [vec![values(output)], gradients(&loaded, &found)].concat()
    };
    let fused = run();
    let reference = burn_bert::functional::on_reference_path(run);
    for (fused, reference) in fused.iter().zip(&reference) {
        assert_close(fused, reference, Tolerance { absolute: 1e-11, relative: 1e-11 });
    }
}

/// The layer with numbers that do not depend on the device's generator.
fn filled(layer: &BertLayer) -> BertLayer {
    struct Fill;
    impl burn::module::ModuleMapper for Fill {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|old| {
                let data = (0..old.shape().num_elements()).map(|i| (i as f64 * 0.37 + 1.0).sin()).collect();
                let data = TensorData::new::<f64, _>(data, old.shape());
                Tensor::from_data(data, (&old.device(), old.dtype())).require_grad()
            })
        }
    }
    layer.clone().map(&mut Fill)
}
