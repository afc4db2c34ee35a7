//! The trainer on ranks: the same model as of one process, faults in its loop, and kills at any moment.

use crate::heads::{bert, classes, texts};
use crate::hook::Hook;
use crate::prelude::*;
use crate::{FOLDER, launch, mpirun, timed_launch};
use burn_bert::optim::LrSchedule;
use burn_bert::pipeline::Pipeline;
use burn_bert::text::BertTokenizer;
use burn_bert::training::{EvalStrategy, History, Trainer, TrainingArguments};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const BATCH: usize = 4;
/// The last step of an epoch has fewer texts on some ranks.
const TEXTS: usize = 45;
/// In one test, if the environment does not say it.
const KILLS: usize = 6;

/// A classifier after some epochs, on `ranks`, which all together take batches of `size` · [`BATCH`].
fn train(
    ranks: &Ranks,
    size: usize,
    output: &Path,
    epochs: usize,
    fault: &str,
) -> Result<(BertForSequenceClassification, History)> {
    let device = ranks.device();
    device.seed(1 + ranks.rank() as u64);
    let config = BertForSequenceClassificationConfig::new(bert()).with_num_labels(3);
    let config = config.with_class_weights(Some(vec![0.05, 0.2, 0.003])); // counts below 1
    let model = cast_module(config.init(&device.autodiff()), FloatDType::F64)?;
    let words = tempfile::tempdir().unwrap();
    fs::write(words.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n").unwrap();
    let pipeline = Pipeline::new(model, BertTokenizer::from_pretrained(words.path())?)?;

    let is = |name: &str| name == fault;
    let all = texts(0, TEXTS);
    let batches = |texts: Vec<Vec<i64>>, is_readable: bool| {
        Batches::new(InMemDataset::new(texts), move |items: &[Vec<i64>], device: &_| {
            if !is_readable && items[0] == crate::heads::texts(0, TEXTS)[8] {
                return Err(Error::Data { what: "a text".into(), problem: "cannot be read".into() });
            }
            Ok(classes(items, device))
        })
    };
    let data = batches(all.clone(), true).with_lengths(all.iter().map(Vec::len).collect());
    // Six batches, the last with one text.
    let valid = batches(all[..11].to_vec(), !(is("unreadable") && ranks.rank() == 1));
    let arguments = TrainingArguments::new(output)
        .with_ranks(ranks)
        .with_resume(output.join("training/run.json").exists())
        .with_epochs(epochs)
        .with_batch_size(BATCH * size / ranks.size())
        .with_eval_batch_size(2)
        .with_gradient_accumulation_steps(2)
        .with_learning_rate(1e-3)
        .with_lr_schedule(LrSchedule::Constant)
        .with_warmup_steps(0)
        .with_max_grad_norm(0.5)
        .with_early_stopping_patience(8)
        .with_silent(true)
        .with_seed(3);
    let arguments = match is("moved") {
        // Epochs of four batches of a rank, whatever their number.
        true => arguments.with_max_steps(2 * epochs).with_eval_strategy(EvalStrategy::Steps(2)),
        false => arguments,
    };
    let interrupter = Interrupter::new();
    if is("stop") && ranks.rank() == 1 {
        interrupter.stop(Some("on purpose"));
    }
    let (stop, in_the_way) = (interrupter.clone(), output.join("training"));
    let hook = match fault {
        "stop-later" if ranks.rank() == 1 => Hook::new(move |_| stop.stop(Some("on purpose"))),
        "disk" if ranks.is_first() => Hook::at(1, move || {
            fs::remove_dir_all(&in_the_way).unwrap();
            fs::write(&in_the_way, "no folder").unwrap();
        }),
        _ => Hook::new(|_| ()),
    };
    let trainer = Trainer::new(pipeline, data, arguments)?
        .with_validation(valid)
        .with_metric(hook)
        .with_interrupter(&interrupter);
    let trained = trainer.train()?;
    ranks.same("history", &trained.history)?;
    match trained.interrupted {
        Some(reason) => {
            Err(Error::Data { what: "the training".into(), problem: format!("was stopped: {reason}") })
        }
        None => Ok((trained.pipeline.into_parts().0, trained.history)),
    }
}

/// The task of a rank.
pub fn run(ranks: &Ranks, task: &str) -> Result<()> {
    let folder = env::var(FOLDER).unwrap();
    let folder = Path::new(&folder);
    fs::write(folder.join(format!("pid-{}", ranks.rank())), std::process::id().to_string()).unwrap();
    let (task, epochs) = match task.split_once(' ') {
        Some((task, epochs)) => (task, epochs.parse().unwrap()),
        None => (task, if task == "killed" { 8 } else { 2 }),
    };
    let name = if task == "learner" { "shared" } else { task };
    let (model, history) = train(ranks, ranks.size(), &folder.join(name), epochs, task)?;
    let found = all_values(&model);
    ranks.same("model", &found)?;
    if task == "learner" {
        let alone = folder.join(format!("alone-{}", ranks.rank()));
        let (alone, alone_history) = train(&Ranks::single(), ranks.size(), &alone, epochs, task)?;
        let error = largest_difference(&found, &all_values(&alone));
        assert!(error <= 1e-12, "{error:e} from one process");
        assert_eq!((history.evaluations.len(), alone_history.evaluations.len()), (2, 2));
        for (found, alone) in history.evaluations.iter().zip(&alone_history.evaluations) {
            assert!(found.valid["Loss"] > 0.0 && found.valid.keys().eq(alone.valid.keys()), "{found:?}");
            let is_close = |(name, value): (&String, &f64)| (value - alone.valid[name]).abs() <= 1e-12;
            assert!(found.valid.iter().all(is_close), "{found:?} for {alone:?}");
        }
        println!("\n{error:e} from one process");
    }
    if ranks.is_first() {
        fs::write(folder.join("weights"), format!("{found:?}")).unwrap();
    }
    Ok(())
}

#[test]
fn the_trainer_on_ranks_trains_the_model_of_one_process() {
    for ranks in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        launch("learner", ranks, Some(folder.path())).unwrap();
    }
}

/// Parts of four batches of a rank, of which there is one, then three, then two.
#[test]
fn a_run_moves_to_other_numbers_of_ranks_at_the_same_place_of_the_data() {
    let folder = tempfile::tempdir().unwrap();
    for (ranks, epochs) in [(1, 1), (3, 3), (2, 7)] {
        launch(&format!("moved {epochs}"), ranks, Some(folder.path())).unwrap();
    }
    let state = fs::read(folder.path().join("moved/training/checkpoint-7/state.msgpack")).unwrap();
    let (_history, items, _checksums): (History, usize, [u32; 2]) = rmp_serde::from_slice(&state).unwrap();
    assert_eq!(items, 4 * BATCH * (1 + 2 * 3 + 4 * 2), "whatever number of ranks shares a step");
}

#[test]
fn a_run_whose_ranks_are_killed_at_any_moment_ends_as_if_they_were_not() {
    let folder = tempfile::tempdir().unwrap();
    let (output, mut whole) = timed_launch("killed", 2, Some(folder.path()));
    output.unwrap();
    let expected = fs::read(folder.path().join("weights")).unwrap();
    let most = env::var("BURN_BERT_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut kills = 0;
    while kills < most {
        let folder = tempfile::tempdir().unwrap();
        // Each start is killed a bit later than the one before, until one ends first.
        for attempt in 1u32.. {
            // A process of the attempt before has ended, and its number may be another's.
            (0..2).for_each(|rank| drop(fs::remove_file(folder.path().join(format!("pid-{rank}")))));
            let mut mpirun = mpirun("killed", 2, Some(folder.path()));
            let start = Instant::now();
            let mut mpirun = mpirun.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let wait = whole * (3 + (attempt * 7 + kills as u32 * 5) % 11) / 13;
            thread::sleep(wait + Duration::from_millis(u64::from(attempt) * 20));
            let victim = folder.path().join(format!("pid-{}", (attempt as usize + kills) % 2));
            while mpirun.try_wait().unwrap().is_none() {
                // On a busy machine it may not have been started yet.
                match fs::read_to_string(&victim).ok().filter(|pid| !pid.is_empty()) {
                    Some(pid) => {
                        Command::new("kill").args(["-9", &pid]).status().unwrap();
                        break;
                    }
                    None => thread::sleep(Duration::from_millis(5)),
                }
            }
            if mpirun.wait().unwrap().success() {
                // The first run of all may have been slower than these, which would then end before they are killed.
                whole = if attempt == 1 { whole.min(start.elapsed() * 3 / 4) } else { whole };
                break;
            }
            kills += 1;
        }
        assert!(fs::read(folder.path().join("weights")).unwrap() == expected, "after {kills} kills");
    }
    println!("{kills} kills, a whole run takes {whole:?}");
}
