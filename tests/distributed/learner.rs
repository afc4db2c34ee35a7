//! Burn's `Learner` on ranks: the same model as of one process, faults in its loop, and kills at any moment.

use crate::heads::{bert, padded, values};
use crate::{TASK, launch, text};
use burn::data::dataloader::DataLoader;
use burn::data::dataset::InMemDataset;
use burn::lr_scheduler::constant::ConstantLr;
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn::train::metric::LossMetric;
use burn::train::{Interrupter, Learner, SupervisedTraining};
use burn_bert::data::{EpochLoader, TryBatcher};
use burn_bert::distributed::Ranks;
use burn_bert::model::{
    BertForSequenceClassification, BertForSequenceClassificationConfig, SequenceClassificationBatch,
};
use burn_bert::optim::{AdamWConfig, adamw};
use burn_bert::training::{Patience, Run, Training};
use burn_bert::{Error, Result, cast_module};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// The folder of a test, for the processes that it starts.
const FOLDER: &str = "BURN_BERT_RANK_FOLDER";
const BATCH: usize = 4;
/// The last step of an epoch has fewer texts on some ranks.
const TEXTS: usize = 45;
/// In one test, if the environment does not say it.
const KILLS: usize = 6;

struct Batcher {
    is_readable: bool,
}

impl TryBatcher for Batcher {
    type Item = Vec<i64>;
    type Batch = SequenceClassificationBatch;

    fn try_batch(&self, texts: Vec<Vec<i64>>, device: &Device) -> Result<Self::Batch> {
        if !self.is_readable && texts[0] == items()[6] {
            return Err(Error::Data { what: "a text".into(), problem: "cannot be read".into() });
        }
        let (input, padding) = padded(&texts, device);
        // One in five has no label, so batches of one size count differently.
        let label = |text: &Vec<i64>| if text[1] % 5 == 0 { -100 } else { text[0] % 3 };
        let labels: Vec<i64> = texts.iter().map(label).collect();
        SequenceClassificationBatch::single_label(input, padding, &labels)
    }
}

fn items() -> Vec<Vec<i64>> {
    let word = |text: usize, place: usize| (4 + (text * 37 + place * 11) % 26) as i64;
    (0..TEXTS).map(|text| (0..3 + text * 3 % 7).map(|place| word(text, place)).collect()).collect()
}

/// The texts of an epoch, a line each.
fn texts_of(loader: &EpochLoader<Batcher>) -> String {
    let rows = |batch: SequenceClassificationBatch| {
        let [_, seq] = batch.input.dims();
        let ids: Vec<i64> = batch.input.input_ids().unwrap().into_data().iter().collect();
        let row = |ids: &[i64]| format!("{:?}\n", ids.iter().filter(|&&id| id != 0).collect::<Vec<_>>());
        ids.chunks(seq).map(row).collect::<String>()
    };
    loader.iter().map(|batch| rows(batch.unwrap())).collect()
}

/// A classifier after some epochs, on `ranks`, which all together take batches of `size` · [`BATCH`].
fn train(
    ranks: &Ranks,
    size: usize,
    output: &Path,
    epochs: usize,
    fault: &str,
) -> Result<BertForSequenceClassification> {
    let device = ranks.device();
    device.seed(1 + ranks.rank() as u64);
    let config = BertForSequenceClassificationConfig::new(bert()).with_num_labels(3);
    let config = config.with_class_weights(Some(vec![0.5, 2.0, 0.03]));
    let model = cast_module(config.init(&device.clone().autodiff()), FloatDType::F64);
    let is_begun = output.join("training/run.json").exists();
    let run =
        if is_begun { Run::resume(output, &BATCH) } else { Run::create(output, &BATCH) }?.shared(ranks)?;
    let lengths = items().iter().map(Vec::len).collect();
    let is = |name: &str| name == fault;
    let loader = |texts, batch_size, is_readable| {
        EpochLoader::new(InMemDataset::new(texts), Batcher { is_readable }, batch_size, &device)
    };
    let train = loader(items(), BATCH * size / ranks.size(), true)?
        .with_shuffling(3)
        .with_length_bucketing(lengths)?
        .shard(ranks.rank(), ranks.size())?
        .starting_after(run.finished());
    let train = if is("moved") { train.with_batches_per_epoch(3)? } else { train };
    if is("moved") {
        let loader = train.clone();
        let texts: String = (run.finished_epochs()..epochs).map(|_| texts_of(&loader)).collect();
        let name = format!("read-{}-{}", run.finished_epochs(), ranks.rank());
        fs::write(output.with_file_name(name), texts).unwrap();
    }
    // Six batches, the last with one text.
    let valid = loader(items()[..11].to_vec(), 2, !(is("unreadable") && ranks.rank() == 1))?;
    run.begin(1.0, &[])?;
    let interrupter = Interrupter::new();
    if is("stop") && ranks.rank() == 1 {
        interrupter.stop(Some("on purpose"));
    }
    if is("disk") && ranks.is_first() {
        fs::write(run.folder().join("checkpoint"), "no folder").unwrap();
    }
    let model = Training::new(model).with_max_grad_norm(0.5).with_ranks(ranks, &interrupter)?;
    let valid = model.share_validation(Arc::new(valid));
    let training = SupervisedTraining::new(run.folder(), Arc::new(train), valid)
        .metrics((LossMetric::new(),))
        .grads_accumulation(2)
        .num_epochs(epochs)
        .with_interrupter(model.interrupter())
        .early_stopping(Patience::new(epochs).shared(ranks))
        .renderer(run.progress(&interrupter));
    let training = run.checkpointed(training, &model)?;
    let optimizer = adamw(&AdamWConfig::new().with_epsilon(1e-6)).unwrap();
    let result = training.launch(Learner::new(model, optimizer, ConstantLr::new(1e-3)));
    let failed = |problem| Error::Data { what: "the training".into(), problem };
    match (result.error, result.interrupted) {
        (Some(error), _) => Err(failed(error.to_string())),
        (None, Some(stop)) => Err(failed(format!("was stopped: {}", stop.reason.unwrap_or_default()))),
        (None, None) => Ok(result.model.model),
    }
}

fn bits(model: &BertForSequenceClassification) -> Vec<u64> {
    values(model).iter().map(|value| value.to_bits()).collect()
}

/// The task of a rank.
pub fn run(ranks: &Ranks, task: &str) -> Result<()> {
    let folder = env::var(FOLDER).unwrap();
    let folder = Path::new(&folder);
    fs::write(folder.join(format!("pid-{}", ranks.rank())), std::process::id().to_string()).unwrap();
    let name = if task == "learner" { "shared" } else { task };
    let (task, epochs) = match task.split_once(' ') {
        Some((task, epochs)) => (task, epochs.parse().unwrap()),
        None => (task, if task == "killed" { 8 } else { 2 }),
    };
    let model = train(ranks, ranks.size(), &folder.join(name), epochs, task)?;
    ranks.same("model", &bits(&model))?;
    if task == "learner" {
        let alone = folder.join(format!("alone-{}", ranks.rank()));
        let alone = train(&Ranks::single(), ranks.size(), &alone, epochs, task)?;
        let (found, expected) = (values(&model), values(&alone));
        let error = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error <= 1e-12, "{error:e} from one process");
        println!("\n{error:e} from one process");
    }
    if ranks.is_first() {
        fs::write(folder.join("weights"), format!("{:?}", bits(&model))).unwrap();
    }
    Ok(())
}

fn launch_in(folder: &Path, task: &str, ranks: usize) -> std::process::Output {
    launch(task, ranks, &[(FOLDER, folder)])
}

#[test]
fn the_learner_on_ranks_trains_the_model_of_one_process() {
    for ranks in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let output = launch_in(folder.path(), "learner", ranks);
        assert!(output.status.success(), "{}", text(&output));
        let log = |log: &str| fs::read_to_string(folder.path().join(log).join("epoch-2/Loss.log")).unwrap();
        assert_ne!(
            log("shared/training/train"),
            log("shared/training/rank-1/train"),
            "each rank's own batches"
        );
        // Each validation has a line for a batch, and one for their mean.
        let valid = log("shared/training/valid");
        assert_eq!(valid, log("shared/training/rank-1/valid"), "a shared validation");
        let numbers = |log: String| -> Vec<f64> {
            log.lines().map(|line| line.split(',').next().unwrap().parse().unwrap()).collect()
        };
        let (found, alone) = (numbers(valid), numbers(log("alone-0/training/valid")));
        assert_eq!((found.len(), alone.len()), (7, 7));
        assert!(found.iter().zip(&alone).all(|(a, b)| (a - b).abs() <= 1e-12), "{found:?} for {alone:?}");
    }
}

#[test]
fn a_run_that_moves_to_other_numbers_of_ranks_reads_every_text_once_a_pass() {
    let folder = tempfile::tempdir().unwrap();
    let mut read = Vec::new();
    // Epochs of three batches of four texts a rank: 12, 36 and 24 texts, and 15 · 12 are four passes.
    let stages = [(1, 0, 1), (3, 1, 3), (2, 3, 7)];
    for (ranks, finished, epochs) in stages {
        let output = launch_in(folder.path(), &format!("moved {epochs}"), ranks);
        assert!(output.status.success(), "{}", text(&output));
        for rank in 0..ranks {
            let path = folder.path().join(format!("read-{finished}-{rank}"));
            read.extend(fs::read_to_string(path).unwrap().lines().map(String::from));
        }
    }
    assert_eq!(read.len(), 4 * TEXTS);
    let mut counts = BTreeMap::new();
    read.iter().for_each(|text| *counts.entry(text).or_insert(0) += 1);
    assert!(counts.len() == TEXTS && counts.values().all(|&count| count == 4), "{counts:?}");
}

#[test]
fn what_one_rank_does_to_the_learner_ends_all() {
    for (fault, message) in [
        ("stop", "was stopped: another rank was stopped"), // said by rank 0 or 2
        ("disk", "rank 0 "),
        ("unreadable", "rank 1 the training: a text cannot be read"), // in a validation
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = launch_in(folder.path(), fault, 3);
        assert!(!output.status.success() && text(&output).contains(message), "{fault}: {}", text(&output));
    }
}

#[test]
fn a_run_whose_ranks_are_killed_at_any_moment_ends_as_if_they_were_not() {
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    assert!(launch_in(folder.path(), "killed", 2).status.success());
    let mut whole = start.elapsed();
    let expected = fs::read(folder.path().join("weights")).unwrap();
    let most = env::var("BURN_BERT_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut kills = 0;
    while kills < most {
        let folder = tempfile::tempdir().unwrap();
        // Each start is killed a bit later than the one before, until one ends first.
        for attempt in 1u32.. {
            // A process of the attempt before has ended, and its number may be another's.
            (0..2).for_each(|rank| drop(fs::remove_file(folder.path().join(format!("pid-{rank}")))));
            let mut mpirun = Command::new("mpirun");
            mpirun.args(["--oversubscribe", "--allow-run-as-root", "-n", "2"]);
            mpirun.arg(env::current_exe().unwrap()).args(["--exact", "rank", "--ignored"]);
            mpirun.env(TASK, "killed").env(FOLDER, folder.path());
            mpirun.env("RAYON_NUM_THREADS", "1").env("BURN_DEVICE", "flex");
            let start = Instant::now();
            let mut mpirun = mpirun.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let wait = whole * (3 + (attempt * 7 + kills as u32 * 5) % 11) / 13;
            thread::sleep(wait + Duration::from_millis(u64::from(attempt) * 20));
            let victim = folder.path().join(format!("pid-{}", (attempt as usize + kills) % 2));
            if let (Ok(pid), None) = (fs::read_to_string(victim), mpirun.try_wait().unwrap()) {
                Command::new("kill").args(["-9", &pid]).status().unwrap();
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
