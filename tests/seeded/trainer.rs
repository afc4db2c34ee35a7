//! Burn's trainer with `BertForMaskedLm`: it learns, clips, accumulates, and goes on where it was stopped.

use crate::checkpoint::{collator, first_windows, folder, training_loader};
use crate::prelude::*;
use burn::optim::{GradientsAccumulator, SgdConfig};
use burn::tensor::DType;
use burn::train::metric::{AccuracyMetric, LossMetric, PerplexityMetric};
use burn::train::renderer::CliMetricsRenderer;
use burn::train::{
    ExecutionStrategy, Learner, LearningResult, MultiDeviceOptim, SupervisedTraining, TrainingStrategy,
};
use burn_bert::functional::autocast;
use std::ops::Range;

/// A model whose parameters are drawn, not merely planned.
fn model(device: &Device) -> BertForMaskedLm {
    device.seed(5);
    let model = BertForMaskedLmConfig::new(small_bert(11)).init(device);
    all_values(&model);
    model
}

/// The same without dropout.
fn undropped() -> Training<BertForMaskedLm> {
    let mut model = model(&Device::default().autodiff());
    model.bert.embeddings.set_dropout(0.0).unwrap();
    model.bert.encoder.set_dropout(0.0, 0.0).unwrap();
    Training::new(model)
}

type MaskedLmTraining = SupervisedTraining<Training<BertForMaskedLm>>;

/// A training run with logs in `dir`/run.
fn run(dir: &Path, train: EpochLoader<MaskedLmCollator>) -> MaskedLmTraining {
    let windows = Batches::new(InMemDataset::new(first_windows(dir, 8)), collator(dir));
    let valid = EpochLoader::new(windows, 4, &Device::default()).unwrap();
    SupervisedTraining::new(dir.join("run"), Arc::new(train), Arc::new(valid))
        .renderer(Box::new(CliMetricsRenderer::new()))
        .with_application_logger(None)
}

/// Two batches a step.
fn accumulated(training: MaskedLmTraining) -> MaskedLmTraining {
    training.grads_accumulation(2)
}

/// Trains from the end of epoch `from` to that of epoch `to`, of ten steps each, with two batches a step, which `two` provides
/// for.
fn train(
    precision: Precision,
    dir: &Path,
    [from, to]: [usize; 2],
    two: impl FnOnce(MaskedLmTraining) -> MaskedLmTraining,
) -> LearningResult<Training<BertForMaskedLm>> {
    let training = run(dir, training_loader(dir, collator(dir), 4, 20, 7).starting_after(from))
        .metrics((LossMetric::new(), AccuracyMetric::new(), PerplexityMetric::new()))
        .with_default_checkpointers()
        .num_epochs(to);
    let training = two(training);
    let training = if from > 0 { training.checkpoint(from) } else { training };
    let model = Training::new(model(&Device::default().autodiff())).with_precision(precision).unwrap();
    let schedule = LrSchedule::Linear.with_warmup(1e-2, 3, 30).unwrap();
    let result = training.launch(Learner::new(model, adamw(&AdamWConfig::new()).unwrap(), schedule));
    assert!(result.error.is_none(), "{:?}", result.error);
    result
}

fn loss_of(model: &BertForMaskedLm, dir: &Path) -> f64 {
    let device = Device::default();
    let batch = collator(dir).collate(&first_windows(dir, 8), 3, &device).unwrap();
    model.clone().valid().forward(&batch).loss.into_scalar::<f64>()
}

#[test]
fn burns_learner_trains_and_a_run_that_was_stopped_goes_on_as_if_it_was_not() {
    let _turn = turn();
    let [whole, stopped] = [folder(), folder()];
    let train = |dir: &TempDir, epochs| train(Precision::F32, dir.path(), epochs, accumulated);
    let result = train(&whole, [0, 3]);
    let before = loss_of(&model(&Device::default().autodiff()), whole.path());
    let after = loss_of(&result.model.model, whole.path());
    println!("held-out loss {before:.3} before, {after:.3} after 30 steps");
    assert!(after < before - 0.5, "{before} → {after}");

    train(&stopped, [0, 1]);
    let resumed = train(&stopped, [1, 3]);
    assert!(all_values(&resumed.model) == all_values(&result.model), "bit for bit, with dropout on");
}

/// The same device twice: Burn makes a worker, a loader and a copy of the model for each.
fn on_two_devices(training: MaskedLmTraining, optim: MultiDeviceOptim) -> MaskedLmTraining {
    let strategy = ExecutionStrategy::multi(vec![Device::default().autodiff(); 2], optim);
    training.with_training_strategy(TrainingStrategy::Default(strategy))
}

#[test]
fn a_run_in_16_bits_learns_goes_on_as_if_it_was_not_stopped_and_keeps_f32() {
    let _turn = turn();
    let exact = train(Precision::F32, folder().path(), [0, 3], accumulated);
    let [whole, stopped] = [folder(), folder()];
    let train_narrow = |dir: &TempDir, epochs| train(Precision::Bf16, dir.path(), epochs, accumulated);
    let result = train_narrow(&whole, [0, 3]);
    let losses = [&result, &exact].map(|result| loss_of(&result.model.model, whole.path()));
    println!("held-out loss {:.4}, in f32 {:.4}", losses[0], losses[1]);
    assert!((losses[0] - losses[1]).abs() < 0.05, "{losses:?}");
    assert!(all_values(&result.model.model) != all_values(&exact.model.model), "it was rounded");
    assert_eq!(result.model.model.bert.encoder.layers[0].output.weight.val().dtype(), DType::F32);

    train_narrow(&stopped, [0, 1]);
    let resumed = train_narrow(&stopped, [1, 3]);
    assert!(all_values(&resumed.model) == all_values(&result.model), "bit for bit");

    let result = train(Precision::Bf16, folder().path(), [0, 3], |training| {
        on_two_devices(training, MultiDeviceOptim::OptimMainDevice)
    });
    let loss = loss_of(&result.model.model, whole.path());
    assert!((loss - losses[1]).abs() < 0.2, "on two devices: {loss}");
}

#[test]
fn validation_is_in_the_precision_of_training() {
    let _turn = turn();
    let start = undropped();
    let collator =
        MaskedLmCollatorConfig::new(11, 4, 0, vec![0, 1, 2, 3, 4]).with_mlm_probability(1.0).init();
    let device = Device::default().autodiff();
    let batch = collator.collate(&[MaskedLmExample::new(vec![2, 5, 6, 3])], 0, &device).unwrap();
    // The same for each masked token, so that a validation weighs by them.
    let loss = |training: &Training<BertForMaskedLm>| {
        values(InferenceStep::step(training, batch.clone()).loss.narrow(0, 0, 1))
    };
    let exact = loss(&start);
    let expected = autocast(Precision::Bf16, || values(start.model.forward(&batch).loss));
    let found = loss(&start.clone().with_precision(Precision::Bf16).unwrap());
    assert!(found == expected && found != exact, "{found:?}, {expected:?}, {exact:?}");
}

#[test]
fn a_largest_norm_that_is_not_above_0_is_an_error() {
    let _turn = turn();
    for norm in [0.0, -1.0, f64::NAN] {
        says(undropped().with_max_grad_norm(norm), &format!("max_norm is {norm}, but must be above 0"));
    }
}

/// Three steps of SGD, of two batches each.
fn weights_after_sgd(max_grad_norm: f64, two: impl FnOnce(MaskedLmTraining) -> MaskedLmTraining) -> Vec<f64> {
    let dir = folder();
    let training = run(dir.path(), training_loader(dir.path(), collator(dir.path()), 4, 2, 7)).num_epochs(3);
    let model = undropped().with_max_grad_norm(max_grad_norm).unwrap();
    let learner = Learner::new(model, SgdConfig::new().init(), ModuleLrScheduler::from(ConstantLr::new(0.1)));
    all_values(&two(training).launch(learner).model)
}

#[test]
fn two_devices_take_the_steps_that_one_takes_with_twice_the_batches() {
    let _turn = turn();
    let before = all_values(&undropped());
    // Clipping forgets whether gradients were added or averaged; without it that shows.
    for (max_grad_norm, moves) in [(0.5, 0.1..0.150001), (f64::INFINITY, 0.16..f64::INFINITY)] {
        let one = weights_after_sgd(max_grad_norm, accumulated);
        let moved: Vec<_> = before.iter().zip(&one).map(|(before, after)| after - before).collect();
        assert!(moves.contains(&norm(&moved)), "a norm of {max_grad_norm}: moved by {}", norm(&moved));
        for optim in [MultiDeviceOptim::OptimMainDevice, MultiDeviceOptim::OptimSharded] {
            let two = weights_after_sgd(max_grad_norm, |training| on_two_devices(training, optim));
            let difference = largest_difference(&one, &two);
            assert!(difference < 1e-6, "{optim:?}, a norm of {max_grad_norm}: {difference:e}");
        }
    }
}

/// One step of SGD at a rate of 1 is the gradient that the optimiser was given.
fn step_of(model: Training<BertForMaskedLm>, batches: Range<usize>) -> Vec<f64> {
    let dir = folder();
    let device = Device::default().autodiff();
    let loader = training_loader(dir.path(), collator(dir.path()), 4, 4, 1).to_device(&device);
    let mut accumulator = GradientsAccumulator::new();
    for batch in loader.iter().take(batches.end).skip(batches.start) {
        accumulator.accumulate(&model, TrainStep::step(&model, batch.unwrap()).grads);
    }
    let before = all_values(&model);
    let mut schedule = ModuleLrScheduler::from(ConstantLr::new(1.0));
    let after = model.optimize(&mut SgdConfig::new().init(), schedule.step(), accumulator.grads());
    before.iter().zip(all_values(&after)).map(|(before, after)| before - after).collect()
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[test]
fn accumulated_gradients_are_averaged_and_clipped_by_their_common_norm() {
    let _turn = turn();
    let unclipped = || undropped().with_max_grad_norm(f64::INFINITY).unwrap();
    let alone = [0, 1, 2].map(|batch| step_of(unclipped(), batch..batch + 1));
    let averaged = step_of(unclipped(), 0..3);
    assert!(norm(&averaged) > 0.1);
    for (place, mean) in averaged.iter().enumerate() {
        let sum: f64 = alone.iter().map(|gradient| gradient[place]).sum();
        assert!((sum / 3.0 - mean).abs() < 1e-6, "{sum} / 3 is not {mean}");
    }
    let clipped = step_of(undropped().with_max_grad_norm(0.01).unwrap(), 0..3);
    assert!((norm(&clipped) - 0.01).abs() < 1e-5, "{}", norm(&clipped));
    let factor = 0.01 / norm(&averaged);
    for (mean, clipped) in averaged.iter().zip(&clipped) {
        assert!((mean * factor - clipped).abs() < 1e-6, "all by one factor");
    }
}

#[test]
fn an_epochs_last_step_is_averaged_over_the_batches_that_it_has() {
    let _turn = turn();
    let dir = folder();
    // Epochs of another length would have other batches.
    let loader = |batches: usize| training_loader(dir.path(), collator(dir.path()), 4, batches, 7);
    // Three batches, two a step: the second step has one.
    let trained = |batches: usize| {
        let training = accumulated(run(dir.path(), loader(batches)));
        let model = undropped().with_max_grad_norm(f64::INFINITY).unwrap();
        let schedule = ModuleLrScheduler::from(ConstantLr::new(0.1));
        training.launch(Learner::new(model, SgdConfig::new().init(), schedule)).model
    };
    let (whole, last) = (trained(2), all_values(&trained(3)));
    // The last step again, by hand: the gradient of the third batch alone, divided by nothing.
    let batch = loader(3).to_device(&Device::default().autodiff()).iter().nth(2).unwrap().unwrap();
    let whole = Training::new(whole.model.train()).with_max_grad_norm(f64::INFINITY).unwrap();
    let before = all_values(&whole);
    let gradients = TrainStep::step(&whole, batch).grads;
    let mut schedule = ModuleLrScheduler::from(ConstantLr::new(0.1));
    let expected = all_values(&whole.optimize(&mut SgdConfig::new().init(), schedule.step(), gradients));
    assert!(largest_difference(&before, &expected) > 1e-3, "the last batch trains nothing");
    assert!(largest_difference(&last, &expected) < 1e-6, "{:e}", largest_difference(&last, &expected));
}
