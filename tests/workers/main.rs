//! Training on several machines: workers are processes of this machine, which the tests stop, hang and kill.

#[path = "../support/devices/mod.rs"]
mod devices;
#[path = "../support/tolerance/mod.rs"]
mod tolerance;

mod equality;
mod operators;
mod peers;
mod process;
mod sparse;
mod task;
mod watch;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Waits until no other test runs its processes.
fn turn() -> MutexGuard<'static, ()> {
    static PROCESSES: Mutex<()> = Mutex::new(());
    PROCESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `f` returns, which must not take longer than `limit`: the loss of a worker ends a training and hangs nothing.
#[track_caller]
fn within<T: Send + 'static>(limit: Duration, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = std::sync::mpsc::channel();
    let start = Instant::now();
    std::thread::spawn(move || sender.send(f()));
    let result =
        result.recv_timeout(limit).unwrap_or_else(|error| panic!("{error} after {:?}", start.elapsed()));
    println!("after {:.1} s", start.elapsed().as_secs_f64());
    result
}
