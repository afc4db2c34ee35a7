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
