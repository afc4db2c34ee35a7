//! The order in which the windows of a text are trained on.

use crate::error::Result;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// One window out of this many is held out.
const HELD_OUT_EVERY: usize = 20;

/// Windows in the shuffle buffer, which bounds its memory.
const SHUFFLE_BUFFER: usize = 1024;

/// Whether a window is held out and never trained on.
pub(super) fn is_held_out(window: usize) -> bool {
    window.is_multiple_of(HELD_OUT_EVERY)
}

/// The number of training windows among the first `windows`.
pub(super) fn num_training_windows(windows: usize) -> usize {
    windows - windows.div_ceil(HELD_OUT_EVERY)
}

/// Of the windows that are held out, `limit` at most, drawn from all over the file; the same at every call.
pub(super) fn held_out(windows: usize, limit: usize) -> Vec<usize> {
    let mut drawn = Vec::new();
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for (index, window) in (0..windows).step_by(HELD_OUT_EVERY).enumerate() {
        // Vitter's algorithm R.
        match rng.random_range(0..=index) {
            _ if drawn.len() < limit => drawn.push(window),
            place if place < limit => drawn[place] = window,
            _ => {}
        }
    }
    drawn
}

/// The order of one pass over the file: each window is drawn at random from the next 1,024.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// The next window to take into the buffer.
    pub(super) next: usize,
    has_ended: bool,
    buffer: Vec<usize>,
    rng: ChaCha8Rng,
}

impl Order {
    pub(super) fn new(seed: u64, pass: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(pass);
        Self { next: 0, has_ended: false, buffer: Vec::new(), rng }
    }

    /// The next window, of those that exist; `exists` is asked for each of them once, in the order of the file.
    pub(super) fn draw(&mut self, mut exists: impl FnMut(usize) -> Result<bool>) -> Result<Option<usize>> {
        while self.buffer.len() < SHUFFLE_BUFFER && !self.has_ended {
            if !exists(self.next)? {
                self.has_ended = true;
                break;
            }
            if !is_held_out(self.next) {
                self.buffer.push(self.next);
            }
            self.next += 1;
        }
        Ok(match self.buffer.len() {
            0 => None,
            length => Some(self.buffer.swap_remove(self.rng.random_range(0..length))),
        })
    }
}
