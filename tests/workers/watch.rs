//! A worker or a client is lost during a training.

use crate::process::{Worker, end_with_the_test, signal_to};
use crate::task::{finished, train};
use crate::{turn, within};
use anyhow::Result;
use burn::optim::SgdConfig;
use burn::prelude::*;
use burn_bert::remote::WorkersConfig;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// For the tests: long enough for a busy machine to answer, short enough to wait for.
const PATIENCE: Duration = Duration::from_secs(8);
const LIMIT: Duration = Duration::from_secs(90);
const RATE: f64 = 0.01;

/// Trains on workers for so many epochs.
fn train_on(addresses: Vec<String>, dir: PathBuf, epochs: usize) -> Result<Vec<f64>> {
    let workers = WorkersConfig::new(addresses).with_patience(PATIENCE).connect()?;
    let devices = workers.devices();
    workers.watch(move || train(&devices, &dir, epochs, SgdConfig::new().init(), RATE))
}

/// Waits for the first checkpoints.
fn wait_for_epoch(dir: &Path, epoch: usize) {
    let start = Instant::now();
    while finished(dir, RATE) < epoch {
        assert!(start.elapsed() < LIMIT, "epoch {epoch} never comes");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Does something to one of two workers when two epochs are done; the training must end with an error that names it. Then
/// the other one goes on alone. The error is returned.
fn lose(lost: usize, fault: impl FnOnce(&Worker) + Send + 'static) -> String {
    let dir = tempfile::tempdir().unwrap();
    let workers = [Worker::start(), Worker::start()];
    let addresses = workers.each_ref().map(|worker| worker.address.clone());
    let (named, left) = (addresses[lost].clone(), addresses[1 - lost].clone());
    let [path, watched] = [dir.path(), dir.path()].map(Path::to_path_buf);
    let training = thread::spawn(move || within(LIMIT, move || train_on(addresses.to_vec(), path, 100_000)));
    wait_for_epoch(&watched, 2);
    fault(&workers[lost]);
    let error = training.join().unwrap().unwrap_err();
    let error = format!("{error:#}");
    assert!(error.starts_with(&format!("worker {named} was lost during the training")), "{error}");

    let before = finished(dir.path(), RATE);
    assert!(before >= 2);
    let path = dir.path().to_path_buf();
    within(LIMIT, move || train_on(vec![left], path, before + 3)).unwrap();
    assert_eq!(finished(dir.path(), RATE), before + 3);
    error
}

#[test]
fn a_worker_that_dies_is_named_and_the_other_one_goes_on() {
    let _turn = turn();
    for lost in [0, 1] {
        lose(lost, |worker| worker.signal("KILL"));
    }
}

/// Panics before the watch can know of the loss, as those of Burn's threads are.
#[test]
fn a_client_that_lost_a_worker_prints_nothing_but_the_error() {
    let _turn = turn();
    for count in [1, 2] {
        let workers: Vec<_> = (0..count).map(|_| Worker::start()).collect();
        let addresses: Vec<_> = workers.iter().map(|worker| worker.address.clone()).collect();
        let mut client = process("losing_client");
        client.env("WORKERS", addresses.join(",")).env("LOST", workers[0].id().to_string());
        let output = within(LIMIT, move || client.stderr(Stdio::piped()).output().unwrap());
        let printed = String::from_utf8(output.stderr).unwrap();
        let error = format!("worker {} was lost during the training", addresses[0]);
        assert!(printed.starts_with(&error) && printed.lines().count() == 1, "{printed}");
    }
}

#[test]
#[ignore = "needs a test that starts it: it is the client's process"]
fn losing_client() {
    let [addresses, lost] = ["WORKERS", "LOST"].map(|name| std::env::var(name).unwrap());
    let workers = WorkersConfig::new(addresses.split(',')).with_patience(PATIENCE).connect().unwrap();
    let training = move || -> Result<()> {
        signal_to(lost.parse()?, "KILL");
        let _ = thread::spawn(|| panic!("a consequence")).join();
        panic!("another one")
    };
    eprintln!("{:#}", workers.watch(training).unwrap_err());
    std::process::exit(1);
}

#[test]
fn a_panic_of_a_training_is_printed_where_no_worker_is_lost() {
    let _turn = turn();
    let worker = Worker::start();
    let client = process("panicking_client").env("WORKERS", &worker.address).stderr(Stdio::piped()).output();
    let printed = String::from_utf8(client.unwrap().stderr).unwrap();
    assert!(printed.contains("panicked at") && printed.contains("a defect"), "{printed}");
}

#[test]
#[ignore = "needs a test that starts it: it is the client's process"]
fn panicking_client() {
    let workers = WorkersConfig::new([std::env::var("WORKERS").unwrap()]).connect().unwrap();
    let _ = workers.watch(|| -> Result<()> { panic!("a defect") });
}

#[test]
fn a_worker_that_hangs_is_named_and_the_other_one_goes_on() {
    let _turn = turn();
    for lost in [0, 1] {
        let error = lose(lost, |worker| worker.signal("STOP"));
        assert!(error.ends_with("no answer in time"), "{error}");
    }
}

#[test]
fn a_worker_that_dies_and_comes_back_is_another_one() {
    let _turn = turn();
    lose(1, |worker| {
        worker.signal("KILL");
        // It takes the port again, which the system frees when the process is gone, until the training has ended.
        while TcpStream::connect(worker.authority()).is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
        let again = Worker::start_with(worker.authority(), None);
        thread::spawn(move || {
            thread::sleep(PATIENCE);
            drop(again);
        });
    });
}

#[test]
fn a_client_that_dies_leaves_its_workers_for_the_next_one() {
    let _turn = turn();
    let workers = [Worker::start(), Worker::start()];
    let addresses = workers.each_ref().map(|worker| worker.address.clone());
    let dir = tempfile::tempdir().unwrap();
    let mut client = client_of(&addresses, dir.path(), 100_000);
    wait_for_epoch(dir.path(), 2);
    signal_to(client.id(), "KILL");
    client.wait().unwrap();
    let before = finished(dir.path(), RATE);
    let path = dir.path().to_path_buf();
    within(LIMIT, move || train_on(addresses.to_vec(), path, before + 3)).unwrap();
    assert_eq!(finished(dir.path(), RATE), before + 3);
}

#[test]
fn what_a_dead_client_waited_for_does_not_hold_up_the_next_one() {
    let _turn = turn();
    let workers = [Worker::start(), Worker::start()];
    let addresses = workers.each_ref().map(|worker| worker.address.clone());
    let mut client = process("transferring_client")
        .env("WORKERS", addresses.join(","))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(client.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == SENT));
    thread::sleep(Duration::from_secs(1)); // the first worker asks for the tensor
    signal_to(client.id(), "KILL");
    client.wait().unwrap();
    WorkersConfig::new(addresses).with_patience(PATIENCE).connect().unwrap();
}

#[test]
fn a_worker_that_came_back_serves_the_next_client() {
    let _turn = turn();
    let [first, second] = [Worker::start(), Worker::start()];
    let addresses = [&first, &second].map(|worker| worker.address.clone());
    let dir = tempfile::tempdir().unwrap();
    let train_until = |epochs| {
        let (addresses, path) = (addresses.to_vec(), dir.path().to_path_buf());
        within(LIMIT, move || train_on(addresses, path, epochs)).unwrap();
        assert_eq!(finished(dir.path(), RATE), epochs);
    };
    train_until(2);
    let authority = second.authority().to_string();
    drop(second);
    let _again = Worker::start_with(&authority, None);
    train_until(4);
}

/// A process that trains, to be killed.
fn client_of(addresses: &[String], dir: &Path, epochs: usize) -> Child {
    process("client")
        .env("WORKERS", addresses.join(","))
        .env("DIR", dir)
        .env("EPOCHS", epochs.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// A test of this file in a process of its own.
fn process(test: &str) -> Command {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--ignored", "--exact", &format!("watch::{test}"), "--nocapture"]).stdin(Stdio::piped());
    process
}

#[test]
#[ignore = "needs a test that starts it: it is the client's process"]
fn client() {
    end_with_the_test();
    let [addresses, dir, epochs] = ["WORKERS", "DIR", "EPOCHS"].map(|name| std::env::var(name).unwrap());
    let addresses = addresses.split(',').map(String::from).collect();
    if let Err(error) = train_on(addresses, dir.into(), epochs.parse().unwrap()) {
        eprintln!("{error:#}");
        std::process::exit(1); // its thread is abandoned
    }
}

/// What the transferring client prints when the workers have been told of the transfer.
const SENT: &str = "sent";

#[test]
#[ignore = "needs a test that starts it: it is the client's process"]
fn transferring_client() {
    end_with_the_test();
    let addresses = std::env::var("WORKERS").unwrap();
    let [first, second] =
        WorkersConfig::new(addresses.split(',')).connect().unwrap().devices().try_into().unwrap();
    // The second worker computes for longer than the next client waits.
    let _sent = long_product(&second).to_device(&first);
    println!("\n{SENT}");
    thread::sleep(LIMIT);
}

/// 86 Tflop: most of a minute on the fastest CPUs.
fn long_product(device: &Device) -> Tensor<2> {
    (0..200).fold(Tensor::ones([6000, 6000], device), |numbers, _| {
        numbers.clone().matmul(numbers).div_scalar(6000.0)
    })
}

#[test]
fn what_a_training_returns_or_panics_with_comes_through_while_its_workers_live() {
    let _turn = turn();
    let worker = Worker::start();
    let connect =
        |worker: &Worker| WorkersConfig::new([worker.address.as_str()]).with_patience(PATIENCE).connect();
    let number = connect(&worker).unwrap().watch(|| Ok::<_, burn_bert::Error>(7)).unwrap();
    assert_eq!(number, 7);
    let workers = connect(&worker).unwrap();
    let error =
        within(LIMIT, move || workers.watch(|| Err::<(), _>(anyhow::anyhow!("no disk")))).unwrap_err();
    assert_eq!(error.to_string(), "no disk");
    let workers = connect(&worker).unwrap();
    let panic =
        thread::spawn(move || workers.watch(|| -> Result<()> { panic!("a defect") })).join().unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"a defect"));
}

#[test]
fn a_session_that_its_worker_closes_is_named() {
    let _turn = turn();
    let worker = Worker::start();
    let workers = WorkersConfig::new([worker.address.as_str()]).with_patience(PATIENCE).connect().unwrap();
    let device = workers.devices()[0].clone();
    let error = within(LIMIT, move || {
        workers.watch(move || {
            // A shape that does not fit ends the session on the worker, and nothing on the client.
            let numbers = Tensor::<1, Int>::from_ints([9], &device);
            let _ = Tensor::<2>::zeros([2, 2], &device).select(0, numbers);
            let _ = device.sync(); // with a CubeCL device compiled in, Burn sends nothing before
            thread::sleep(LIMIT);
            Ok::<(), burn_bert::Error>(())
        })
    });
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with(&format!("worker {} closed its session", worker.address)), "{error}");
}

#[test]
fn a_step_without_an_end_is_named() {
    let _turn = turn();
    let worker = Worker::start();
    let config = WorkersConfig::new([worker.address.as_str()]).with_longest_step(Duration::from_secs(7));
    let workers = config.connect().unwrap();
    let device = workers.devices()[0].clone();
    let start = Instant::now();
    let error = within(LIMIT, move || {
        workers.watch(move || {
            let _ = long_product(&device).try_into_data(); // the worker's process answers beside
            Ok::<(), burn_bert::Error>(())
        })
    });
    assert!(start.elapsed() > Duration::from_secs(7));
    assert_eq!(
        error.unwrap_err().to_string(),
        format!("worker {} has not come to the end of a step for 7 s", worker.address)
    );
}
