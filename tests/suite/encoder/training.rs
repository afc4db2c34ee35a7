//! Gradients, dropout, and what is frozen or adapted.

use super::{H, SCHEMES, config, device, encoder, every_kind, gradients, hidden, weights};
use crate::tolerance::{F32, Tolerance, assert_close, values};
use burn::module::{Lora, Module, Param, ParamGroup};
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::encoder::{BertEncoder, BertLayer};
use burn_bert::{PaddingMask, PositionEmbeddingType};
use burn_gradcheck::GradCheck;

#[test]
fn the_gradient_passes_the_finite_difference_check_in_every_scheme() {
    for scheme in SCHEMES {
        let mask = PaddingMask::from_rows(&every_kind()[1..5]).unwrap();
        for padding in [None, Some(&mask)] {
            let encoder = config(scheme).init(&device());
            // Not random ones: where LayerNorm gets nearly equal numbers, differences are no measure.
            let report = GradCheck::new()
                .run_with_input(
                    &BertEncoder { layers: encoder.layers.iter().map(filled).collect(), ..encoder.clone() },
                    hidden([4, 8]),
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
    let [first, second] = twice(&dropped.clone().freeze(), &input);
    assert_eq!(first, second, "a frozen layer drops nothing on a device that trains");
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
fn operators_and_their_references_give_the_same_layer() {
    let mask = PaddingMask::from_rows(&every_kind()).unwrap();
    let [batch, seq] = mask.dims();
    let run = || {
        let encoder = encoder(PositionEmbeddingType::Absolute);
        let loaded = BertEncoder { layers: encoder.layers.iter().map(filled).collect(), ..encoder.clone() };
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
