//! What a run reports: its history, its best evaluation and its lines.

use crate::checkpoint::{arguments, checkpoint, reviews, text};
use crate::prelude::*;
use crate::runs::{trainer, weights};
use std::collections::BTreeMap;
use std::process::Command;

/// Training batches of an epoch.
const EPOCH: usize = 6;

#[test]
fn patience_counts_from_the_last_improvement_and_a_run_that_stopped_early_is_over() {
    const NAN: f64 = f64::NAN;
    let (_turn, dir) = (turn(), checkpoint());
    for (number, (values, threshold, evaluations, best)) in [
        // It waits for ever without a number; evaluations without one keep their place.
        (&[NAN, NAN, NAN, 1.0] as &[f64], 0.0, 4, 3),
        (&[NAN, 1.0, 2.0, NAN, 0.5], 0.0, 4, 1),
        // An equal value is no improvement.
        (&[1.0, 1.0, 1.0, 0.5], 0.0, 3, 0),
        // Small improvements count once they add up to more than the threshold; the best is the best whatever it is.
        (&[1.0, 0.95, 0.85, 0.84], 0.2, 3, 2),
        (&[1.0, 0.95, 0.85, 0.84], 0.12, 4, 3),
    ]
    .into_iter()
    .enumerate()
    {
        for greater in [false, true] {
            let values: &'static [f64] =
                values.iter().map(|&v| if greater { -v } else { v }).collect::<Vec<_>>().leak();
            let arguments = arguments(&dir.path().join(format!("{number}-{greater}")))
                .with_epochs(values.len())
                .with_metric_for_best_model("Hook")
                .with_greater_is_better(greater)
                .with_early_stopping_patience(2)
                .with_early_stopping_threshold(threshold);
            let given = Hook::new(|_| ()).with_value(|batches| values[(batches / EPOCH).saturating_sub(1)]);
            let stopped = trainer(dir.path(), arguments.clone()).unwrap().with_metric(given).train().unwrap();
            let history = &stopped.history;
            let expected: Vec<_> = values[..evaluations]
                .iter()
                .map(|&value| Some(value).filter(|value| value.is_finite()))
                .collect();
            assert_eq!(history.valid("Hook"), expected, "{values:?}, {threshold}");
            assert_eq!(history.best, Some(best), "{values:?}, {threshold}");
            let again = trainer(dir.path(), arguments.with_resume(true)).unwrap();
            let again = again.with_metric(Hook::never()).train().unwrap();
            assert!(weights(&again) == weights(&stopped), "{values:?}, {threshold}");
        }
    }
}

#[test]
fn a_history_is_printed_as_a_table() {
    let metrics = |values: &[(&str, f64)]| -> BTreeMap<String, f64> {
        values.iter().map(|&(name, value)| (name.to_string(), value)).collect()
    };
    let evaluation = |step, train, valid: &[(&str, f64)]| Evaluation {
        step,
        train: metrics(&[("Loss", train)]),
        valid: metrics(valid),
    };
    let history = History {
        losses: Vec::new(),
        // A metric that was no number before training has its column too.
        initial: metrics(&[("Loss", 2.0)]),
        evaluations: vec![
            evaluation(10, 1.0, &[("Loss", 2.0), ("F1 of a class", 0.5)]),
            evaluation(20, 2.0, &[("F1 of a class", 0.5)]),
            evaluation(30, 3.0, &[("Loss", 1.5), ("F1 of a class", 0.25)]),
        ],
        best: Some(2),
    };
    let expected = [
        "    step training loss F1 of a class       Loss",
        "       0                                 2.0000",
        "      10        1.0000        0.5000     2.0000",
        "      20        2.0000        0.5000           ",
        "      30        3.0000        0.2500     1.5000 best",
    ];
    assert_eq!(history.to_string().lines().collect::<Vec<_>>(), expected);
    assert_eq!(history.valid("Loss"), [Some(2.0), None, Some(1.5)]);
}

/// Prints what runs print, for the test below.
#[test]
#[ignore = "needs the test below, which starts it and reads what it prints"]
fn runs_that_are_not_silent() {
    let (_turn, dir) = (turn(), checkpoint());
    let settings = |name: &str| {
        arguments(&dir.path().join(name)).with_epochs(2).with_silent(false).with_logging_steps(5)
    };
    let with_validation = trainer(dir.path(), settings("with")).unwrap().with_metric(Hook::new(|_| ()));
    with_validation.train().unwrap();
    let nan = Hook::new(|_| ()).with_value(|_| f64::NAN);
    let never = settings("never").with_epochs(1).with_metric_for_best_model("Hook");
    trainer(dir.path(), never).unwrap().with_metric(nan).train().unwrap();
    let several = |words: &str| text(words, Label::Classes(vec![usize::from(words.contains("good"))]));
    let data = |words: [&str; 3]| {
        let texts = words.map(several).to_vec();
        LabelledTexts::new(texts, ["bad", "good"].map(String::from).to_vec()).unwrap()
    };
    let (train, valid) = (["good", "bad film on", "bad film"], ["the good film", "the bad film", "good"]);
    let cut = settings("cut").with_epochs(1).with_max_length(4);
    let trainer = Trainer::from_pretrained(dir.path(), data(train), cut.clone()).unwrap();
    trainer.with_validation(data(valid)).train().unwrap();
    let pairs = [("good film", "bad film"), ("good", "a bad film"), ("a good film", "bad")];
    let pairs = pairs.map(|(anchor, positive)| SentencePair::new(anchor, positive)).to_vec();
    let pairs = SentencePairs::new(pairs, Vec::new()).unwrap();
    let (model, _) = BertForSentenceEmbedding::from_pretrained(dir.path(), &Device::default()).unwrap();
    let pipeline = Pipeline::new(model, BertTokenizer::from_pretrained(dir.path()).unwrap()).unwrap();
    evaluate(&pipeline, pairs, &cut).unwrap();
    println!("without validation data");
    Trainer::from_pretrained(dir.path(), reviews(48), settings("without")).unwrap().train().unwrap();
}

#[test]
fn lines_say_where_training_is_and_why_it_ended() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let output =
        program.args(["--exact", "history::runs_that_are_not_silent", "--ignored", "--nocapture"]).output();
    let output = output.unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    let note = "Hook was finite in no evaluation; the model that is saved is the last model. To save the best by another metric, \
                resume the run with another metric_for_best_model\n";
    assert_eq!(notes.matches(note).count(), 1, "{notes}");
    for (note, count) in [
        ("\n  note: 1 of 3 texts are cut at 4 tokens\n", 1),
        ("\n  note: 2 of 3 texts are cut at 4 tokens\n", 1),
        ("\n2 of 3 pairs are cut at 4 tokens\n", 1),
        (" are cut at ", 3),
        ("\nthresholds with the best F1 on the validation data: \"bad\" 0.", 1),
    ] {
        assert_eq!(notes.matches(note).count(), count, "{note}: {notes}");
    }
    let runs = 4;
    let slow = if cfg!(debug_assertions) { runs } else { 0 };
    assert_eq!(notes.matches("this is a development build").count(), slow, "{notes}");
    let output = String::from_utf8(output.stdout).unwrap();
    let (with, without) = output.split_once("without validation data\n").unwrap();
    let lines = |text: &str, start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    for (start, count) in [
        ("step 5/12, epoch 0.83/2, loss 0.", 1),
        ("step 10/12, epoch 1.67/2, loss 0.", 1),
        ("step 6/12, evaluation: Accuracy ", 1),
        ("step 6/6, evaluation: Accuracy ", 1),
        ("step 12/12, evaluation: Accuracy ", 1),
        ("finished after 12 steps, 2.00 epochs", 1),
    ] {
        assert_eq!(lines(with, start), count, "{start}: {with}");
    }
    let line = with.lines().find(|line| line.starts_with("step 5/12")).unwrap();
    assert!(
        line.contains(", learning rate ") && line.contains(" steps/s, 0:0") && line.ends_with(" left"),
        "{line}"
    );
    assert_eq!((lines(without, "step 5/12"), without.matches("evaluation").count()), (1, 0), "{without}");
    assert!(!output.contains("NaN"), "{output}");
}
