//! What is trained: a small classifier without dropout, on eight texts a step.

use crate::tolerance::all_values;
use anyhow::{Result, bail};
use burn::data::dataset::InMemDataset;
use burn::optim::ModuleOptimizer;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::prelude::*;
use burn::train::metric::LossMetric;
use burn::train::{ExecutionStrategy, Learner, MultiDeviceOptim, SupervisedTraining, TrainingStrategy};
use burn_bert::BertEmbeddingsConfig;
use burn_bert::model::{BertForSequenceClassification, BertForSequenceClassificationConfig, BertModelConfig};
use burn_bert::text::BertTokenizer;
use burn_bert::training::{
    Label, LabelledLoader, LabelledText, ProgressLines, Run, SequenceBatcher, Training,
};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const WORDS: [&str; 8] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"];
const TEXTS: usize = 8;

/// A model whose parameters are drawn, not merely planned, on this machine.
pub fn model() -> BertForSequenceClassification {
    let device = Device::flex().autodiff();
    device.seed(3);
    let embeddings = BertEmbeddingsConfig::new()
        .with_vocab_size(WORDS.len())
        .with_hidden_size(16)
        .with_max_position_embeddings(16)
        .with_hidden_dropout_prob(0.0);
    let bert = BertModelConfig::new(embeddings)
        .with_num_hidden_layers(2)
        .with_num_attention_heads(2)
        .with_intermediate_size(32)
        .with_attention_probs_dropout_prob(0.0);
    let model =
        BertForSequenceClassificationConfig::new(bert).with_classifier_dropout(Some(0.0)).init(&device);
    all_values(&model);
    model
}

/// Eight texts of several lengths, and so one step an epoch.
fn loader(dir: &Path, device: &Device) -> LabelledLoader<SequenceBatcher> {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("vocab.txt"), WORDS.join("\n") + "\n").unwrap();
    let text = |i: usize| LabelledText {
        text: ["good", "bad film", "good film film", "film bad bad film bad"][i % 4].into(),
        pair: None,
        label: Label::Class((i / 4 + i) % 2),
    };
    let batcher = SequenceBatcher::new(BertTokenizer::from_pretrained(dir).unwrap(), 2);
    LabelledLoader::new(InMemDataset::new((0..TEXTS).map(text).collect()), batcher, TEXTS, device).unwrap()
}

/// Trains for some epochs, of one step each, and returns the weights. A run that began goes on.
pub fn train(
    devices: &[Device],
    dir: &Path,
    epochs: usize,
    optimizer: ModuleOptimizer,
    rate: f64,
) -> Result<Vec<f64>> {
    let is_begun = dir.join("out/training/run.json").exists();
    let run =
        if is_begun { Run::resume(dir.join("out"), &rate) } else { Run::create(dir.join("out"), &rate) }?;
    run.begin(1.0, &[dir; 0])?;
    let loader = loader(&dir.join("tokenizer"), &devices[0]).starting_after(run.finished_epochs());
    let strategy = match devices {
        [device] => ExecutionStrategy::single(device.clone().autodiff()),
        devices => {
            let devices = devices.iter().map(|device| device.clone().autodiff()).collect();
            ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice)
        }
    };
    let model = Training::new(model());
    let training = SupervisedTraining::new(run.folder(), Arc::new(loader.clone()), Arc::new(loader))
        .metrics((LossMetric::new(),))
        .renderer(Box::new(ProgressLines::default()))
        .with_application_logger(None)
        .with_training_strategy(TrainingStrategy::Default(strategy))
        .num_epochs(epochs);
    let training = run.checkpointed(training, &model)?;
    // A training that lost a worker is abandoned in its thread, which would hold the run.
    drop(run);
    let schedule = ModuleLrScheduler::from(ConstantLr::new(rate));
    let result = training.launch(Learner::new(model, optimizer, schedule));
    if let Some(error) = result.error {
        bail!("training stopped: {error}");
    }
    Ok(all_values(&result.model.model))
}

/// Epochs whose checkpoint is whole.
pub fn finished(dir: &Path, rate: f64) -> usize {
    Run::resume(dir.join("out"), &rate).map_or(0, |run| run.finished_epochs())
}
