//! The folder of a run: what it refuses, and what a kill leaves in it.

use burn_bert::Error;
use burn_bert::training::{Losses, Patience, Run};
use std::fmt::Debug;
use std::fs;
use std::path::Path;

fn problem(result: Result<impl Debug, Error>) -> String {
    match result.unwrap_err() {
        Error::File { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

#[test]
fn a_loss_that_is_no_number_neither_begins_nor_resumes_a_run() {
    let dir = tempfile::tempdir().unwrap();
    for loss in [f64::NAN, f64::INFINITY] {
        problem(Run::create(dir.path(), &7).unwrap().begin(loss, &[]));
    }
    Run::create(dir.path(), &7).unwrap().begin(3.5, &[]).unwrap();
    Run::resume(dir.path(), &7).unwrap().begin(3.501, &[]).unwrap();
    for loss in [f64::NAN, f64::INFINITY, 3.6] {
        problem(Run::resume(dir.path(), &7).unwrap().begin(loss, &[]));
    }
}

#[test]
fn any_settings_are_those_that_the_run_began_with() {
    let numbers = [f64::INFINITY, f64::NAN, -0.0, 0.1 + 0.2, 5e-324, f64::MAX, 1.0 / 3.0, 2.0_f64.powf(0.3)];
    for (index, &number) in numbers.iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let settings = (number, u128::MAX, Some("text"));
        Run::create(dir.path(), &settings).unwrap().begin(3.5, &[]).unwrap();
        Run::resume(dir.path(), &settings).unwrap();
        for (_, &other) in numbers.iter().enumerate().filter(|&(other, _)| other != index) {
            let problem = problem(Run::resume(dir.path(), &(other, u128::MAX, Some("text"))));
            assert!(
                problem.contains("other settings") && problem.contains(&format!("{number:?}")),
                "{problem}"
            );
        }
    }
}

#[test]
fn a_run_is_not_resumed_with_other_data() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("output");
    let [train, valid] = ["train.csv", "valid.csv"].map(|name| dir.path().join(name));
    fs::write(&train, "text,label\na,0\n").unwrap();
    fs::write(&valid, "text,label\nb,1\n").unwrap();
    Run::create(&output, &7).unwrap().begin(3.5, &[&train, &valid]).unwrap();
    let resume = |data: &[&Path]| Run::resume(&output, &7).unwrap().begin(3.5, data);
    resume(&[&train, &valid]).unwrap();
    assert!(problem(resume(&[&train])).contains("2 data files"));
    fs::write(&train, "text,label\na,1\n").unwrap();
    let problem = problem(resume(&[&train, &valid]));
    assert!(problem.contains("other data") && problem.contains("train.csv"), "{problem}");
}

#[test]
fn two_trainings_do_not_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let create = || Run::create(dir.path(), &7).unwrap();
    let [first, second] = [create(), create()];
    first.begin(3.5, &[]).unwrap();
    assert!(problem(second.begin(3.5, &[])).contains("in use"));
    let clone = first.clone();
    drop(first);
    let resume = || Run::resume(dir.path(), &7).unwrap();
    assert!(problem(resume().begin(3.5, &[])).contains("in use"), "its clone is in use");
    drop(clone);
    assert!(problem(second.begin(3.5, &[])).contains("holds a run already"));
    let third = resume();
    third.begin(3.5, &[]).unwrap();
    third.begin(3.5, &[]).unwrap();
}

#[test]
fn a_start_that_was_broken_off_does_not_stand_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("training")).unwrap();
    fs::write(dir.path().join("training/lock"), "").unwrap();
    fs::write(dir.path().join("training/run.json.unfinished"), "{\"sett").unwrap();
    let run = Run::create(dir.path(), &7).unwrap();
    fs::write(dir.path().join("training/mine"), "").unwrap();
    assert!(problem(Run::create(dir.path(), &7)).contains("not empty"));
    run.begin(3.5, &[]).unwrap();
}

/// A kill in the middle of a write leaves a file of another name, which is not read.
#[test]
fn files_are_written_whole() {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::create(dir.path().join("output"), &7).unwrap();
    // What is in the way of the new file is an error, and no half of it is left.
    fs::create_dir_all(run.folder().join("run.json.unfinished")).unwrap();
    assert!(matches!(run.begin(3.5, &[]), Err(Error::Io { .. })));
    fs::remove_dir(run.folder().join("run.json.unfinished")).unwrap();
    run.begin(3.5, &[]).unwrap();
    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(run.folder()), ["lock", "run.json"]);

    let checkpoint = dir.path().join("checkpoint");
    fs::create_dir(&checkpoint).unwrap();
    fs::write(checkpoint.join("vocab.txt"), "whole").unwrap();
    fs::write(checkpoint.join("modules.json"), "of another head").unwrap();
    fs::write(run.output().join("vocab.txt.unfinished"), "wh").unwrap();
    run.copy_companions(&checkpoint).unwrap();
    assert_eq!(fs::read_to_string(run.output().join("vocab.txt")).unwrap(), "whole");
    assert_eq!(names(run.output()), ["training", "vocab.txt"]);
}

#[test]
fn patience_waits_from_the_best_loss_on_and_for_ever_without_one() {
    for (valid, epoch, is_over) in [
        (&[] as &[Option<f64>], 0, false),
        (&[], 3, false), // no validation loss is logged
        (&[None, None], 2, false),
        (&[None, Some(1.0), Some(2.0)], 3, false),
        (&[None, Some(1.0), Some(2.0), None], 4, true),
    ] {
        let losses = Losses { train: Vec::new(), valid: valid.to_vec() };
        assert_eq!(Patience::new(2).is_over(&losses, epoch), is_over, "{valid:?}, epoch {epoch}");
    }
}

#[test]
fn each_setting_that_differs_is_named() {
    #[derive(Debug)]
    #[allow(dead_code)]
    struct Settings {
        epochs: usize,
        rate: Option<f64>,
        layers: Vec<usize>,
        text: &'static str,
    }
    let begun = Settings { epochs: 3, rate: Some(0.1), layers: vec![1, 2], text: "a {" };
    let dir = tempfile::tempdir().unwrap();
    Run::create(dir.path(), &begun).unwrap().begin(3.5, &[]).unwrap();
    for (now, differences) in [
        (Settings { epochs: 5, layers: vec![1, 2], ..begun }, "epochs: 3, now 5;"),
        (
            Settings { rate: None, layers: vec![1, 2], ..begun },
            "rate: Some, now None; rate.0: 0.1, now missing;",
        ),
        (Settings { layers: vec![1, 4, 5], ..begun }, "layers.1: 2, now 4; layers.2: 5, which is new;"),
        (Settings { text: "a }", layers: vec![1, 2], ..begun }, "text: \"a {\", now \"a }\";"),
    ] {
        let problem = problem(Run::resume(dir.path(), &now));
        assert!(problem.contains(&format!("with other settings: {differences} resume")), "{problem}");
    }
}

#[test]
fn an_epoch_without_a_finite_loss_keeps_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let log = |split: &str, epoch: usize, lines: &str| {
        let folder = dir.path().join(split).join(format!("epoch-{epoch}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("Loss.log"), lines).unwrap();
    };
    for (epoch, valid) in
        (1..).zip(["2.5,1\n2.0,final\n", "NaN,1\nNaN,final\n", "1.0,1\n1.5,final\n", "1.0,1\n"])
    {
        log("train", epoch, &format!("{epoch},1\n{epoch},final\n"));
        log("valid", epoch, valid);
    }
    let losses = Losses::read(dir.path()).unwrap();
    assert_eq!(losses.train, [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(losses.valid, [Some(2.0), None, Some(1.5)]); // the fourth was broken off
    assert_eq!(losses.best_epoch(), Some(3));
    assert_eq!(Losses::read(dir.path().join("elsewhere")).unwrap(), Losses::default());
}
