//! The folder of a run: what it refuses, and what a kill leaves in it.

use super::run::{Lock, Run, Start, checksum_of};
use crate::distributed::Ranks;
use crate::error::{Error, Result};
use std::fmt::Debug;
use std::fs;
use std::path::Path;

fn open(output: &Path, start: Start, settings: &impl Debug) -> Result<Run> {
    Run::open(output, format!("{settings:#?}"), start, &Ranks::single())
}

fn create(output: &Path, settings: &impl Debug) -> Run {
    open(output, Start::New, settings).unwrap()
}

fn begin(run: &Run, loss: f64) -> Result<Lock> {
    run.begin(loss, 3, [1, 2])
}

fn problem(result: Result<impl Debug>) -> String {
    match result.unwrap_err() {
        Error::File { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

#[test]
fn a_loss_that_is_no_number_neither_begins_nor_resumes_a_run() {
    let dir = tempfile::tempdir().unwrap();
    for loss in [f64::NAN, f64::INFINITY] {
        problem(begin(&create(dir.path(), &7), loss));
    }
    begin(&create(dir.path(), &7), 3.5).unwrap();
    let resume = || open(dir.path(), Start::Resumed, &7).unwrap();
    // A little at a time: what it began at is what the first start said.
    for loss in [3.501, 3.502, 3.503] {
        begin(&resume(), loss).unwrap();
    }
    for loss in [f64::NAN, f64::INFINITY, 3.504, 3.6] {
        problem(begin(&resume(), loss));
    }
}

#[test]
fn any_settings_are_those_that_the_run_began_with() {
    let numbers = [f64::INFINITY, f64::NAN, -0.0, 0.1 + 0.2, 5e-324, f64::MAX, 1.0 / 3.0, 2.0_f64.powf(0.3)];
    for (index, &number) in numbers.iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let settings = (number, u128::MAX, Some("text"));
        begin(&create(dir.path(), &settings), 3.5).unwrap();
        open(dir.path(), Start::Resumed, &settings).unwrap();
        for (_, &other) in numbers.iter().enumerate().filter(|&(other, _)| other != index) {
            let problem = problem(open(dir.path(), Start::Resumed, &(other, u128::MAX, Some("text"))));
            assert!(
                problem.contains("other settings") && problem.contains(&format!("{number:?}")),
                "{problem}"
            );
        }
    }
}

#[test]
fn a_run_is_not_resumed_with_other_data_or_fewer_evaluations() {
    let dir = tempfile::tempdir().unwrap();
    begin(&create(dir.path(), &7), 3.5).unwrap();
    let resume =
        |evaluations, data| open(dir.path(), Start::Resumed, &7).unwrap().begin(3.5, evaluations, data);
    assert!(problem(resume(3, [0, 2])).contains("other training data"));
    assert!(problem(resume(3, [1, 0])).contains("other validation data"));
    assert!(problem(resume(2, [1, 2])).contains("a run of 3 evaluations, now 2"));
    resume(5, [1, 2]).unwrap();
    assert!(problem(resume(4, [1, 2])).contains("a run of 5 evaluations, now 4"));
    assert_eq!(checksum_of(&["a", "b"]), checksum_of(&["a", "b"]));
    assert_ne!(checksum_of(&["a", "b"]), checksum_of(&["a", "c"]));
}

#[test]
fn two_trainings_do_not_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = [create(dir.path(), &7), create(dir.path(), &7)];
    let overwriting = open(dir.path(), Start::Overwriting, &7).unwrap();
    let lock = begin(&first, 3.5).unwrap();
    for other in [&second, &overwriting] {
        assert!(problem(begin(other, 3.5)).contains("in use"));
    }
    drop(lock);
    assert!(problem(begin(&second, 3.5)).contains("holds a run already"));
    let third = open(dir.path(), Start::Resumed, &7).unwrap();
    begin(&third, 3.5).unwrap();
    begin(&overwriting, 9.5).unwrap();
    let message = problem(begin(&open(dir.path(), Start::Resumed, &7).unwrap(), 3.5));
    assert!(message.contains("a loss of 9.5"), "the run that replaced it: {message}");
}

#[test]
fn a_start_that_was_broken_off_does_not_stand_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("training")).unwrap();
    fs::write(dir.path().join("training/lock"), "").unwrap();
    fs::write(dir.path().join("training/run.json.unfinished"), "{\"sett").unwrap();
    let run = create(dir.path(), &7);
    fs::write(dir.path().join("training/mine"), "").unwrap();
    for start in [Start::New, Start::Overwriting] {
        assert!(problem(open(dir.path(), start, &7)).contains("not empty"));
    }
    begin(&run, 3.5).unwrap();
}

/// A kill in the middle of a write leaves a file of another name, which is not read.
#[test]
fn the_beginning_is_written_whole() {
    let dir = tempfile::tempdir().unwrap();
    let run = create(dir.path(), &7);
    let folder = dir.path().join("training");
    // What is in the way of the new file is an error, and no half of it is left.
    fs::create_dir_all(folder.join("run.json.unfinished")).unwrap();
    assert!(matches!(begin(&run, 3.5), Err(Error::Io { .. })));
    fs::remove_dir(folder.join("run.json.unfinished")).unwrap();
    begin(&run, 3.5).unwrap();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["lock", "run.json"]);
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
    begin(&create(dir.path(), &begun), 3.5).unwrap();
    for (now, differences) in [
        (Settings { epochs: 5, layers: vec![1, 2], ..begun }, "epochs: 3, now 5;"),
        (
            Settings { rate: None, layers: vec![1, 2], ..begun },
            "rate: Some, now None; rate.0: 0.1, now missing;",
        ),
        (Settings { layers: vec![1, 4, 5], ..begun }, "layers.1: 2, now 4; layers.2: 5, which is new;"),
        (Settings { text: "a }", layers: vec![1, 2], ..begun }, "text: \"a {\", now \"a }\";"),
    ] {
        let problem = problem(open(dir.path(), Start::Resumed, &now));
        assert!(problem.contains(&format!("with other settings: {differences} resume")), "{problem}");
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_in_the_folder_of_a_run_is_refused() {
    use super::history::History;
    use std::process::Command;
    for name in ["run.json", "lock", "checkpoint/model-1.bpk", "train/epoch-1/Loss.log"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("training").join(name);
        let run = create(dir.path(), &7);
        if name != "lock" {
            begin(&run, 3.5).unwrap();
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        // Opening a FIFO would wait for ever.
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = match name {
            "lock" => begin(&run, 3.5).map(drop),
            "train/epoch-1/Loss.log" => History::read(&dir.path().join("training"), &[], 1).map(drop),
            _ => open(dir.path(), Start::Resumed, &7).map(drop),
        };
        assert!(error.unwrap_err().to_string().contains("a FIFO"), "{name}");
    }
}
