//! Data-parallel training by MPI. Each test starts itself again by `mpirun`, as the ignored test `rank`.

mod heads;
#[path = "../support/hook/mod.rs"]
mod hook;
mod learner;
#[path = "../support/small_bert/mod.rs"]
mod small_bert;
#[path = "../support/tolerance/mod.rs"]
mod tolerance;
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
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const TASK: &str = "BURN_BERT_RANK_TASK";

/// What the processes printed: `mpirun` starts as many of this program as `ranks`, for `task`.
fn launch(task: &str, ranks: usize, variables: &[(&str, &Path)]) -> Output {
    timed_launch(task, ranks, variables).0
}

/// The same, and how long it took, without waiting for other tests.
fn timed_launch(task: &str, ranks: usize, variables: &[(&str, &Path)]) -> (Output, Duration) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "--allow-run-as-root", "-n"]).arg(ranks.to_string());
    mpirun.arg(std::env::current_exe().unwrap()).args(["--exact", "rank", "--ignored", "--nocapture"]);
    mpirun.envs(variables.iter().copied());
    let output = mpirun.env(TASK, task).env("RAYON_NUM_THREADS", "1").env("BURN_DEVICE", "flex").output();
    let output = output.expect("mpirun of Open MPI");
    let seconds = start.elapsed();
    println!("{task}, {ranks} ranks: {seconds:?}\n{}", text(&output));
    assert!(seconds < Duration::from_secs(300), "somebody waited for a rank that had left");
    (output, seconds)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
#[ignore = "started by mpirun"]
fn rank() {
    let task = std::env::var(TASK).unwrap();
    let wire = if task == "bf16" { Wire::Bf16 } else { Wire::Full };
    let result = Ranks::run(wire, |ranks| {
        let result = match task.as_str() {
            "heads" => heads::equal_one_process(ranks),
            "learner" | "killed" | "stop" | "stop-later" | "disk" | "unreadable" => {
                learner::run(ranks, &task)
            }
            moved if moved.starts_with("moved") => learner::run(ranks, &task),
            "validation" => validation::of_every_head(ranks),
            "bf16" => heads::sixteen_bits_on_the_wire(ranks),
            fault => run_with_fault(ranks, fault),
        };
        // Here all ranks still wait for each other: as soon as one has ended with an error, mpirun ends the others.
        result.inspect_err(|error| println!("\nthe run ended with: {error}"))
    });
    result.unwrap();
}

/// What rank 1 of three does wrong in the third of its steps, and what is said about it.
const FAULTS: [(&str, &str); 8] = [
    ("nan", "has a gradient that is infinite or NaN"),
    ("error", "the disk is full"),
    ("leaves", "has left the run"),
    ("panics", "panicked"),
    ("other model", "holds other parameters than rank 0"),
    ("other trained", "trains other parameters than rank 0"),
    ("other settings", "has another seed than rank 0"),
    ("other place", "is at another place of the program than rank 0"),
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
    let mut found = Vec::new();
    for ranks in [2, 3, 2] {
        let output = launch("heads", ranks, &[]);
        assert!(output.status.success(), "{}", text(&output));
        let lines = text(&output);
        let bits: Vec<String> =
            lines.lines().filter(|line| line.starts_with("bits ")).map(String::from).collect();
        found.push(bits);
    }
    assert_eq!(found[0].len(), heads::HEADS);
    assert_eq!(found[0], found[2], "the same bits in two runs");
}

#[test]
fn a_shared_validation_has_the_bits_of_one_process() {
    for ranks in [2, 3] {
        let output = launch("validation", ranks, &[]);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(text(&output).matches("validated ").count(), validation::HEADS);
    }
}

#[test]
fn gradients_in_bf16_train_too() {
    let output = launch("bf16", 2, &[]);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_fault_of_one_rank_ends_all_and_is_named() {
    for (fault, message) in FAULTS {
        let output = launch(fault, 3, &[]);
        assert!(!output.status.success(), "{fault}");
        let said = text(&output).matches(&format!("the run ended with: rank 1 {message}")).count();
        // A rank that panics or leaves says nothing itself, and mpirun may end the last of the others first.
        assert!(said >= 1, "{fault}: {}", text(&output));
    }
    // One that dies says nothing, and mpirun says it.
    let output = launch("dies", 3, &[]);
    assert!(!output.status.success() && text(&output).contains("rank 1"), "{}", text(&output));
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
