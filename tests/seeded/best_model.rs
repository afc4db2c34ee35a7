//! Which model a run saves, and that none that was trained is lost.

use crate::checkpoint::{arguments, checkpoint, reviews, text};
use crate::prelude::*;
use crate::runs::{refused, saved_weights, trained, trainer, weights};

#[test]
fn a_run_whose_metric_was_never_a_number_saves_its_last_model_and_is_resumed_by_another_metric() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let settings = || arguments(&out).with_epochs(3);
    let nan = Hook::new(|_| ()).with_value(|_| f64::NAN);
    let trained = trainer(dir.path(), settings().with_metric_for_best_model("Hook")).unwrap();
    let trained = trained.with_metric(nan).train().unwrap();
    assert!(trained.history.best.is_none() && trained.interrupted.is_none(), "{}", trained.history);
    assert!(saved_weights(&out) == weights(&trained), "what is saved is what is returned");
    let [loss, last] =
        [trained.evaluate(reviews(8)).unwrap()["Loss"], trained.history.valid("Loss")[2].unwrap()];
    assert!((loss - last).abs() < 1e-5, "{loss} is not the last one's, {last}");

    // No step depends on the metric, and the checkpoints of the last two epochs are there.
    let resumed = settings().with_metric_for_best_model("Accuracy").with_resume(true);
    let resumed = trainer(dir.path(), resumed).unwrap();
    let resumed = resumed.with_metric(Hook::never()).train().unwrap();
    let best = resumed.history.best.expect("the accuracy is a number");
    let logged = resumed.history.evaluations[best].valid["Accuracy"];
    assert!((resumed.evaluate(reviews(8)).unwrap()["Accuracy"] - logged).abs() < 1e-5);
}

#[test]
fn a_correlation_with_labels_that_are_all_equal_is_refused_before_the_first_step() {
    let (_turn, dir) = (turn(), checkpoint());
    // Of a share of two, which have one label unless the draw holds out the first.
    let value = |i: usize| Label::Value(if i == 0 { 1.0 } else { 2.5 });
    let class = |i: usize| Label::Class(usize::from(i == 0));
    for (metric, label, names) in [
        ("Spearman", &value as &dyn Fn(usize) -> Label, &[][..]),
        ("Matthews", &class, &["a", "b"]),
        ("F1", &class, &["a", "b"]),
        ("Loss", &value, &[]),
    ] {
        let refused = (0..6).filter(|&seed| {
            let texts = (0..8).map(|i| text("good", label(i))).collect();
            let texts = LabelledTexts::new(texts, names.iter().map(ToString::to_string).collect()).unwrap();
            let out = dir.path().join(format!("{metric}{seed}"));
            let arguments = arguments(&out).with_metric_for_best_model(metric).with_seed(seed).with_epochs(1);
            let trainer = Trainer::from_pretrained(dir.path(), texts, arguments).unwrap();
            let result = trainer.with_validation_share(0.25).train().map(drop);
            let is_refused = result.is_err();
            if is_refused {
                let expected = "is METRIC, a correlation, but all labels of the validation data are equal";
                says(result, &expected.replace("METRIC", metric));
                assert!(!out.join("model.safetensors").exists());
            }
            is_refused
        });
        let allowed = if ["F1", "Loss"].contains(&metric) { 0..1 } else { 1..6 };
        assert!(allowed.contains(&refused.count()), "{metric}");
    }
}

#[test]
fn a_best_model_whose_checkpoint_is_gone_gives_way_to_the_best_that_is_there() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let settings = || arguments(&out).with_epochs(4).with_metric_for_best_model("Hook");
    // The value grows by 6 an epoch, so the last is the best, and the checkpoints of the first two are not kept.
    let trained = trainer(dir.path(), settings()).unwrap().with_metric(Hook::new(|_| ())).train().unwrap();
    assert_eq!(trained.history.best, Some(3), "{}", trained.history);
    let resume = |arguments: TrainingArguments| {
        let trainer = trainer(dir.path(), arguments.with_resume(true)).unwrap();
        trainer.with_metric(Hook::never()).train().unwrap()
    };
    let least = resume(settings().with_greater_is_better(false));
    assert_eq!(least.history.best, Some(2), "{}", least.history);
    assert_eq!(least.history.valid("Hook"), [6.0, 12.0, 18.0, 24.0].map(Some));
    assert!(saved_weights(&out) == weights(&least), "what is saved is what is returned");
    let found = least.evaluate(reviews(8)).unwrap();
    let (loss, logged) = (found["Loss"], least.history.valid("Loss")[2].unwrap());
    assert!((loss - logged).abs() < 1e-5 && found.contains_key("Hook"), "{loss} is not {logged}");
    // What an error said of a damaged file: delete it.
    fs::remove_dir_all(out.join("training/checkpoint-3")).unwrap();
    assert_eq!(resume(settings().with_greater_is_better(false)).history.best, Some(3));
}

#[test]
fn a_run_that_stopped_early_goes_on_with_more_patience() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let train = |patience| {
        let arguments = arguments(&out).with_epochs(4).with_metric_for_best_model("Hook");
        let arguments = arguments.with_early_stopping_patience(patience).with_resume(out.exists());
        let constant = Hook::new(|_| ()).with_value(|_| 1.0);
        trainer(dir.path(), arguments).unwrap().with_metric(constant).train().unwrap()
    };
    assert_eq!(train(1).history.evaluations.len(), 2);
    assert_eq!(train(3).history.evaluations.len(), 4);
}

#[test]
fn a_model_that_no_directory_can_hold_is_refused_before_the_first_step() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let refused = |change: fn(&mut BertForSequenceClassification)| {
        let device = Device::default().autodiff();
        let (mut model, _report) =
            BertForSequenceClassification::from_pretrained(dir.path(), &device).unwrap();
        change(&mut model);
        let pipeline = Pipeline::new(model, BertTokenizer::from_pretrained(dir.path()).unwrap()).unwrap();
        let texts = LabelledTexts::new(
            reviews(8).iter().map(|text| text.unwrap()).collect(),
            vec!["LABEL_0".into(), "LABEL_1".into()],
        );
        let trainer = Trainer::new(pipeline, texts.unwrap(), arguments(&out)).unwrap();
        trainer.with_metric(Hook::never()).train()
    };
    says(
        refused(|model| model.bert.encoder.set_dropout(0.2, 0.2).unwrap()),
        "hidden_dropout_prob is 0.2 in layer 0 and 0.1 in the config; a config.json holds one value for all layers",
    );
    says(
        refused(|model| model.bert.embeddings.set_dropout(0.2).unwrap()),
        "hidden_dropout_prob is 0.1 in layer 0 and 0.2 in the config; a config.json holds one value for all layers",
    );
    assert!(!out.exists());
}

#[cfg(unix)]
#[test]
fn a_run_whose_directory_is_removed_saves_its_model_and_can_be_resumed() {
    let (_turn, dir) = (turn(), checkpoint());
    let (whole, out) = (dir.path().join("whole"), dir.path().join("out"));
    // Rates that do not depend on the number of epochs.
    let settings = |out: &Path, epochs| {
        arguments(out).with_epochs(epochs).with_lr_schedule(LrSchedule::Constant).with_warmup_steps(2)
    };
    let unbroken = trained(dir.path(), settings(&whole, 4));
    let remove = |out: &Path| {
        assert!(out.join("training/checkpoint-1").exists());
        fs::remove_dir_all(out).unwrap();
    };
    let removed = out.clone();
    let hook = Hook::at(7, move || remove(&removed));
    let trained = trainer(dir.path(), settings(&out, 3)).unwrap().with_metric(hook).train().unwrap();
    assert!(saved_weights(&out) == weights(&trained));
    assert!(trained.history.best >= Some(1), "the first one's checkpoint is gone: {}", trained.history);

    let resumed = trainer(dir.path(), settings(&out, 4).with_resume(true)).unwrap();
    let resumed = resumed.with_metric(Hook::new(|_| ())).train().unwrap();
    assert_eq!(resumed.history.valid("Loss"), unbroken.history.valid("Loss"), "bit for bit, with dropout on");

    // From the second checkpoint on the directory is this run's again.
    let (removed, model) = (out.clone(), dir.path().to_path_buf());
    let other = settings(&out, 3).with_overwrite_output_dir(true);
    let hook = Hook::new(move |batch| match batch {
        7 => remove(&removed),
        13 => says(refused(&model, other.clone()), "is in use by another training run"),
        _ => {}
    });
    let again = settings(&out, 3).with_overwrite_output_dir(true);
    trainer(dir.path(), again).unwrap().with_metric(hook).train().unwrap();
}

#[cfg(unix)]
#[test]
fn a_run_does_not_write_into_one_that_has_taken_its_directory() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let taken = out.join("training/run.json");
    let hook = Hook::at(1, move || fs::write(&taken, "{}").unwrap());
    let trained = trainer(dir.path(), arguments(&out)).unwrap().with_metric(hook).train();
    says(
        trained,
        "was removed, and another run has begun in it; the run that was there cannot be saved or resumed",
    );
    assert!(!out.join("config.json").exists());
}
