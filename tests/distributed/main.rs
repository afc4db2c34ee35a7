//! Data-parallel training by MPI. Each test starts itself again by `mpirun`, as the ignored test `rank`.

mod heads;
mod learner;
#[path = "../support/mod.rs"]
mod support;
mod validation;

/// What most of these tests use.
mod prelude {
    pub use crate::tolerance::{all_values, largest_difference};
    pub use burn::data::dataset::InMemDataset;
    pub use burn::module::Module;
    pub use burn::optim::GradientsParams;
    pub use burn::prelude::*;
    pub use burn::tensor::FloatDType;
    pub use burn::train::Interrupter;
    pub use burn_bert::data::*;
    pub use burn_bert::distributed::Ranks;
    pub use burn_bert::model::*;
    pub use burn_bert::{BertEmbeddingsInput, Error, Family, PaddingMask, Result, cast_module};
}

use crate::prelude::*;
use burn::nn::LinearConfig;
use burn_bert::distributed::Wire;
use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use support::*;

const TASK: &str = "BURN_BERT_RANK_TASK";
/// The folder of a test, for the processes that it starts.
const FOLDER: &str = "BURN_BERT_RANK_FOLDER";

/// `mpirun` that starts as many of this program as `ranks`, for `task`.
fn mpirun(task: &str, ranks: usize, folder: Option<&Path>) -> Command {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "--allow-run-as-root", "-n"]).arg(ranks.to_string());
    mpirun.arg(env::current_exe().unwrap()).args(["--exact", "rank", "--ignored", "--nocapture"]);
    mpirun.env(TASK, task).envs(folder.map(|folder| (FOLDER, folder)));
    mpirun.env("RAYON_NUM_THREADS", "1").env("BURN_DEVICE", "flex");
    mpirun
}

/// What the processes print, as an error if they fail.
fn launch(task: &str, ranks: usize, folder: Option<&Path>) -> Result<String, String> {
    timed_launch(task, ranks, folder).0
}

/// The same, and how long it takes, without waiting for other tests.
fn timed_launch(task: &str, ranks: usize, folder: Option<&Path>) -> (Result<String, String>, Duration) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let output = mpirun(task, ranks, folder).output().expect("mpirun of Open MPI");
    let seconds = start.elapsed();
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let text = format!("{out}{err}");
    println!("{task}, {ranks} ranks: {seconds:?}\n{text}");
    assert!(seconds < Duration::from_secs(300), "somebody waited for a rank that had left");
    (if output.status.success() { Ok(text) } else { Err(text) }, seconds)
}

#[test]
#[ignore = "started by mpirun"]
fn rank() {
    let task = env::var(TASK).unwrap();
    let wire = if task == "bf16" { Wire::Bf16 } else { Wire::Full };
    let result = Ranks::run(wire, |ranks| {
        let result = match task.as_str() {
            "heads" => heads::equal_one_process(ranks),
            "learner" | "killed" | "stop" | "stop-later" | "disk" | "unreadable" => {
                learner::run(ranks, &task)
            }
            moved if moved.starts_with("moved") => learner::run(ranks, &task),
            "validation" => validation::check_every_head(ranks),
            "bf16" => heads::sixteen_bits_on_the_wire(ranks),
            fault => run_with_fault(ranks, fault),
        };
        // Here all ranks still wait for each other: as soon as one has ended with an error, mpirun ends the others.
        result.inspect_err(|error| println!("\nthe run ended with: {error}"))
    });
    result.unwrap();
}

/// What one rank of three does wrong, and what is printed about it: first what rank 1 does in the third of its steps.
const FAULTS: [(&str, &str); 13] = [
    ("nan", "the run ended with: rank 1 has a gradient that is infinite or NaN"),
    ("error", "the run ended with: rank 1 the disk is full"),
    ("leaves", "the run ended with: rank 1 has left the run"),
    ("panics", "the run ended with: rank 1 panicked"),
    ("other model", "the run ended with: rank 1 holds other parameters than rank 0"),
    ("other trained", "the run ended with: rank 1 trains other parameters than rank 0"),
    ("other settings", "the run ended with: rank 1 has another seed than rank 0"),
    ("other place", "the run ended with: rank 1 called a different collective operation than rank 0"),
    // It says nothing, and mpirun says it.
    ("dies", "rank 1"),
    // Of the trainer: before its data are read, in a step, at a checkpoint, in a validation. Rank 0 or 2 reports the later stop.
    ("stop", "was stopped before the first step (on purpose)"),
    ("stop-later", "was stopped: another rank was stopped"),
    ("disk", "rank 0 "),
    ("unreadable", "rank 1 the evaluation ended with an error: a text cannot be read"),
];

fn run_with_fault(ranks: &Ranks, fault: &str) -> Result<()> {
    let device = ranks.device().autodiff();
    let is = |name: &str| fault == name && ranks.rank() == 1;
    ranks.same("seed", &if is("other settings") { 2 } else { 1 })?;
    let mut model = LinearConfig::new(if is("other model") { 4 } else { 3 }, 2).init(&device);
    if is("other trained") {
        model.bias = model.bias.map(|bias| bias.set_require_grad(false));
    }
    let model = ranks.broadcast(model)?;
    for step in 0..6 {
        if step == 3 {
            match fault {
                "error" if is(fault) => {
                    return Err(Error::Data { what: "the disk".into(), problem: "is full".into() });
                }
                "leaves" if is(fault) => return Ok(()),
                "panics" if is(fault) => panic!("on purpose"),
                "dies" if is(fault) => std::process::abort(),
                "other place" if is(fault) => drop(ranks.sum(&[1.0])?),
                _ => {}
            }
        }
        let value = if is("nan") && step == 3 { f32::NAN } else { 1.0 };
        let [inputs, _] = model.weight.dims();
        let loss = model.forward(Tensor::<2>::full([1, inputs], value, &device)).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        ranks.mean_gradients(&model, gradients, 1.0)?;
    }
    Ok(())
}

#[test]
fn ranks_take_the_steps_of_one_process_with_the_batches_of_all() {
    let found = [2, 3, 2].map(|ranks| {
        let text = launch("heads", ranks, None).unwrap();
        text.lines().filter(|line| line.starts_with("bits ")).map(String::from).collect::<Vec<_>>()
    });
    assert_eq!(found[0].len(), heads::MODELS);
    assert_eq!(found[0], found[2], "the same bits in two runs");
}

#[test]
fn a_shared_validation_has_the_bits_of_one_process() {
    for ranks in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let text = launch("validation", ranks, Some(folder.path())).unwrap();
        assert_eq!(text.matches("validated ").count(), validation::CASES);
    }
}

#[test]
fn threads_are_ranks_as_processes_are() {
    Ranks::run_threads(3, Wire::Full, heads::equal_one_process).unwrap();
    let error = Ranks::run_threads(3, Wire::Full, |ranks| match ranks.rank() {
        1 => Err(Error::Data { what: "the disk".into(), problem: "is full".into() }),
        _ => ranks.sum(&[1.0]),
    });
    assert_eq!(error.unwrap_err().to_string(), "rank 1 the disk is full");
    let panicked = std::panic::catch_unwind(|| {
        Ranks::run_threads(2, Wire::Full, |ranks| match ranks.rank() {
            1 => panic!("on purpose"),
            _ => ranks.sum(&[1.0]),
        })
    });
    assert!(panicked.is_err());
}

#[test]
fn gradients_in_bf16_train_too() {
    launch("bf16", 2, None).unwrap();
}

#[test]
fn a_fault_of_one_rank_ends_all_and_is_named() {
    for (fault, message) in FAULTS {
        let folder = tempfile::tempdir().unwrap();
        let text = launch(fault, 3, Some(folder.path())).expect_err(fault);
        // A rank that panics or leaves says nothing itself, and mpirun may end the last of the others first.
        assert!(text.contains(message), "{fault}: {text}");
    }
}

#[test]
fn without_mpirun_there_is_one_rank() {
    let named = Ranks::run(Wire::Full, |ranks| {
        assert_eq!((ranks.rank(), ranks.size(), ranks.is_first()), (0, 1, true));
        ranks.same("number", &std::process::id())?;
        assert_eq!(ranks.sum(&[1.5])?, [1.5]);
        ranks.stop();
        assert!(ranks.is_stopped());
        Ok::<_, Error>(format!("{ranks:?}"))
    });
    assert!(named.unwrap().starts_with("Ranks { rank: 0, size: 1"));
}
