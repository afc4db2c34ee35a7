//! The folder of a run: what it refuses, and what a kill leaves in it.

use burn_bert::Error;
use burn_bert::training::{Losses, Run};
use std::fs;
use std::path::Path;

#[test]
fn a_loss_that_is_no_number_neither_begins_nor_resumes_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let open = |resume| Run::open(dir.path(), &7, resume).unwrap();
    for loss in [f64::NAN, f64::INFINITY] {
        let error = open(false).begin(&7, loss).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
    }
    open(false).begin(&7, 3.5).unwrap();
    open(true).begin(&7, 3.501).unwrap();
    for loss in [f64::NAN, f64::INFINITY, 3.6] {
        let error = open(true).begin(&7, loss).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
    }
}

/// A kill in the middle of a write leaves a file of another name, which nobody reads.
#[test]
fn files_are_written_whole() {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::open(dir.path().join("output"), &7, false).unwrap();
    run.begin(&7, 3.5).unwrap();
    run.write("state.json", &[1, 2, 3]).unwrap();
    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(run.folder()), ["run.json", "state.json"]);
    // What stands in the way of the new file leaves the old one.
    fs::create_dir(run.folder().join("state.json.unfinished")).unwrap();
    assert!(matches!(run.write("state.json", &[4]), Err(Error::Io { .. })));
    assert_eq!(run.read::<Vec<i32>>("state.json").unwrap().unwrap(), [1, 2, 3]);

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
