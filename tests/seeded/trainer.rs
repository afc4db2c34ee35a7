//! Burn's trainer with `BertForMaskedLm`: it learns, clips, accumulates, and goes on where it was stopped.

use crate::turn;
use burn::data::dataloader::DataLoader;
use burn::module::{ModuleVisitor, Param};
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::optim::{AdamWConfig, GradientsAccumulator, SgdConfig};
use burn::prelude::*;
use burn::train::metric::{AccuracyMetric, LossMetric, PerplexityMetric};
use burn::train::renderer::CliMetricsRenderer;
use burn::train::{
    ExecutionStrategy, Learner, LearningResult, MultiDeviceOptim, SupervisedTraining, TrainStep,
    TrainingStrategy,
};
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig};
use burn_bert::optim::{adamw, linear_warmup_decay};
use burn_bert::text::BertTokenizer;
use burn_bert::training::{
    Corpus, MaskedLmCollator, MaskedLmCollatorConfig, MaskedLmExample, MaskedLmTraining, TrainingLoader,
    ValidationLoader,
};
use burn_bert::{BertEmbeddingsConfig, Error};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const WORDS: [&str; 6] = ["the", "cat", "sat", "on", "a", "mat"];

/// A folder with a vocabulary of eleven and a text of 1,500 words.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let vocabulary = format!("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n{}\n", WORDS.join("\n"));
    fs::write(dir.path().join("vocab.txt"), vocabulary).unwrap();
    fs::write(dir.path().join("text"), format!("{}\n", WORDS.join(" ")).repeat(250)).unwrap();
    dir
}

fn tokenizer(dir: &Path) -> BertTokenizer {
    BertTokenizer::from_pretrained(dir).unwrap()
}

fn corpus(dir: &Path, seq_len: usize) -> Corpus {
    Corpus::open(dir.join("text"), tokenizer(dir), seq_len).unwrap()
}

fn collator(dir: &Path) -> MaskedLmCollator {
    MaskedLmCollatorConfig::for_tokenizer(&tokenizer(dir)).init()
}

/// A model whose parameters are drawn, not merely planned.
fn model(device: &Device) -> BertForMaskedLm {
    device.seed(5);
    let embeddings = BertEmbeddingsConfig::new()
        .with_vocab_size(11)
        .with_hidden_size(16)
        .with_max_position_embeddings(16)
        .with_hidden_dropout_prob(0.1);
    let model = BertForMaskedLmConfig::new(embeddings)
        .with_num_hidden_layers(1)
        .with_num_attention_heads(2)
        .with_intermediate_size(32)
        .init(device);
    values(&model);
    model
}

/// The same without dropout.
fn undropped() -> MaskedLmTraining {
    let mut model = model(&Device::default().autodiff());
    model.embeddings.dropout.prob = 0.0;
    for layer in &mut model.encoder.layers {
        layer.dropout.prob = 0.0;
        layer.attention.dropout.prob = 0.0;
    }
    MaskedLmTraining::new(model)
}

/// Values of a module, in the order of its fields.
fn values(module: &impl Module) -> Vec<f64> {
    struct Collect(Vec<f64>);
    impl ModuleVisitor for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(param.val().into_data().iter::<f64>());
        }
    }
    let mut collect = Collect(Vec::new());
    module.visit(&mut collect);
    collect.0
}

/// Trains from the end of epoch `from` to that of epoch `to`, of ten steps each, logs in `dir`/run.
fn train(dir: &Path, from: usize, to: usize) -> LearningResult<MaskedLmTraining> {
    train_by(dir, from, to, |training| training.grads_accumulation(2))
}

/// Trains with two batches a step, which `two` provides for.
fn train_by(
    dir: &Path,
    from: usize,
    to: usize,
    two: impl FnOnce(SupervisedTraining<MaskedLmTraining>) -> SupervisedTraining<MaskedLmTraining>,
) -> LearningResult<MaskedLmTraining> {
    let device = Device::default();
    let corpus = corpus(dir, 14);
    let valid = ValidationLoader::new(corpus.held_out(8).unwrap(), collator(dir), 4, 1, &device).unwrap();
    let train = TrainingLoader::new(corpus, collator(dir), 4, 20, 7, &device).unwrap().starting_after(from);
    let optimizer = adamw(&AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01));
    let training = SupervisedTraining::new(dir.join("run"), Arc::new(train), Arc::new(valid))
        .metrics((LossMetric::new(), AccuracyMetric::new(), PerplexityMetric::new()))
        .renderer(Box::new(CliMetricsRenderer::new()))
        .with_application_logger(None)
        .with_default_checkpointers()
        .num_epochs(to);
    let training = two(training);
    let training = if from > 0 { training.checkpoint(from) } else { training };
    let model = MaskedLmTraining::new(model(&device.autodiff())).with_accumulation(2);
    training.launch(Learner::new(model, optimizer, linear_warmup_decay(1e-2, 3, 30).unwrap()))
}

fn held_out_loss(model: &BertForMaskedLm, dir: &Path) -> f64 {
    let device = Device::default();
    let held_out = corpus(dir, 14).held_out(8).unwrap();
    let batch = collator(dir).collate(&held_out, 3, &device).unwrap();
    model.clone().valid().forward(&batch).loss.into_scalar::<f64>()
}

#[test]
fn burns_learner_trains_and_a_run_that_was_stopped_goes_on_as_if_it_was_not() {
    let _turn = turn();
    let [whole, stopped] = [folder(), folder()];
    let result = train(whole.path(), 0, 3);
    assert!(result.error.is_none());
    let before = held_out_loss(&model(&Device::default().autodiff()), whole.path());
    let after = held_out_loss(&result.model.model, whole.path());
    println!("held-out loss {before:.3} before, {after:.3} after 30 steps");
    assert!(after < before - 0.5, "{before} → {after}");

    train(stopped.path(), 0, 1);
    let resumed = train(stopped.path(), 1, 3);
    assert!(values(&resumed.model) == values(&result.model), "bit for bit, with dropout on");
}

/// The same device twice: Burn makes a worker, a loader and a copy of the model for each.
fn on_two_devices(
    training: SupervisedTraining<MaskedLmTraining>,
    optim: MultiDeviceOptim,
) -> SupervisedTraining<MaskedLmTraining> {
    let strategy = ExecutionStrategy::multi(vec![Device::default().autodiff(); 2], optim);
    training.with_training_strategy(TrainingStrategy::Default(strategy))
}

#[test]
fn two_devices_share_a_training() {
    let _turn = turn();
    for optim in [MultiDeviceOptim::OptimMainDevice, MultiDeviceOptim::OptimSharded] {
        let dir = folder();
        let result = train_by(dir.path(), 0, 3, |training| on_two_devices(training, optim));
        assert!(result.error.is_none(), "{:?}", result.error);
        let before = held_out_loss(&model(&Device::default().autodiff()), dir.path());
        let after = held_out_loss(&result.model.model, dir.path());
        println!("{optim:?}: held-out loss {before:.3} before, {after:.3} after 30 steps");
        assert!(after < before - 0.5, "{before} → {after}");
    }
}

/// Three steps of SGD, of two batches each.
fn weights_after_sgd(
    max_grad_norm: f64,
    two: impl FnOnce(SupervisedTraining<MaskedLmTraining>) -> SupervisedTraining<MaskedLmTraining>,
) -> Vec<f64> {
    let dir = folder();
    let device = Device::default();
    let corpus = corpus(dir.path(), 14);
    let valid = corpus.held_out(8).unwrap();
    let valid = ValidationLoader::new(valid, collator(dir.path()), 4, 1, &device).unwrap();
    let train = TrainingLoader::new(corpus, collator(dir.path()), 4, 2, 7, &device).unwrap();
    let training = SupervisedTraining::new(dir.path().join("run"), Arc::new(train), Arc::new(valid))
        .renderer(Box::new(CliMetricsRenderer::new()))
        .with_application_logger(None)
        .num_epochs(3);
    let model = undropped().with_accumulation(2).with_max_grad_norm(max_grad_norm);
    let learner = Learner::new(model, SgdConfig::new().init(), ModuleLrScheduler::from(ConstantLr::new(0.1)));
    values(&two(training).launch(learner).model)
}

#[test]
fn two_devices_take_the_steps_that_one_takes_with_twice_the_batches() {
    let _turn = turn();
    let before = values(&undropped());
    // Clipping forgets whether gradients were added or averaged; without it that shows.
    for (max_grad_norm, moves) in [(0.5, 0.1..0.150001), (f64::INFINITY, 0.16..f64::INFINITY)] {
        let one = weights_after_sgd(max_grad_norm, |training| training.grads_accumulation(2));
        let moved: Vec<_> = before.iter().zip(&one).map(|(before, after)| after - before).collect();
        assert!(moves.contains(&norm(&moved)), "a norm of {max_grad_norm}: moved by {}", norm(&moved));
        for optim in [MultiDeviceOptim::OptimMainDevice, MultiDeviceOptim::OptimSharded] {
            let two = weights_after_sgd(max_grad_norm, |training| on_two_devices(training, optim));
            let difference = one.iter().zip(&two).map(|(one, two)| (one - two).abs()).fold(0.0, f64::max);
            assert!(difference < 1e-6, "{optim:?}, a norm of {max_grad_norm}: {difference:e}");
        }
    }
}

#[test]
fn a_batch_that_hides_nothing_trains_nothing() {
    let _turn = turn();
    let device = Device::default().autodiff();
    let model = model(&device);
    let collator = MaskedLmCollatorConfig::new(11, 4, vec![0, 1, 2, 3, 4]).with_mlm_probability(0.0).init();
    let batch = collator.collate(&[MaskedLmExample::new(vec![2, 5, 6, 3])], 0, &device).unwrap();
    let output = TrainStep::step(&model, batch);
    assert_eq!(output.item.loss.clone().into_scalar::<f32>(), 0.0);
    assert_eq!((output.item.output.dims(), output.item.targets.dims()), ([1, 11], [1]));
    let words = output.grads.get::<2>(model.embeddings.word_embeddings.weight.id).unwrap();
    assert_eq!(words.abs().sum().into_scalar::<f32>(), 0.0);
}

/// One step of SGD at a rate of 1 is the gradient that the optimiser was given.
fn step_of(model: MaskedLmTraining, batches: usize) -> Vec<f64> {
    let dir = folder();
    let device = Device::default().autodiff();
    let loader = TrainingLoader::new(corpus(dir.path(), 14), collator(dir.path()), 4, 4, 1, &device).unwrap();
    let mut accumulator = GradientsAccumulator::new();
    for batch in loader.iter().take(batches) {
        accumulator.accumulate(&model, TrainStep::step(&model, batch.unwrap()).grads);
    }
    let before = values(&model);
    let mut schedule = ModuleLrScheduler::from(ConstantLr::new(1.0));
    let after = model.optimize(&mut SgdConfig::new().init(), schedule.step(), accumulator.grads());
    before.iter().zip(values(&after)).map(|(before, after)| before - after).collect()
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[test]
fn accumulated_gradients_are_averaged_and_clipped_by_their_common_norm() {
    let _turn = turn();
    let unclipped = || undropped().with_max_grad_norm(f64::INFINITY);
    let summed = step_of(unclipped(), 3);
    let averaged = step_of(unclipped().with_accumulation(3), 3);
    assert!(norm(&summed) > 0.1);
    for (sum, mean) in summed.iter().zip(&averaged) {
        assert!((sum / 3.0 - mean).abs() < 1e-6, "{sum} / 3 is not {mean}");
    }
    let clipped = step_of(undropped().with_accumulation(3).with_max_grad_norm(0.01), 3);
    assert!((norm(&clipped) - 0.01).abs() < 1e-5, "{}", norm(&clipped));
    let factor = 0.01 / norm(&averaged);
    for (mean, clipped) in averaged.iter().zip(&clipped) {
        assert!((mean * factor - clipped).abs() < 1e-6, "all by one factor");
    }
}

#[test]
fn windows_hold_the_whole_text_once_a_pass_but_for_those_held_out() {
    let dir = folder();
    let corpus = corpus(dir.path(), 14);
    // 1,500 words, twelve a window: 125 windows, of which 0, 20, … 120 are held out.
    let held_out = corpus.held_out(100).unwrap();
    assert_eq!(held_out.len(), 7);
    assert_eq!(held_out[0].input_ids(), [2, 5, 6, 7, 8, 9, 10, 5, 6, 7, 8, 9, 10, 3]);
    assert!(corpus.held_out(0).unwrap().is_empty());

    let numbered: String =
        (0..125).map(|i| format!("{} {}\n", "a ".repeat(i % 12), "mat ".repeat(12))).collect();
    fs::write(dir.path().join("text"), numbered).unwrap();
    let pass = |seed: u64| corpus.training(seed).take(300).collect::<Result<Vec<_>, _>>().unwrap();
    let ids = |windows: &[MaskedLmExample]| {
        let mut ids: Vec<Vec<u32>> = windows.iter().map(|window| window.input_ids().to_vec()).collect();
        ids.sort();
        ids
    };
    assert!(pass(1) == pass(1));
    assert!(pass(1) != pass(2));
    // 2,170 words are 181 windows: 10 are held out, and each pass gives the other 171 in an order of its own.
    let (first, second) = (pass(1), pass(2));
    assert!(ids(&first[..171]) == ids(&second[..171]), "the same windows");
    assert!(first[..129] != first[171..], "in another order");

    // Fewer than there are come from all over the file, the same at every call.
    let all = corpus.held_out(10).unwrap();
    assert_eq!(all.len(), 10);
    assert!(all.iter().all(|window| !first[..171].contains(window)), "never trained on");
    let some = corpus.held_out(3).unwrap();
    let places: Vec<_> =
        some.iter().filter_map(|window| all.iter().position(|other| other == window)).collect();
    assert!(places.len() == 3 && places.iter().any(|&place| place > 4), "{places:?}");
    assert!(some == corpus.held_out(3).unwrap());
}

#[test]
fn texts_that_cannot_be_trained_on_are_errors_that_say_why() {
    let dir = folder();
    let path = dir.path().join("text");
    let open = |seq_len| Corpus::open(&path, tokenizer(dir.path()).with_model_max_length(16), seq_len);
    for seq_len in [2, 17] {
        assert!(matches!(open(seq_len), Err(Error::Config { field: "seq_len", .. })));
    }
    fs::write(&path, "the cat").unwrap();
    let message = open(14).unwrap().held_out(4).unwrap_err().to_string();
    assert!(message.contains("one window"), "{message}");
    fs::write(&path, "\n \n").unwrap();
    assert!(matches!(open(14), Err(Error::NoText { .. })));
    fs::write(&path, [b"the cat sat\n".repeat(100).as_slice(), b"\xff\n"].concat()).unwrap();
    let error = open(14).unwrap().training(1).find_map(Result::err).unwrap();
    assert!(matches!(error, Error::NotUtf8 { line: 101, .. }), "{error}");
    let error = open(14).unwrap().held_out(1).unwrap_err();
    assert!(matches!(error, Error::NotUtf8 { line: 101, .. }), "before anything is trained: {error}");

    let device = Device::default();
    fs::write(&path, "the cat sat on a mat\n".repeat(100)).unwrap();
    let loader = |batch_size, batches| {
        TrainingLoader::new(open(14).unwrap(), collator(dir.path()), batch_size, batches, 1, &device).err()
    };
    assert!(matches!(loader(0, 1), Some(Error::Config { field: "batch_size", .. })));
    assert!(matches!(loader(1, 0), Some(Error::Config { field: "batches_per_epoch", .. })));
    let empty = ValidationLoader::new(Vec::new(), collator(dir.path()), 1, 1, &device).err();
    assert!(matches!(empty, Some(Error::Empty { .. })));
}

#[test]
fn devices_that_share_an_epoch_get_all_of_its_windows_between_them() {
    let _turn = turn();
    let dir = folder();
    let device = Device::default();
    let text: String = (0..3000).map(|i: usize| format!("{} ", WORDS[i * i % 7 % 6])).collect();
    fs::write(dir.path().join("text"), text).unwrap();
    let collator =
        MaskedLmCollatorConfig::for_tokenizer(&tokenizer(dir.path())).with_mlm_probability(0.0).init();
    let loader = TrainingLoader::new(corpus(dir.path(), 14), collator, 4, 6, 1, &device).unwrap();
    let ids = |loader: &dyn DataLoader<burn_bert::model::MaskedLmBatch>| {
        let batches = loader.iter().map(|batch| batch.unwrap().input.input_ids().unwrap().into_data());
        batches.flat_map(|ids| ids.iter::<i64>().collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let halves = [loader.slice(0, 12), loader.slice(12, 24)];
    for _ in 0..2 {
        let whole = ids(&loader);
        assert_eq!(whole.len(), 24 * 14);
        assert_eq!(halves.each_ref().map(|half| ids(half.as_ref())).concat(), whole);
    }
}
