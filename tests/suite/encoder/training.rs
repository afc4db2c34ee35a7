//! Gradients, dropout, and what is frozen or adapted.

use super::{ABSOLUTE, SCHEMES, config, device, every_kind, hidden};
use crate::tolerance::values;
use burn::module::{Module, Param};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::encoder::BertEncoder;
use burn_bert::{Error, Family, PaddingMask};
use burn_gradcheck::GradCheck;

#[test]
fn the_gradient_passes_the_finite_difference_check_in_every_scheme() {
    for scheme in SCHEMES {
        let mask = PaddingMask::from_rows(&every_kind()[1..5]).unwrap();
        for padding in [None, Some(&mask)] {
            let encoder = config(scheme).init_encoder(&device()).unwrap();
            // Not random ones: where LayerNorm gets nearly equal numbers, differences are no measure.
            let report = GradCheck::new()
                .run_with_input(&filled(&encoder), hidden([4, 8]), |encoder, hidden, probe| {
                    probe.weighted_sum(encoder.forward(hidden, padding))
                })
                .unwrap();
            report.assert_passes();
            let [relative, layers, projection] = match scheme {
                (Family::Albert, _) => [1, 1, 2],
                (_, positions) => [usize::from(!positions.has_table()), 2, 0],
            };
            assert_eq!(report.parameters.len(), 1 + projection + layers * (16 + relative), "{report}");
        }
    }
}

#[test]
fn dropout_is_active_in_training_alone() {
    let mut dropped = config(ABSOLUTE).init_encoder(&device()).unwrap();
    dropped.set_dropout(0.5, 0.5).unwrap();
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
    undropped.set_dropout(0.0, 0.0).unwrap();
    for (hidden, attention) in [(1.0, 0.0), (0.0, f64::NAN), (-0.1, 0.0)] {
        assert!(matches!(undropped.set_dropout(hidden, attention), Err(Error::Config { .. })));
    }
    assert_eq!(twice(&undropped, &|| input().inner())[0], first);
}

/// The encoder with numbers that do not depend on the device's generator.
fn filled(encoder: &BertEncoder) -> BertEncoder {
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
    encoder.clone().map(&mut Fill)
}
