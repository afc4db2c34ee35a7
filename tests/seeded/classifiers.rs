//! The classifiers in Burn's trainer: they learn, with everything, with frozen embeddings and with adapters.

use crate::tolerance::parameters;
use crate::turn;
use burn::data::dataloader::Progress;
use burn::data::dataset::InMemDataset;
use burn::module::{Lora, Module, ParamGroup};
use burn::optim::SgdConfig;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::prelude::*;
use burn::train::metric::{AccuracyMetric, Adaptor, LossMetric, Metric, MetricMetadata, Numeric};
use burn::train::renderer::CliMetricsRenderer;
use burn::train::{InferenceStep, Learner, SupervisedTraining, TrainStep};
use burn_bert::BertEmbeddingsConfig;
use burn_bert::data::{
    Batches, EpochLoader, Label, LabelledText, LabelledTokens, SequenceBatcher, TokenBatcher, TryBatcher,
};
use burn_bert::metrics::ConfusionMetric;
use burn_bert::model::{
    BertForSequenceClassification, BertForSequenceClassificationConfig, BertForTokenClassification,
    BertForTokenClassificationConfig, BertModelConfig, PretrainedModel, SequenceClassificationBatch,
};
use burn_bert::optim::{AdamWConfig, adamw};
use burn_bert::text::BertTokenizer;
use burn_bert::training::{ClassificationItem, Training};
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn tokenizer(dir: &Path) -> BertTokenizer {
    let words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "the", "film", "was"];
    fs::write(dir.join("vocab.txt"), words.join("\n") + "\n").unwrap();
    BertTokenizer::from_pretrained(dir).unwrap()
}

fn bert() -> BertModelConfig {
    let embeddings = BertEmbeddingsConfig::new()
        .with_vocab_size(10)
        .with_hidden_size(16)
        .with_max_position_embeddings(16)
        .with_hidden_dropout_prob(0.1);
    BertModelConfig::new(embeddings)
        .with_num_hidden_layers(1)
        .with_num_attention_heads(2)
        .with_intermediate_size(32)
}

fn classifier(device: &Device) -> BertForSequenceClassification {
    device.seed(3);
    let model = BertForSequenceClassificationConfig::new(bert()).init(device);
    parameters(&model, None); // draws the parameters
    model
}

/// Reviews, of which one word tells the label.
fn reviews() -> Vec<LabelledText> {
    let review = |i: usize| LabelledText {
        text: ["the film was good", "bad film", "good", "the film was the film bad"][i % 4].into(),
        pair: None,
        label: Label::Class(usize::from(i % 4 % 2 == 1)),
    };
    (0..48).map(review).collect()
}

fn loader(dir: &Path) -> EpochLoader<SequenceBatcher> {
    let batcher = SequenceBatcher::new(tokenizer(dir), 2);
    EpochLoader::new(Batches::new(InMemDataset::new(reviews()), batcher), 8, &Device::default()).unwrap()
}

/// Some epochs of Burn's trainer.
fn trained(model: BertForSequenceClassification, epochs: usize) -> BertForSequenceClassification {
    let dir = tempfile::tempdir().unwrap();
    let train = Arc::new(loader(dir.path()).with_shuffling(1));
    let training = SupervisedTraining::new(dir.path().join("run"), train, Arc::new(loader(dir.path())))
        .metrics((
            LossMetric::new(),
            AccuracyMetric::new(),
            ConfusionMetric::macro_f1(),
            ConfusionMetric::matthews(),
        ))
        .renderer(Box::new(CliMetricsRenderer::new()))
        .with_application_logger(None)
        .num_epochs(epochs);
    let optimizer = adamw(&AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01)).unwrap();
    let schedule = ModuleLrScheduler::from(ConstantLr::new(1e-2));
    let result = training.launch(Learner::new(Training::new(model), optimizer, schedule));
    assert!(result.error.is_none(), "{:?}", result.error);
    result.model.model
}

/// The share of reviews that it gets right.
fn accuracy(model: &BertForSequenceClassification) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let batcher = SequenceBatcher::new(tokenizer(dir.path()), 2);
    let batch: SequenceClassificationBatch = batcher.try_batch(reviews(), &Device::default()).unwrap();
    let classes = batch.classes().unwrap();
    let right = model.clone().valid().forward(&batch).logits.argmax(1).squeeze_dim::<1>(1).equal(classes);
    right.int().sum().into_scalar::<i32>() as f64 / 48.0
}

#[test]
fn a_classifier_learns_in_burns_trainer() {
    let _turn = turn();
    let model = trained(classifier(&Device::default().autodiff()), 5);
    assert!(accuracy(&model) > 0.95, "{}", accuracy(&model));
}

#[test]
fn frozen_embeddings_keep_their_values() {
    let _turn = turn();
    let model = classifier(&Device::default().autodiff());
    let before = parameters(&model, None);
    let embeddings = ParamGroup::from_regex(r"^bert\.embeddings\.").unwrap();
    let after = parameters(&trained(model.set_require_grad_group(embeddings, false), 5), None);
    for (path, values) in &before {
        let is_same = after[path] == *values;
        assert_eq!(is_same, path.starts_with("bert.embeddings."), "{path}");
    }
}

#[test]
fn adapters_are_trained_merged_and_saved() {
    let _turn = turn();
    let model = classifier(&Device::default().autodiff());
    let before = parameters(&model, None);
    let group = |pattern: &str| ParamGroup::from_regex(pattern).unwrap();
    let layers = group(r"encoder\.layers\..*\.weight$");
    let model = model
        .apply_lora(Lora::new(4, 8.0).set_param_group(layers))
        .set_require_grad_group(group(r"^(bert\.pooler|classifier)\."), true);
    let trained = trained(model, 25);
    assert!(accuracy(&trained) > 0.95, "{}", accuracy(&trained));

    let merged = trained.clone().materialize();
    let after = parameters(&merged, None);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "no adapter is left");
    for (path, values) in &before {
        let is_adapted = path.contains("encoder") && path.ends_with("weight");
        let is_head = path.starts_with("bert.pooler") || path.starts_with("classifier");
        assert_eq!(after[path] != *values, is_adapted || is_head, "{path}");
    }
    let dir = tempfile::tempdir().unwrap();
    merged.save_pretrained(dir.path()).unwrap();
    let (read, report) =
        BertForSequenceClassification::from_pretrained(dir.path(), &Device::default()).unwrap();
    assert!(report.is_complete(), "{report}");
    assert_eq!(parameters(&read, None), after);
    assert_eq!(accuracy(&read), accuracy(&trained));
}

#[test]
fn a_tagger_steps_and_a_batch_without_tags_counts_in_no_metric() {
    let _turn = turn();
    let device = Device::default().autodiff();
    device.seed(3);
    let model: BertForTokenClassification =
        BertForTokenClassificationConfig::new(bert()).with_num_labels(2).init(&device);
    let dir = tempfile::tempdir().unwrap();
    let batch = |tokens: &[&str]| {
        let tokens: Vec<String> = tokens.iter().map(ToString::to_string).collect();
        let tags = tokens.iter().map(|token| usize::from(token == "good")).collect();
        TokenBatcher::new(tokenizer(dir.path()))
            .try_batch(vec![LabelledTokens { tokens, tags }], &device)
            .unwrap()
    };
    let loss = |model: &BertForTokenClassification| {
        InferenceStep::step(model, batch(&["the", "film", "was", "good"])).loss.mean().into_scalar::<f32>()
    };
    let before = loss(&model.valid());
    let mut training = Training::new(model);
    let (mut optimizer, rate) = (SgdConfig::new().init(), ConstantLr::new(0.5));
    let mut schedule = ModuleLrScheduler::from(rate);
    for _ in 0..20 {
        let output = TrainStep::step(&training, batch(&["the", "film", "was", "good"]));
        let item = &output.item;
        assert_eq!((item.logits.dims(), item.classes.as_ref().unwrap().dims()), ([4, 2], [4]));
        training = training.optimize(&mut optimizer, schedule.step(), output.grads);
    }
    let after = loss(&training.model.valid());
    assert!(after < before / 2.0, "{before} → {after}");
    let nothing = InferenceStep::step(&training.model, batch(&[]));
    assert_eq!((nothing.logits.dims(), nothing.sentences.len()), ([0, 2], 0));

    let metadata = || MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
    let (mut accuracy, mut loss) = (AccuracyMetric::new(), LossMetric::new());
    let (mut f1, mut matthews) = (ConfusionMetric::macro_f1(), ConfusionMetric::matthews());
    let mut update = |output: &ClassificationItem| {
        accuracy.update(&output.adapt(), &metadata()).unwrap();
        loss.update(&output.adapt(), &metadata()).unwrap();
        f1.update(&output.adapt(), &metadata()).unwrap();
        matthews.update(&output.adapt(), &metadata()).unwrap();
        [accuracy.final_value(), loss.final_value(), f1.final_value(), matthews.final_value()]
            .map(|value| value.current())
    };
    let tags = batch(&["the", "film", "was", "good"]);
    let alone = update(&InferenceStep::step(&training.model.valid(), tags));
    assert!(alone.iter().all(|value| value.is_finite()), "{alone:?}");
    assert_eq!(update(&nothing), alone);
}
