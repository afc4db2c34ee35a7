//! The steps of a trainer against those of other batches, its precision, its callbacks, and Burn's own `Learner`.

use crate::checkpoint::{arguments, checkpoint, reviews, text};
use crate::prelude::*;
use crate::runs::{trainer, weights};
use burn::optim::SgdConfig;
use burn::tensor::FloatDType;
use burn::train::metric::{AccuracyMetric, LossMetric, PerplexityMetric};
use burn::train::renderer::CliMetricsRenderer;
use burn::train::{Learner, SupervisedTraining};
use burn_bert::cast_module;
use burn_bert::functional::autocast;
use std::ops::ControlFlow;
use std::sync::Mutex;

/// A classifier in f64 without dropout, with values that follow from the seed.
fn exact(dir: &Path, weights: Option<Vec<f64>>) -> Pipeline<BertForSequenceClassification> {
    let device = Device::default().autodiff();
    device.seed(3);
    let mut config = BertForSequenceClassificationConfig::from_pretrained(dir).unwrap();
    config.class_weights = weights;
    config.bert.embeddings.hidden_dropout_prob = 0.0;
    config.bert.attention_probs_dropout_prob = 0.0;
    let (model, _) = BertForSequenceClassification::from_pretrained_with(&config, dir, &device).unwrap();
    let model = cast_module(model, FloatDType::F64).unwrap();
    Pipeline::new(model, BertTokenizer::from_pretrained(dir).unwrap()).unwrap()
}

/// 43 texts: a last step of nine has seven, and its batches of three have three, three and one.
fn texts() -> LabelledTexts {
    let words = ["the film was good", "bad film", "good", "a boring film on a mat"];
    let texts = (0..43).map(|i| text(words[i * 7 % 4], Label::Class(i * i % 3 % 2))).collect();
    LabelledTexts::new(texts, ["LABEL_0", "LABEL_1"].map(String::from).to_vec()).unwrap()
}

/// The same with weights of classes, by which a step counts less than 1, and batches of other sizes have other losses.
fn weighted(dir: &Path) -> Pipeline<BertForSequenceClassification> {
    exact(dir, Some(vec![0.02, 0.2]))
}

/// The weights after two epochs of SGD.
fn after_sgd(dir: &Path, name: &str, change: impl Fn(TrainingArguments) -> TrainingArguments) -> Vec<f64> {
    let arguments =
        arguments(&dir.join(name)).with_epochs(2).with_group_by_length(false).with_warmup_steps(0);
    let arguments = change(arguments.with_learning_rate(0.5).with_lr_schedule(LrSchedule::Constant));
    let trainer = Trainer::new(weighted(dir), texts(), arguments).unwrap();
    weights(&trainer.with_optimizer(SgdConfig::new().init()).train().unwrap())
}

#[test]
fn accumulated_batches_and_devices_take_the_steps_of_one_batch_with_all_their_texts() {
    let (_turn, dir) = (turn(), checkpoint());
    // Clipping forgets whether gradients were added or averaged; without it that shows.
    for max_grad_norm in [f64::INFINITY, 0.5] {
        let after = |name: &str, batch_size: usize, accumulated: usize, devices: usize| {
            let name = format!("{name}-{max_grad_norm}");
            after_sgd(dir.path(), &name, |arguments| {
                let arguments = arguments.with_batch_size(batch_size).with_max_grad_norm(max_grad_norm);
                let arguments = arguments.with_gradient_accumulation_steps(accumulated);
                arguments.with_devices(vec![Device::default(); devices])
            })
        };
        let whole = after("whole", 9, 1, 1);
        let before = all_values(weighted(dir.path()).model());
        assert!(largest_difference(&whole, &before) > 1e-3);
        for (name, found) in
            [("accumulated", after("accumulated", 3, 3, 1)), ("devices", after("devices", 3, 1, 3))]
        {
            let difference = largest_difference(&found, &whole);
            assert!(difference < 1e-12, "{name}, a norm of {max_grad_norm}: {difference:e}");
        }
    }
}

#[test]
fn a_step_is_clipped_by_the_norm_of_all_gradients_together() {
    let (_turn, dir) = (turn(), checkpoint());
    let one_step = |arguments: TrainingArguments| {
        arguments.with_eval_strategy(EvalStrategy::Steps(1)).with_max_steps(1).with_max_grad_norm(0.01)
    };
    let after = after_sgd(dir.path(), "clipped", one_step);
    let before = all_values(weighted(dir.path()).model());
    let moved: f64 = before.iter().zip(&after).map(|(before, after)| (after - before).powi(2)).sum();
    assert!((moved.sqrt() - 0.5 * 0.01).abs() < 1e-6, "{}", moved.sqrt()); // the rate times the norm
}

#[test]
fn a_run_goes_on_with_other_batches_of_the_same_step_and_with_no_other_optimizer() {
    let (_turn, dir) = (turn(), checkpoint());
    let whole = after_sgd(dir.path(), "whole", |arguments| arguments.with_batch_size(6));
    let part = |epochs, batch_size: usize| {
        after_sgd(dir.path(), "part", |arguments| {
            let arguments = arguments.with_batch_size(batch_size).with_epochs(epochs).with_resume(epochs > 1);
            arguments.with_gradient_accumulation_steps(6 / batch_size)
        })
    };
    part(1, 6);
    let resumed = part(2, 2);
    // Texts are classified alone, so the batches that they come in make no difference.
    assert!(largest_difference(&resumed, &whole) < 1e-12, "{:e}", largest_difference(&resumed, &whole));
    let resume = |batch_size: usize| {
        let settings = arguments(&dir.path().join("part")).with_epochs(3).with_group_by_length(false);
        let settings = settings.with_learning_rate(0.5).with_lr_schedule(LrSchedule::Constant);
        let settings = settings.with_warmup_steps(0).with_resume(true).with_batch_size(batch_size);
        Trainer::new(weighted(dir.path()), texts(), settings).unwrap().train()
    };
    says(resume(7), "with other settings: batch_size · gradient_accumulation_steps: 6, now 7;");
    // By its first batches, so that another model is seen whatever they are now.
    let validated = |epochs, batch_size: usize, model| {
        let settings = arguments(&dir.path().join("validated")).with_epochs(epochs).with_resume(epochs > 1);
        let settings = settings.with_batch_size(batch_size).with_gradient_accumulation_steps(6 / batch_size);
        Trainer::new(model, texts(), settings).unwrap().with_validation(texts()).train()
    };
    validated(1, 6, weighted(dir.path())).unwrap();
    validated(2, 2, weighted(dir.path())).unwrap();
    let other = exact(dir.path(), Some(vec![1.0, 0.0]));
    says(validated(3, 3, other), "holds a run that began at a loss of");
    // Texts, weights and settings are those of the run.
    let adam = Trainer::new(weighted(dir.path()), texts(), arguments(&dir.path().join("adam"))).unwrap();
    adam.train().unwrap();
    let sgd = arguments(&dir.path().join("adam")).with_epochs(4).with_resume(true);
    let sgd =
        Trainer::new(weighted(dir.path()), texts(), sgd).unwrap().with_optimizer(SgdConfig::new().init());
    says(sgd.train(), "optimizer.bpk does not fit the model: it is of another optimizer");
}

#[test]
fn an_evaluation_is_in_the_precision_of_training() {
    let (_turn, dir) = (turn(), checkpoint());
    let loss = |precision| {
        let settings = arguments(dir.path()).with_precision(precision);
        evaluate(&exact_in_f32(dir.path()), texts(), &settings).unwrap()["Loss"]
    };
    let (exact, found) = (loss(Precision::F32), loss(Precision::Bf16));
    let pipeline = exact_in_f32(dir.path());
    let all: Vec<_> = texts().iter().map(|text| text.unwrap()).collect();
    let batches = all.chunks(1).map(|text| {
        let batch = LabelledText::batch(text, pipeline.tokenizer(), 2, &Device::default()).unwrap();
        autocast(Precision::Bf16, || pipeline.model().forward(&batch).loss.into_scalar::<f64>())
    });
    let expected = batches.sum::<f64>() / 43.0;
    assert!((found - expected).abs() < 0.1 * (found - exact).abs(), "{found}, {expected}, {exact}");
}

fn exact_in_f32(dir: &Path) -> Pipeline<BertForSequenceClassification> {
    let (model, tokenizer) = exact(dir, None).into_parts();
    Pipeline::new(cast_module(model, FloatDType::F32).unwrap().valid(), tokenizer).unwrap()
}

/// Notes what it is told, and stops the run at a step.
struct Notes(Arc<Mutex<Vec<String>>>, usize);

impl Notes {
    fn push(&self, note: String) -> ControlFlow<String> {
        self.0.lock().unwrap().push(note);
        ControlFlow::Continue(())
    }
}

impl Callback for Notes {
    fn on_step(&mut self, progress: &Progress) -> ControlFlow<String> {
        if progress.step == self.1 { ControlFlow::Break("enough".into()) } else { ControlFlow::Continue(()) }
    }

    fn on_log(&mut self, entry: &LogEntry) -> ControlFlow<String> {
        assert!(
            entry.loss.is_some_and(f64::is_finite)
                && entry.steps_per_second > 0.0
                && entry.seconds_left >= 0.0
        );
        self.push(format!(
            "log {} {:.2} {:.4}",
            entry.progress.step, entry.progress.epoch, entry.learning_rate
        ))
    }

    fn on_evaluate(&mut self, progress: &Progress, evaluation: &Evaluation) -> ControlFlow<String> {
        assert!(evaluation.valid.contains_key("Accuracy") && evaluation.train.contains_key("Loss"));
        self.push(format!("evaluate {}", progress.step))
    }

    fn on_save(&mut self, _: &Progress, checkpoint: &Path) -> ControlFlow<String> {
        assert!(checkpoint.join("model.bpk").exists());
        self.push(format!("save {}", checkpoint.file_name().unwrap().to_string_lossy()))
    }

    fn on_end(&mut self, progress: &Progress, reason: &str) {
        let _ = self.push(format!("end {} {reason}", progress.step));
    }
}

#[test]
fn callbacks_are_told_what_happens_and_may_stop_the_run() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let settings = arguments(&out).with_logging_steps(4).with_lr_schedule(LrSchedule::Constant);
    let notes = Arc::new(Mutex::new(Vec::new()));
    let trainer = trainer(dir.path(), settings.with_warmup_steps(0)).unwrap();
    let trainer = trainer.with_callback(Notes(notes.clone(), 9));
    let trained = trainer.with_callback(JsonLines::new(out.join("training/log.jsonl"))).train().unwrap();
    assert_eq!(trained.interrupted.as_deref(), Some("enough"));
    let expected = [
        "log 4 0.67 0.0100",
        "evaluate 6",
        "save checkpoint-1",
        "log 8 1.33 0.0100",
        "end 9 stopped after 9 of 18 steps: enough",
    ];
    assert_eq!(*notes.lock().unwrap(), expected);
    let lines = fs::read_to_string(out.join("training/log.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    // The mean of the losses of the batches between two entries.
    let mean = trained.history.losses[..4].iter().sum::<f64>() / 4.0;
    assert!((lines[0]["loss"].as_f64().unwrap() - mean).abs() < 1e-9 && lines[0]["step"] == 4);
    assert_eq!(lines[1]["valid"]["Loss"].as_f64(), trained.history.evaluations[0].valid.get("Loss").copied());
    // Without validation data, too, the last model is saved; of two devices the first one's rank tells what happens.
    let settings = arguments(&dir.path().join("alone")).with_logging_steps(1);
    let settings = settings.with_devices(vec![Device::default(); 2]);
    let (trainer, notes) =
        (Trainer::from_pretrained(dir.path(), reviews(48), settings).unwrap(), Arc::default());
    let alone = trainer.with_callback(Notes(Arc::clone(&notes), 2)).train().unwrap();
    assert!(alone.interrupted.is_some() && dir.path().join("alone/model.safetensors").exists());
    let notes = notes.lock().unwrap();
    // Ranks agree on a stop at the next step's exchange.
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert_eq!(notes[3], "end 3 stopped after 3 of 9 steps: enough");
}

#[test]
fn burns_learner_trains() {
    let (_turn, dir) = (turn(), tempdir().unwrap());
    let device = Device::default().autodiff();
    device.seed(5);
    let model = BertForMaskedLmConfig::new(small_bert(11)).init(&device);
    let tokenizer = tokenizer_of(&["the", "cat", "sat", "on", "a", "mat"]);
    let collator = MaskedLmCollatorConfig::for_tokenizer(&tokenizer).init();
    let text = PlainText::new(["the cat sat on a mat ".repeat(250)]).unwrap();
    let windows = text.windows(tokenizer, 14).unwrap();
    let first: Vec<_> = windows.iter().take(8).map(|window| window.unwrap()).collect();
    let loss = |model: &BertForMaskedLm| {
        let batch = collator.collate(&first, 3, &Device::default()).unwrap();
        model.clone().valid().forward(&batch).loss.into_scalar::<f64>()
    };
    let before = loss(&model);
    let valid = collator.clone().batches(InMemDataset::new(first.clone()));
    let valid = EpochLoader::new(valid, 4, &Device::default()).unwrap();
    let train = EpochLoader::new(collator.clone().batches(windows), 4, &Device::default()).unwrap();
    let train = train.with_shuffling(7).with_batches_per_epoch(20).unwrap();
    let [train, valid] = [train, valid].map(ForLearner::<BertForMaskedLm>::data);
    assert_eq!((train.num_items(), valid.num_items()), (20, 2));
    let masked = || train.iter().map(|batch| batch.unwrap().positions().to_vec()).collect::<Vec<_>>();
    assert_ne!(masked(), masked(), "an epoch is followed by the next one");
    let training = SupervisedTraining::new(dir.path().join("run"), train, valid)
        .renderer(Box::new(CliMetricsRenderer::new()))
        .with_application_logger(None)
        .metrics((LossMetric::new(), AccuracyMetric::new(), PerplexityMetric::new()))
        .num_epochs(3);
    let schedule = LrSchedule::Linear.with_warmup(1e-2, 3, 60).unwrap();
    let optimizer = adamw(&AdamWConfig::new()).unwrap();
    let result = training.launch(Learner::new(ForLearner::new(model), optimizer, schedule));
    assert!(result.error.is_none(), "{:?}", result.error);
    let after = loss(&result.model.model);
    println!("held-out loss {before:.3} before, {after:.3} after 60 steps");
    assert!(after < before - 0.5, "{before} → {after}");
}
