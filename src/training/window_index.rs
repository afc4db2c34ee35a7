//! Where the windows of a text file start.

use crate::text::Position;
use serde::{Deserialize, Serialize};

/// Most entries of an index; a larger file has one for every second window, every fourth, …
const MAX_PLACES: usize = 1 << 20;

/// Where the windows of a [`Corpus`](super::Corpus) start in its file, so that a window can be read without those
/// before it.
///
/// Made by [`Corpus::index`](super::Corpus::index) in one pass over the file. It takes 32 bytes per window and at most
/// 32 MiB: for a larger file it has an entry for every second window, every fourth, and so on. Serialise it to resume a
/// run without that pass. A resumed [`TrainingLoader`](super::TrainingLoader) needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowIndex {
    seq_len: usize,
    bytes: u64,
    windows: usize,
    /// Every so many windows one has a place.
    stride: usize,
    places: Vec<Place>,
}

/// Where a window starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The line of its first token.
    pub(super) line: Position,
    /// Tokens of the line that belong to windows before.
    pub(super) skip: usize,
    /// The number of the line's first word.
    pub(super) first_word: u32,
}

impl WindowIndex {
    /// The index of a file of so many bytes, before any window was found.
    pub(super) fn new(seq_len: usize, bytes: u64) -> Self {
        Self { seq_len, bytes, windows: 0, stride: 1, places: Vec::new() }
    }

    /// Adds the next window.
    pub(super) fn push(&mut self, place: Place) {
        if self.windows.is_multiple_of(self.stride) {
            if self.places.len() == MAX_PLACES {
                self.stride *= 2;
                let mut number = 0;
                self.places.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
            }
            if self.windows.is_multiple_of(self.stride) {
                self.places.push(place);
            }
        }
        self.windows += 1;
    }

    /// Windows in the file, those that are held out included.
    pub fn num_windows(&self) -> usize {
        self.windows
    }

    /// Tokens in a window, special ones included.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// The size of the file.
    pub fn file_size(&self) -> u64 {
        self.bytes
    }

    /// Whether there is a place wherever [`place_before`](Self::place_before) looks; not if a file was damaged.
    pub(super) fn is_whole(&self) -> bool {
        self.stride > 0 && self.places.len() == self.windows.div_ceil(self.stride)
    }

    /// The last window up to `window` that has a place.
    pub(super) fn place_before(&self, window: usize) -> (usize, Place) {
        let place = window / self.stride;
        (place * self.stride, self.places[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_has_a_place_for_every_second_window() {
        let place = |window| Place {
            line: serde_json::from_value(serde_json::json!({ "offset": window, "line": 1 })).unwrap(),
            skip: window,
            first_word: 0,
        };
        let mut index = WindowIndex::new(128, 0);
        (0..2 * MAX_PLACES + 3).for_each(|window| index.push(place(window)));
        assert_eq!(index.num_windows(), 2 * MAX_PLACES + 3);
        assert!(index.places.len() <= MAX_PLACES);
        for window in [0, 1, 5, MAX_PLACES, 2 * MAX_PLACES + 2] {
            let (at, found) = index.place_before(window);
            assert!(at <= window && window - at < index.stride, "{at} for {window}");
            assert_eq!(found, place(at));
        }
    }
}
