//! A learning rate for each layer: how far one step of gradient descent moves every parameter of every model.

use crate::small_bert::small_bert;
use burn::module::{Lora, Module, ModuleVisitor, Param, ParamGroup};
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::{FloatDType, Gradients};
use burn_bert::model::{
    BertForMaskedLmConfig, BertForSentenceEmbeddingConfig, BertForSequenceClassificationConfig,
    BertForTokenClassificationConfig, BertModelConfig, MaskedLmBatch, SentencePairBatch,
    SequenceClassificationBatch, TokenClassificationBatch,
};
use burn_bert::optim::{ScaledLr, layer_wise_decay, linear_warmup_decay};
use burn_bert::{BertEmbeddingsInput, Error, PositionEmbeddingType, cast_module};
use std::collections::BTreeMap;

const LAYERS: usize = 3;
const RATE: f64 = 0.01;
const DECAY: f64 = 0.5;

fn device() -> Device {
    Device::default().autodiff()
}

fn bert(positions: PositionEmbeddingType) -> BertModelConfig {
    let mut bert = small_bert(12, 8).with_num_hidden_layers(LAYERS);
    bert.embeddings.position_embedding_type = positions;
    bert
}

fn input() -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(&[[2, 7, 4, 3], [2, 8, 5, 3]], &device()).unwrap()
}

/// What a parameter's values are, and its gradient, by its path.
type Parameters = BTreeMap<String, (Vec<f64>, Option<Vec<f64>>)>;

fn parameters(module: &impl Module, gradients: Option<&Gradients>) -> Parameters {
    struct Collect<'a>(Vec<String>, Parameters, Option<&'a Gradients>);
    impl ModuleVisitor for Collect<'_> {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.0.push(name.to_string());
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.0.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let list = |tensor: Tensor<D>| tensor.into_data().iter::<f64>().collect();
            let gradient = self.2.and_then(|gradients| {
                param.val().grad(gradients).map(|gradient| gradient.into_data().iter::<f64>().collect())
            });
            self.1.insert(self.0.join("."), (list(param.val()), gradient));
        }
    }
    let mut collect = Collect(Vec::new(), BTreeMap::new(), gradients);
    module.visit(&mut collect);
    collect.1
}

/// The rate that a parameter should have.
fn expected_rate(path: &str) -> f64 {
    let mut parts = path.split('.');
    let power = match (parts.any(|part| part == "layers"), parts.next()) {
        (true, Some(layer)) => LAYERS - layer.parse::<usize>().unwrap(),
        _ if path.contains("embeddings.") => LAYERS + 1,
        _ => 0,
    };
    RATE * DECAY.powi(power as i32)
}

/// Takes a step and returns how many parameters moved at each power of the decay.
fn assert_moves<M: Module>(what: &str, model: M, loss: impl Fn(&M) -> Tensor<1>) -> BTreeMap<i32, usize> {
    let model = cast_module(model, FloatDType::F64).unwrap();
    let gradients = loss(&model).backward();
    let before = parameters(&model, Some(&gradients));
    let gradients = GradientsParams::from_grads(gradients, &model);
    let mut schedule = layer_wise_decay(ConstantLr::new(RATE).into(), LAYERS, DECAY).unwrap();
    let model = SgdConfig::new().init().step(schedule.step(), model, gradients);
    let after = parameters(&model, None);
    let mut moved = BTreeMap::new();
    for (path, (values, gradient)) in before {
        let Some(gradient) = gradient else { continue };
        let rate = expected_rate(&path);
        for ((before, after), gradient) in values.iter().zip(&after[&path].0).zip(&gradient) {
            let distance = before - after - rate * gradient;
            assert!(distance.abs() < 1e-15, "{what}, {path}: {distance:e} from a rate of {rate}");
        }
        if gradient.iter().any(|gradient| gradient.abs() > 1e-9) {
            *moved.entry((rate / RATE).log(DECAY).round() as i32).or_default() += 1;
        }
    }
    moved
}

#[test]
fn every_layer_of_every_model_moves_at_its_own_rate() {
    for positions in [PositionEmbeddingType::Absolute, PositionEmbeddingType::RelativeKey] {
        let bert = bert(positions);
        let moved = assert_moves("BertModel", bert.init(&device()), |model| {
            model.forward(&input(), None).pooler_output.unwrap().square().sum()
        });
        assert_eq!(moved.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(moved[&0], 2, "the pooler");

        let batch = MaskedLmBatch::new(input(), None, &[[0, 1], [1, 2]], &[5, 9]).unwrap();
        for tied in [true, false] {
            let config = BertForMaskedLmConfig::new(bert.clone()).with_tie_word_embeddings(tied);
            let moved = assert_moves("masked LM", config.init(&device()), |model| model.forward(&batch).loss);
            assert_eq!(moved[&0], if tied { 5 } else { 6 });
        }
        let batch = SequenceClassificationBatch::single_label(input(), None, &[1, 0]).unwrap();
        let config = BertForSequenceClassificationConfig::new(bert.clone());
        let moved = assert_moves("sequences", config.init(&device()), |model| model.forward(&batch).loss);
        assert_eq!(moved[&0], 4);

        let batch = TokenClassificationBatch::new(input(), None, &[[0, 1, 1, 0]; 2]).unwrap();
        let config = BertForTokenClassificationConfig::new(bert.clone());
        let moved = assert_moves("tokens", config.init(&device()), |model| model.forward(&batch).loss);
        assert_eq!(moved[&0], 2);

        let batch = SentencePairBatch::new((input(), None), (input(), None)).unwrap();
        let config = BertForSentenceEmbeddingConfig::new(bert);
        let moved = assert_moves("sentences", config.init(&device()), |model| model.forward(&batch).loss);
        assert_eq!(moved.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4], "there is no head");
    }
}

#[test]
fn adapters_move_at_the_rate_of_their_layer() {
    let layers = ParamGroup::from_regex(r"encoder\.layers\..*\.weight$").unwrap();
    let model =
        BertForSequenceClassificationConfig::new(bert(PositionEmbeddingType::Absolute)).init(&device());
    let model = model.apply_lora(Lora::new(2, 4.0).set_param_group(layers));
    let batch = SequenceClassificationBatch::single_label(input(), None, &[1, 0]).unwrap();
    let moved = assert_moves("LoRA", model, |model| model.forward(&batch).loss);
    assert_eq!(moved.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn rates_follow_the_schedule_and_go_on_after_a_record() {
    let schedule = || layer_wise_decay(linear_warmup_decay(0.8, 3, 10).unwrap(), 2, 0.5).unwrap();
    let rates = |schedule: &mut ModuleLrScheduler| {
        let rates = schedule.step();
        ["bert.pooler.dense.weight", "bert.encoder.layers.1.output.weight", "embeddings.layer_norm.gamma"]
            .map(|path| rates.lr_from_param(0.into(), Some(path)))
    };
    let mut whole = schedule();
    let mut plain = linear_warmup_decay(0.8, 3, 10).unwrap();
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
fn a_decay_or_factor_out_of_range_is_an_error() {
    let all = || ModuleLrScheduler::from(ConstantLr::new(RATE));
    for decay in [0.0, -0.5, 1.1, f64::NAN] {
        let error = layer_wise_decay(all(), LAYERS, decay).err().unwrap();
        assert!(matches!(&error, Error::Data { what, .. } if what == "decay"), "{error}");
    }
    for factor in [-1.0, f64::NAN, f64::INFINITY] {
        let error = ScaledLr::new(&all(), factor).err().unwrap();
        assert!(matches!(&error, Error::Data { what, .. } if what == "factor"), "{error}");
    }
    assert!(layer_wise_decay(all(), LAYERS, 1.0).is_ok());
}
