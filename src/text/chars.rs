//! Places in a text, counted in characters.

/// A text, and where each of its characters starts.
pub(crate) struct Chars<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Chars<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        Self { text, starts: text.char_indices().map(|(start, _)| start).collect() }
    }

    /// The character that a byte belongs to; at the end of the text, the number of characters.
    pub(crate) fn index(&self, byte: usize) -> usize {
        match byte < self.text.len() {
            true => self.starts.partition_point(|&start| start <= byte) - 1,
            false => self.starts.len(),
        }
    }

    /// Some of the characters.
    pub(crate) fn slice(&self, start: usize, end: usize) -> &'a str {
        let byte = |index: usize| self.starts.get(index).copied().unwrap_or(self.text.len());
        &self.text[byte(start)..byte(end.max(start))]
    }
}
