//! The folder of a run of the trainer: what a resumed one makes of files that are damaged, lost, or of another model, what it
//! refuses, and what a kill leaves in it.

use crate::checkpoint::{arguments, checkpoint, reviews, text};
use crate::files::{files_of, json};
use crate::prelude::*;
use crate::runs::{refused, trainer, weights};

/// To the end of so many epochs, from the last checkpoint if there is one, with rates that do not depend on their number.
fn settings(out: &Path, epochs: usize) -> TrainingArguments {
    let arguments = arguments(out).with_epochs(epochs).with_resume(out.exists());
    arguments.with_lr_schedule(LrSchedule::Constant).with_warmup_steps(2)
}

fn train(model: &Path, out: &Path, epochs: usize) -> Trained<BertForSequenceClassification> {
    trainer(model, settings(out, epochs)).unwrap().train().unwrap()
}

/// Changes one bit.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(path, bytes).unwrap();
}

/// The files of the checkpoints, sorted.
fn names(out: &Path) -> Vec<String> {
    files_of(out.join("training/checkpoint")).into_keys().collect()
}

#[test]
fn a_run_goes_on_from_the_last_checkpoint_that_is_whole() {
    let (_turn, dir) = (turn(), checkpoint());
    let whole = train(dir.path(), &dir.path().join("whole"), 3);
    // One flipped bit; a model's record in the place of an optimizer's, which Burn would take; half of the files.
    type Damage = fn(&Path);
    let damages: [Damage; 3] = [
        |folder| flip(&folder.join("optim-2.bpk")),
        |folder| assert!(fs::copy(folder.join("model-2.bpk"), folder.join("optim-2.bpk")).is_ok()),
        |folder| fs::remove_file(folder.join("scheduler-2.bpk")).unwrap(),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let out = dir.path().join(number.to_string());
        train(dir.path(), &out, 2);
        let folder = out.join("training/checkpoint");
        damage(&folder);
        let unfinished = folder.join("model-3.bpk.unfinished.77-7.tmp");
        fs::write(&unfinished, "half").unwrap();
        let resumed = train(dir.path(), &out, 3);
        assert!(weights(&resumed) == weights(&whole), "{number}: bit for bit, with dropout on");
        assert_eq!(resumed.history, whole.history);
        assert!(!unfinished.exists(), "what a killed process left is removed");
    }
}

#[test]
fn damaged_checkpoints_and_those_of_another_model_are_errors() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    train(dir.path(), &out, 2);
    let folder = out.join("training/checkpoint");
    let resume = || trainer(dir.path(), settings(&out, 3)).unwrap().train();
    // Of a classifier of three classes.
    let three = ["a", "b", "c"].map(String::from).to_vec();
    let three =
        LabelledTexts::new((0..6).map(|i| text("good", Label::Class(i % 3))).collect(), three).unwrap();
    let other = dir.path().join("other");
    Trainer::from_pretrained(dir.path(), three, arguments(&other).with_epochs(2)).unwrap().train().unwrap();
    for kind in ["model", "optim", "scheduler"] {
        let name = format!("{kind}-2.bpk");
        fs::copy(other.join("training/checkpoint").join(&name), folder.join(name)).unwrap();
    }
    says(resume(), "model-2.bpk does not fit the model");
    names(&out).iter().for_each(|name| flip(&folder.join(name)));
    says(resume(), "is damaged");
}

/// Replaces a record, with the checksum that fits.
fn forge(folder: &Path, kind: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let path = folder.join(format!("{kind}-2.bpk"));
    let mut record = fs::read(&path).unwrap();
    record.truncate(record.len() - 4);
    change(&mut record);
    let mut sum = crc32fast::Hasher::new();
    sum.update(kind.as_bytes());
    sum.update(&record);
    record.extend(sum.finalize().to_le_bytes());
    fs::write(path, record).unwrap();
}

#[test]
fn each_of_the_three_records_of_a_checkpoint_is_read_before_the_first_step() {
    let (_turn, dir) = (turn(), checkpoint());
    let [out, other] = ["out", "other"].map(|name| dir.path().join(name));
    train(dir.path(), &out, 2);
    train(dir.path(), &other, 2);
    let folder = out.join("training/checkpoint");
    let of_other = |kind: &str| {
        let mut record = fs::read(other.join(format!("training/checkpoint/{kind}-2.bpk"))).unwrap();
        record.truncate(record.len() - 4);
        record
    };
    type Change<'a> = Box<dyn FnOnce(&mut Vec<u8>) + 'a>;
    let rows: [(&str, Change, &str); 5] = [
        ("scheduler", Box::new(|record| record.truncate(20)), "scheduler-2.bpk is no schedule"),
        ("optim", Box::new(|record| record.truncate(20)), "optim-2.bpk does not fit the model"),
        // Its parameters have other ids.
        ("optim", Box::new(|record| *record = of_other("optim")), "which no parameter has"),
        // A record without state, with which every parameter would begin anew.
        (
            "optim",
            Box::new(|record| *record = of_other("scheduler")),
            "optim-2.bpk does not fit the model: has no state",
        ),
        ("model", Box::new(|record| record.truncate(20)), "model-2.bpk does not fit the model"),
    ];
    for (kind, change, expected) in rows {
        let whole = fs::read(folder.join(format!("{kind}-2.bpk"))).unwrap();
        forge(&folder, kind, change);
        let resumed = trainer(dir.path(), settings(&out, 3)).unwrap();
        let resumed = resumed.with_metric(Hook::new(|_| panic!("a step was taken"))).train();
        says(resumed, expected);
        fs::write(folder.join(format!("{kind}-2.bpk")), whole).unwrap();
    }
    train(dir.path(), &out, 3);
}

#[test]
fn the_last_two_checkpoints_are_kept_and_the_best_also_across_a_resume() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let train = |epochs| {
        let arguments = arguments(&out).with_epochs(epochs).with_resume(out.exists());
        let arguments = arguments.with_metric_for_best_model("Hook").with_greater_is_better(false);
        trainer(dir.path(), arguments).unwrap().with_metric(Hook::new(|_| ())).train().unwrap()
    };
    train(2);
    let trained = train(5);
    // The hook counts anew in each process, so epoch 3 is as good as 1, which came first.
    assert_eq!(trained.history.best, Some(0), "{}", trained.history);
    let kept = ["model", "optim", "scheduler"]
        .iter()
        .flat_map(|kind| [1, 4, 5].map(|epoch| format!("{kind}-{epoch}.bpk")));
    assert_eq!(names(&out), kept.collect::<Vec<_>>());
}

#[cfg(target_os = "linux")]
#[test]
fn a_history_that_cannot_be_written_for_a_while_does_not_end_the_run_and_loses_nothing() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let unwritable = out.join("training/history.msgpack.unfinished");
    let hook = Hook::new(move |batch| match batch {
        1 => std::os::unix::fs::symlink("/dev/full", &unwritable).unwrap(),
        // The second evaluation was not written.
        13 => fs::remove_file(&unwritable).unwrap(),
        _ => {}
    });
    let trained = trainer(dir.path(), arguments(&out)).unwrap().with_metric(hook).train().unwrap();
    assert_eq!((trained.history.losses.len(), trained.history.evaluations.len()), (18, 3));
    assert!(trained.history.evaluations.iter().all(|evaluation| evaluation.train.contains_key("Loss")));
    assert!(trained.history.valid("Loss").iter().all(Option::is_some));
    // All of them are in the file that the third one wrote.
    let resumed =
        trainer(dir.path(), arguments(&out).with_resume(true)).unwrap().with_metric(Hook::new(|_| ()));
    assert_eq!(resumed.train().unwrap().history.evaluations, trained.history.evaluations);
}

fn one_epoch(output: &Path) -> TrainingArguments {
    arguments(output).with_epochs(1)
}

#[test]
fn a_run_is_resumed_at_the_loss_that_its_first_start_had_and_nowhere_else() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let file = out.join("training/run.json");
    trainer(dir.path(), one_epoch(&out)).unwrap().train().unwrap();
    let mut run = json(&file);
    let loss = run["loss"].as_f64().unwrap();
    for (share, is_resumed) in [(1.0009, true), (0.9991, true), (1.0011, false), (0.9989, false)] {
        run["loss"] = (loss * share).into();
        fs::write(&file, run.to_string()).unwrap();
        let resumed = trainer(dir.path(), one_epoch(&out).with_resume(true)).unwrap().train();
        match resumed {
            Ok(_) => {
                let now = json(&file);
                // Else it would drift, a little at each start.
                assert!(is_resumed && now["loss"] == run["loss"], "{share}: {now}");
            }
            Err(error) => {
                assert!(!is_resumed && error.to_string().contains("a run that began at a loss"), "{error}");
            }
        }
    }
}

#[test]
fn a_run_is_not_resumed_with_other_data_settings_or_parts() {
    let (_turn, dir) = (turn(), checkpoint());
    let begun = |name: &str| one_epoch(&dir.path().join(name)).with_max_grad_norm(f64::INFINITY);
    let out = begun("out").with_layer_decay(0.1 + 0.2);
    trainer(dir.path(), out.clone()).unwrap().train().unwrap();
    let out = out.with_resume(true);
    // Whatever may change is not named.
    trainer(dir.path(), out.clone().with_epochs(2).with_silent(true)).unwrap().train().unwrap();

    for (now, differences) in [
        (out.clone().with_seed(7), "seed: 42, now 7;"),
        (out.clone().with_max_grad_norm(1e300), "max_grad_norm: inf, now 1e300;"),
        (out.clone().with_layer_decay(0.3), "layer_decay: Some(0.30000000000000004), now Some(0.3);"),
        (
            out.clone().with_tuning(Tuning::FrozenEmbeddings).with_max_length(9),
            "max_length: None, now Some(9); tuning: Full, now FrozenEmbeddings;",
        ),
    ] {
        says(refused(dir.path(), now), &format!("with other settings: {differences} resume"));
    }
    for (train, valid, expected) in [(40, 8, "other training data"), (48, 12, "other validation data")] {
        let trainer = Trainer::from_pretrained(dir.path(), reviews(train), out.clone().with_epochs(2));
        says(trainer.unwrap().with_validation(reviews(valid)).train(), expected);
    }

    let parts = begun("parts").with_eval_strategy(EvalStrategy::Steps(2));
    trainer(dir.path(), parts.clone()).unwrap().train().unwrap();
    let parts = parts.with_resume(true).with_devices(vec![Device::default(); 2]);
    says(refused(dir.path(), parts), "another number of batches between two evaluations");
}

#[test]
fn two_runs_do_not_share_a_directory() {
    let (_turn, dir) = (turn(), checkpoint());
    let (model, out) = (dir.path().to_path_buf(), dir.path().join("out"));
    let other = one_epoch(&out).with_overwrite_output_dir(true);
    let hook = Hook::at(1, move || says(refused(&model, other.clone()), "is in use by another training run"));
    let trained = trainer(dir.path(), one_epoch(&out)).unwrap().with_metric(hook).train().unwrap();
    assert_eq!(trained.history.losses.len(), 6);
}

#[test]
fn a_start_that_was_broken_off_does_not_stand_in_the_way_and_what_is_in_the_way_is_an_error() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let folder = out.join("training");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("lock"), "").unwrap();
    fs::write(folder.join("run.json.unfinished"), "{\"sett").unwrap();
    fs::write(folder.join("mine"), "").unwrap();
    for overwrites in [false, true] {
        says(refused(dir.path(), one_epoch(&out).with_overwrite_output_dir(overwrites)), "is not empty");
    }
    fs::remove_file(folder.join("mine")).unwrap();
    // A file that cannot be written whole is not written at all.
    fs::remove_file(folder.join("run.json.unfinished")).unwrap();
    fs::create_dir(folder.join("run.json.unfinished")).unwrap();
    fails!(trainer(dir.path(), one_epoch(&out)).unwrap().train(), Error::Io { .. });
    assert!(!folder.join("run.json").exists());
    fs::remove_dir(folder.join("run.json.unfinished")).unwrap();
    fs::write(folder.join("run.json.unfinished"), "{\"sett").unwrap();
    trainer(dir.path(), one_epoch(&out)).unwrap().train().unwrap();
    assert!(!folder.join("run.json.unfinished").exists());
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_in_the_folder_of_a_run_is_refused() {
    let (_turn, dir) = (turn(), checkpoint());
    for name in ["run.json", "lock", "checkpoint/model-1.bpk", "history.msgpack"] {
        let out = dir.path().join(name.replace('/', "-"));
        let path = out.join("training").join(name);
        trainer(dir.path(), one_epoch(&out)).unwrap().train().unwrap();
        fs::remove_file(&path).unwrap();
        // Opening a FIFO would wait for ever.
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        says(refused(dir.path(), one_epoch(&out).with_resume(true)), "a FIFO");
    }
}
