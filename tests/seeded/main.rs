//! What depends on the random numbers that a device draws. A device has one generator for all threads, so each test
//! that draws takes its [`turn`].

#[cfg(feature = "train")]
#[path = "../support/files/mod.rs"]
mod files;
#[path = "../support/tolerance/mod.rs"]
mod tolerance;

#[cfg(feature = "train")]
mod answers;
#[cfg(feature = "train")]
mod checkpoint;
#[cfg(feature = "train")]
mod classifiers;
mod dropout;
#[cfg(feature = "train")]
mod history;
#[cfg(feature = "train")]
mod loader;
#[cfg(feature = "train")]
mod resumed;
#[cfg(feature = "train")]
mod run_folder;
#[cfg(feature = "train")]
mod runs;
#[cfg(feature = "train")]
mod sentences;
#[cfg(feature = "train")]
mod small_text;
#[cfg(feature = "train")]
mod tasks;
mod token_embedding;
#[cfg(feature = "train")]
mod trainer;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test draws.
fn turn() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}
