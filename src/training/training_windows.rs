//! The training windows of a text, in a random order.

use super::example::MaskedLmExample;
use super::order::{Order, is_held_out, num_training_windows};
use super::windows::{WindowReader, WindowedText};
use crate::error::Result;
use std::collections::HashMap;
use std::sync::Arc;

/// The iterator of [`Corpus::training`](super::Corpus::training), which ends with an error or not at all. A
/// [`TrainingLoader`](super::TrainingLoader) makes batches of it.
#[derive(Debug)]
pub struct TrainingWindows {
    text: Arc<WindowedText>,
    seed: u64,
    passes: u64,
    pass: Option<Pass>,
    has_failed: bool,
}

/// One pass over the file.
#[derive(Debug)]
struct Pass {
    order: Order,
    reader: WindowReader,
    /// Windows that were read and not yet drawn, by number.
    waiting: HashMap<usize, MaskedLmExample>,
}

impl Pass {
    fn new(seed: u64, pass: u64) -> Self {
        Self { order: Order::new(seed, pass), reader: WindowReader::new(), waiting: HashMap::new() }
    }

    fn draw(&mut self, text: &WindowedText) -> Result<Option<MaskedLmExample>> {
        let Self { order, reader, waiting } = self;
        let drawn = order.draw(|window| {
            reader.seek(window, text)?;
            let Some(example) = reader.read(text)? else { return Ok(false) };
            if !is_held_out(window) {
                waiting.insert(window, example);
            }
            Ok(true)
        })?;
        let Some(window) = drawn else { return Ok(None) };
        match waiting.remove(&window) {
            Some(example) => Ok(Some(example)),
            None => Ok(text.windows(&[window])?.pop()),
        }
    }

    /// Skips a number of draws without reading their windows, except those that the next `wanted` need.
    fn skip(&mut self, draws: usize, wanted: usize, text: &WindowedText) -> Result<()> {
        let windows = text.index()?.num_windows();
        let exists = |window| Ok(window < windows);
        for _ in 0..draws {
            self.order.draw(exists)?;
        }
        let mut ahead = self.order.clone();
        let mut passed_over = Vec::new();
        for _ in 0..wanted {
            let Some(window) = ahead.draw(exists)? else { break };
            if window < self.order.next {
                passed_over.push(window);
            }
        }
        passed_over.sort_unstable();
        let examples = text.windows(&passed_over)?;
        self.waiting = passed_over.into_iter().zip(examples).collect();
        Ok(())
    }
}

impl TrainingWindows {
    pub(super) fn new(text: Arc<WindowedText>, seed: u64) -> Self {
        Self { text, seed, passes: 0, pass: None, has_failed: false }
    }

    /// The same windows from number `start` on. Seeks in the file, by the corpus's
    /// [index](super::Corpus::index), instead of reading what comes before.
    ///
    /// # Errors
    ///
    /// Those of reading and tokenising the text, and [`Error::Config`](crate::Error::Config) if there is no window to
    /// train on.
    pub fn starting_at(self, start: usize) -> Result<Self> {
        self.windows_from(start, usize::MAX)
    }

    /// The windows from number `start` on, of which the next `wanted` will be taken.
    pub(super) fn windows_from(self, start: usize, wanted: usize) -> Result<Self> {
        if start == 0 {
            return Ok(Self { passes: 0, pass: None, ..self });
        }
        let windows = num_training_windows(self.text.index()?.num_windows());
        if windows == 0 {
            return Err(self.text.one_window());
        }
        let passes = (start / windows) as u64;
        let mut pass = Pass::new(self.seed, passes);
        pass.skip(start % windows, wanted, &self.text)?;
        Ok(Self { passes: passes + 1, pass: Some(pass), ..self })
    }

    fn draw(&mut self) -> Result<MaskedLmExample> {
        if let Some(pass) = &mut self.pass
            && let Some(window) = pass.draw(&self.text)?
        {
            return Ok(window);
        }
        let pass = self.pass.insert(Pass::new(self.seed, self.passes));
        self.passes += 1;
        pass.draw(&self.text)?.ok_or_else(|| self.text.one_window())
    }
}

impl Iterator for TrainingWindows {
    type Item = Result<MaskedLmExample>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let window = self.draw();
        self.has_failed = window.is_err();
        Some(window)
    }
}
