//! The files of a run of the trainer: what a resumed one makes of those that are damaged, lost, or of another model.

use crate::checkpoint::{arguments, checkpoint, text};
use crate::prelude::*;
use crate::runs::{trainer, weights};

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
    let entries = fs::read_dir(out.join("training/checkpoint")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
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
    let resume = || trainer(dir.path(), settings(&out, 3)).unwrap().train().err().unwrap().to_string();
    // Of a classifier of three classes.
    let three = ["a", "b", "c"].map(String::from).to_vec();
    let three =
        LabelledTexts::new((0..6).map(|i| text("good", Label::Class(i % 3))).collect(), three).unwrap();
    let other = dir.path().join("other");
    Trainer::from_pretrained(dir.path(), three, arguments(&other).with_epochs(2)).unwrap().train().unwrap();
    let kept: Vec<_> =
        names(&out).iter().map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())).collect();
    for kind in ["model", "optim", "scheduler"] {
        let name = format!("{kind}-2.bpk");
        fs::copy(other.join("training/checkpoint").join(&name), folder.join(name)).unwrap();
    }
    let message = resume();
    assert!(message.contains("model-2.bpk does not fit the model"), "{message}");
    for (name, bytes) in kept {
        fs::write(folder.join(name), bytes).unwrap();
    }
    names(&out).iter().for_each(|name| flip(&folder.join(name)));
    let message = resume();
    assert!(message.contains("is damaged"), "{message}");
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
