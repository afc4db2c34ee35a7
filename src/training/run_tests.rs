//! The folder of a run: what it refuses, and what a kill leaves in it.

use super::arguments::{Plan, TrainingArguments, Tuning};
use super::run::{Lock, Run, checksum_of};
use crate::error::{Error, Result};
use std::fmt::Debug;
use std::fs;
use std::path::Path;

fn resume(output: &Path) -> Result<Run> {
    Run::open(&TrainingArguments::new(output).with_resume(true))
}

fn overwrite(output: &Path) -> Result<Run> {
    Run::open(&TrainingArguments::new(output).with_overwrite_output_dir(true))
}

fn create(output: &Path) -> Run {
    Run::open(&TrainingArguments::new(output)).unwrap()
}

fn begin(run: &Run, loss: f64) -> Result<Lock> {
    run.begin(loss, plan(3), [1, 2])
}

fn plan(evaluations: usize) -> Plan {
    Plan { evaluations, steps: 5, parts: 1, batches: None }
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
        problem(begin(&create(dir.path()), loss));
    }
    begin(&create(dir.path()), 3.5).unwrap();
    // A little at a time: what it began at is what the first start said.
    for loss in [3.501, 3.502, 3.503] {
        begin(&resume(dir.path()).unwrap(), loss).unwrap();
    }
    for loss in [f64::NAN, f64::INFINITY, 3.504, 3.6] {
        problem(begin(&resume(dir.path()).unwrap(), loss));
    }
}

#[test]
fn a_run_is_not_resumed_with_other_data_or_fewer_evaluations() {
    let dir = tempfile::tempdir().unwrap();
    begin(&create(dir.path()), 3.5).unwrap();
    let begin_again = |evaluations, data| resume(dir.path()).unwrap().begin(3.5, plan(evaluations), data);
    assert!(problem(begin_again(3, [0, 2])).contains("other training data"));
    assert!(problem(begin_again(3, [1, 0])).contains("other validation data"));
    assert!(problem(begin_again(2, [1, 2])).contains("a run of 3 evaluations, now 2"));
    let in_parts = Plan { batches: Some(5), ..plan(3) };
    let other = resume(dir.path()).unwrap().begin(3.5, in_parts, [1, 2]);
    assert!(problem(other).contains("another number of batches between two evaluations"));
    begin_again(5, [1, 2]).unwrap();
    assert!(problem(begin_again(4, [1, 2])).contains("a run of 5 evaluations, now 4"));
    assert_eq!(checksum_of(&["a", "b"]), checksum_of(&["a", "b"]));
    assert_ne!(checksum_of(&["a", "b"]), checksum_of(&["a", "c"]));
}

#[test]
fn two_trainings_do_not_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = [create(dir.path()), create(dir.path())];
    let overwriting = overwrite(dir.path()).unwrap();
    let lock = begin(&first, 3.5).unwrap();
    for other in [&second, &overwriting] {
        assert!(problem(begin(other, 3.5)).contains("in use"));
    }
    drop(lock);
    assert!(problem(begin(&second, 3.5)).contains("holds a run already"));
    let third = resume(dir.path()).unwrap();
    begin(&third, 3.5).unwrap();
    begin(&overwriting, 9.5).unwrap();
    let message = problem(begin(&resume(dir.path()).unwrap(), 3.5));
    assert!(message.contains("a loss of 9.5"), "the run that replaced it: {message}");
}

#[test]
fn a_start_that_was_broken_off_does_not_stand_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("training")).unwrap();
    fs::write(dir.path().join("training/lock"), "").unwrap();
    fs::write(dir.path().join("training/run.json.unfinished"), "{\"sett").unwrap();
    let run = create(dir.path());
    fs::write(dir.path().join("training/mine"), "").unwrap();
    assert!(problem(Run::open(&TrainingArguments::new(dir.path()))).contains("not empty"));
    assert!(problem(overwrite(dir.path())).contains("not empty"));
    begin(&run, 3.5).unwrap();
}

/// A kill in the middle of a write leaves a file of another name, which is not read.
#[test]
fn the_beginning_is_written_whole() {
    let dir = tempfile::tempdir().unwrap();
    let run = create(dir.path());
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
fn each_setting_that_differs_is_named_and_whatever_may_change_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let begun = TrainingArguments::new(dir.path());
    let begun = begun.with_max_grad_norm(f64::INFINITY).with_layer_decay(0.1 + 0.2);
    begin(&Run::open(&begun).unwrap(), 3.5).unwrap();
    let begun = begun.with_resume(true);
    Run::open(&begun.clone().with_epochs(9).with_max_steps(7).with_silent(true)).unwrap();
    for (now, differences) in [
        (begun.clone().with_seed(7), "seed: 42, now 7;"),
        (begun.clone().with_max_grad_norm(1e300), "max_grad_norm: inf, now 1e300;"),
        (begun.clone().with_layer_decay(0.3), "layer_decay: Some(0.30000000000000004), now Some(0.3);"),
        (
            begun.clone().with_tuning(Tuning::FrozenEmbeddings).with_max_length(9),
            "max_length: None, now Some(9); tuning: Full, now FrozenEmbeddings;",
        ),
    ] {
        let problem = problem(Run::open(&now));
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
        let run = create(dir.path());
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
            _ => resume(dir.path()).map(drop),
        };
        assert!(error.unwrap_err().to_string().contains("a FIFO"), "{name}");
    }
}
