//! Schedules of the learning rate, and one for each layer.

use crate::prelude::*;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn_bert::optim::{LrSchedule, ScaledLr, layer_wise_decay};

const LAYERS: usize = 3;
const RATE: f64 = 0.01;
const DECAY: f64 = 0.5;

/// The power of the decay that a parameter should have.
fn power(path: &str) -> i32 {
    let (mut parts, layers) = (path.split('.'), LAYERS as i32);
    match (parts.any(|part| part == "layers"), parts.next()) {
        (true, Some(layer)) => layers - layer.parse::<i32>().unwrap(),
        _ if path.contains("embeddings") || path.contains("relative_attention_bias") => layers + 1,
        _ => 0,
    }
}

/// Each parameter has the rate of its layer; returns the powers of the decay that there are.
fn powers(model: &impl Module) -> Vec<i32> {
    let mut schedule = layer_wise_decay(ConstantLr::new(RATE).into(), LAYERS, DECAY).unwrap();
    let rates = schedule.step();
    let found = parameters(model, None).into_keys().map(|path| {
        let power = power(&path);
        assert_eq!(rates.lr_from_param(0.into(), Some(&path)), RATE * DECAY.powi(power), "{path}");
        power
    });
    let found: std::collections::BTreeSet<i32> = found.collect();
    found.into_iter().collect()
}

#[test]
fn every_layer_of_every_model_has_its_own_rate() {
    let (device, every) = (autodiff(), [0, 1, 2, 3, 4]);
    for positions in [PositionEmbeddingType::Absolute, PositionEmbeddingType::RelativeKey] {
        let mut bert = small_bert(12, 8).with_num_hidden_layers(LAYERS);
        bert.embeddings.position_embedding_type = positions;
        assert_eq!(powers(&bert.init(&device)), every, "with a pooler");
        let untied = BertForMaskedLmConfig::new(bert.clone()).with_tie_word_embeddings(false);
        assert_eq!(powers(&untied.init(&device)), every);
        let sentences = BertForSentenceEmbeddingConfig::new(bert.clone()).init(&device);
        assert_eq!(powers(&sentences), [1, 2, 3, 4], "there is no head");
        assert_eq!(powers(&BertForTokenClassificationConfig::new(bert.clone()).init(&device)), every);
        assert_eq!(powers(&BertForQuestionAnsweringConfig::new(bert.clone()).init(&device)), every);
        let layers = ParamGroup::from_regex(r"encoder\.layers\..*\.weight$").unwrap();
        let sequences = BertForSequenceClassificationConfig::new(bert).init(&device);
        let adapted = sequences.apply_lora(Lora::new(2, 4.0).set_param_group(layers));
        assert!(parameters(&adapted, None).len() > 60, "with adapters");
        assert_eq!(powers(&adapted), every);
    }
    let bert = |family| crate::families::config(family).with_num_hidden_layers(LAYERS);
    for family in [Family::Electra, Family::MpNet] {
        let model = BertForSequenceClassificationConfig::new(bert(family)).init(&device);
        let below = ["embeddings_projection", "relative_attention_bias"];
        let paths = parameters(&model, None);
        assert!(paths.keys().any(|path| below.iter().any(|part| path.contains(part))), "{family:?}");
        assert_eq!(powers(&model), every, "{family:?}");
    }
    assert_eq!(powers(&ElectraForPreTrainingConfig::new(bert(Family::Electra)).init(&device)), every);
}

#[test]
fn rates_follow_the_schedule_and_go_on_after_a_record() {
    let schedule = || layer_wise_decay(LrSchedule::Linear.with_warmup(0.8, 3, 10).unwrap(), 2, 0.5).unwrap();
    let rates = |schedule: &mut ModuleLrScheduler| {
        let rates = schedule.step();
        ["bert.pooler.dense.weight", "bert.encoder.layers.1.output.weight", "embeddings.layer_norm.gamma"]
            .map(|path| rates.lr_from_param(0.into(), Some(path)))
    };
    let mut whole = schedule();
    let mut plain = LrSchedule::Linear.with_warmup(0.8, 3, 10).unwrap();
    let mut resumed = schedule();
    for step in 0..10 {
        let expected = plain.step().base();
        let found = rates(&mut whole);
        for (found, factor) in found.into_iter().zip([1.0, 0.5, 0.125]) {
            assert!((found - expected * factor).abs() < 1e-15, "step {step}");
        }
        assert_eq!(rates(&mut resumed), found, "step {step}");
        resumed = schedule().load_record(resumed.to_record());
    }
}

#[test]
fn a_group_of_ones_own_counts_before_the_layers() {
    let all = ModuleLrScheduler::from(ConstantLr::new(RATE));
    let fast = ScaledLr::new(&all, 10.0).unwrap();
    let schedule = layer_wise_decay(all, LAYERS, DECAY).unwrap();
    let mut schedule = schedule.with_group(ParamGroup::from_predicate("layers.0."), fast);
    let rates = schedule.step();
    let rate = |path| rates.lr_from_param(0.into(), Some(path));
    assert_eq!(rate("bert.encoder.layers.0.output.weight"), 10.0 * RATE);
    assert_eq!(rate("bert.encoder.layers.2.output.weight"), DECAY * RATE);
}

#[test]
fn the_rate_grows_to_its_peak_and_falls_to_zero() {
    for (peak, warmup, total) in [(0.8, 3, 7), (1.0, 0, 4), (5e-5, 1, 2)] {
        let mut schedule = LrSchedule::Linear.with_warmup(peak, warmup, total).unwrap();
        for step in 0..total + 3 {
            let expected = if step <= warmup {
                peak * (step + 1) as f64 / (warmup + 1) as f64
            } else {
                peak * total.saturating_sub(step) as f64 / (total - warmup) as f64
            };
            let found = schedule.step().base();
            assert!((found - expected).abs() < 1e-12, "step {step} of {total}: {found}, not {expected}");
        }
    }
}

#[test]
fn a_decay_factor_or_schedule_that_cannot_be_is_an_error_that_names_the_argument() {
    fn refuses<T>(result: burn_bert::Result<T>, argument: &str) {
        fails!(result, Error::Data { what, .. } if what == argument);
    }
    let all = || ModuleLrScheduler::from(ConstantLr::new(RATE));
    for decay in [0.0, -0.5, 1.1, f64::NAN] {
        refuses(layer_wise_decay(all(), LAYERS, decay), "decay");
    }
    layer_wise_decay(all(), LAYERS, 1.0).unwrap();
    for factor in [-1.0, f64::NAN, f64::INFINITY] {
        refuses(ScaledLr::new(&all(), factor), "factor");
    }
    for peak in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
        refuses(LrSchedule::Linear.with_warmup(peak, 1, 2), "peak");
    }
    refuses(LrSchedule::Linear.with_warmup(1.0, 2, 2), "warmup");
    refuses(LrSchedule::Linear.with_warmup(1.0, 0, 0), "warmup");
}
