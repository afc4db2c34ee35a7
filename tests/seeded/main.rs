//! What depends on the random numbers that a device draws. A device has one generator for all threads, so each test
//! that draws takes its [`turn`].

#[cfg(all(feature = "tokenizers", feature = "train"))]
#[path = "../support/files/mod.rs"]
mod files;
#[path = "../support/tolerance/mod.rs"]
mod tolerance;

#[cfg(all(feature = "tokenizers", feature = "train"))]
mod answers;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod checkpoint;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod classifiers;
mod dropout;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod loader;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod resumed;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod runs;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod sentences;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod small_text;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod tasks;
mod token_embedding;
#[cfg(all(feature = "tokenizers", feature = "train"))]
mod trainer;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test draws.
fn turn() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}
