//! The folder of a run of the trainer: what a resumed one makes of files that are damaged, lost, or of another model, what it
//! refuses, and what a kill leaves in it.

use crate::checkpoint::{arguments, checkpoint, reviews, text};
use crate::files::{json, walk};
use crate::prelude::*;
use crate::runs::{refused, trained, trainer, weights};

/// To the end of so many epochs, from the last checkpoint if there is one, with rates that do not depend on their number.
fn settings(out: &Path, epochs: usize) -> TrainingArguments {
    let arguments = arguments(out).with_epochs(epochs).with_resume(out.exists());
    arguments.with_lr_schedule(LrSchedule::Constant).with_warmup_steps(2)
}

fn train(model: &Path, out: &Path, epochs: usize) -> Trained<BertForSequenceClassification> {
    trained(model, settings(out, epochs))
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
    let names = walk(&out.join("training")).into_iter().map(|path| path.to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("checkpoint-")).collect();
    names.sort();
    names
}

#[test]
fn a_run_goes_on_from_the_last_checkpoint_that_is_whole() {
    let (_turn, dir) = (turn(), checkpoint());
    let whole = train(dir.path(), &dir.path().join("whole"), 3);
    // One flipped bit; a model's record in the place of an optimizer's, which Burn would take; a part that is lost; a state of
    // another number.
    type Damage = fn(&Path);
    let damages: [Damage; 4] = [
        |folder| flip(&folder.join("checkpoint-2/optimizer.bpk")),
        |folder| {
            let [model, optimizer] =
                ["model", "optimizer"].map(|name| folder.join(format!("checkpoint-2/{name}.bpk")));
            fs::copy(model, optimizer).unwrap();
        },
        |folder| fs::remove_file(folder.join("checkpoint-2/state.msgpack")).unwrap(),
        |folder| {
            let [first, second] =
                [1, 2].map(|number| folder.join(format!("checkpoint-{number}/state.msgpack")));
            fs::copy(first, second).unwrap();
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let out = dir.path().join(number.to_string());
        train(dir.path(), &out, 2);
        let folder = out.join("training");
        damage(&folder);
        let unfinished = folder.join("checkpoint-4.unfinished");
        fs::create_dir(&unfinished).unwrap();
        fs::write(unfinished.join("model.bpk"), "half").unwrap();
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
    let folder = out.join("training");
    let resume = || trainer(dir.path(), settings(&out, 3)).unwrap().train();
    // Of a classifier of three classes.
    let three = ["a", "b", "c"].map(String::from).to_vec();
    let three =
        LabelledTexts::new((0..6).map(|i| text("good", Label::Class(i % 3))).collect(), three).unwrap();
    let other = dir.path().join("other");
    Trainer::from_pretrained(dir.path(), three, arguments(&other).with_epochs(2)).unwrap().train().unwrap();
    for name in names(&out).iter().filter(|name| name.starts_with("checkpoint-2")) {
        fs::copy(other.join("training").join(name), folder.join(name)).unwrap();
    }
    says(resume(), "model.bpk does not fit the model");
    names(&out).iter().for_each(|name| flip(&folder.join(name)));
    says(resume(), "is damaged");
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
    let files = ["model.bpk", "optimizer.bpk", "state.msgpack"];
    let kept = [1, 4, 5].iter().flat_map(|number| files.map(|file| format!("checkpoint-{number}/{file}")));
    assert_eq!(names(&out), kept.collect::<Vec<_>>());
}

fn one_epoch(output: &Path) -> TrainingArguments {
    arguments(output).with_epochs(1)
}

#[test]
fn a_run_is_resumed_at_the_loss_that_its_first_start_had_and_nowhere_else() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let file = out.join("training/run.json");
    trained(dir.path(), one_epoch(&out));
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
    trained(dir.path(), out.clone());
    let out = out.with_resume(true);
    // Whatever may change is not named.
    trained(dir.path(), out.clone().with_epochs(2).with_silent(true));

    for (now, differences) in [
        (out.clone().with_seed(7), "seed: 42, now 7;"),
        (out.clone().with_max_grad_norm(1e300), "max_grad_norm: none, now 1e+300;"),
        (out.clone().with_layer_decay(0.3), "layer_decay: 0.30000000000000004, now 0.3;"),
        (
            out.clone().with_tuning(Tuning::FrozenEmbeddings).with_max_length(9),
            "max_length: none, now 9; tuning: Full, now FrozenEmbeddings;",
        ),
    ] {
        says(refused(dir.path(), now), &format!("with other settings: {differences} resume"));
    }
    for (train, valid, expected) in [(40, 8, "other training data"), (48, 12, "other validation data")] {
        let trainer = Trainer::from_pretrained(dir.path(), reviews(train), out.clone().with_epochs(2));
        says(trainer.unwrap().with_validation(reviews(valid)).train(), expected);
    }

    let parts = begun("parts").with_eval_strategy(EvalStrategy::Steps(2));
    trained(dir.path(), parts.clone());
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
    trained(dir.path(), one_epoch(&out));
    assert!(!folder.join("run.json.unfinished").exists());
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_in_the_folder_of_a_run_is_refused() {
    let (_turn, dir) = (turn(), checkpoint());
    for name in ["run.json", "lock", "checkpoint-1/model.bpk", "checkpoint-1/state.msgpack"] {
        let out = dir.path().join(name.replace('/', "-"));
        let path = out.join("training").join(name);
        trained(dir.path(), one_epoch(&out));
        fs::remove_file(&path).unwrap();
        // Opening a FIFO would wait for ever.
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        says(refused(dir.path(), one_epoch(&out).with_resume(true)), "a FIFO");
    }
}
