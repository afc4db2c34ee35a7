//! Standard input and output of a program that reads texts.

use anyhow::{Context, Result};
use std::fmt::Display;
use std::io::{BufRead, ErrorKind, Write, stdin, stdout};

/// Its lines, without a byte order mark; an error says which one is not UTF-8.
pub fn lines() -> impl Iterator<Item = Result<String>> {
    lines_of(stdin().lock())
}

pub fn lines_of(reader: impl BufRead) -> impl Iterator<Item = Result<String>> {
    (1..).zip(reader.lines()).map(|(number, line): (u64, _)| {
        let line = line.with_context(|| format!("line {number} of the standard input cannot be read"))?;
        Ok(match line.strip_prefix('\u{feff}') {
            Some(text) if number == 1 => text.to_string(),
            _ => line,
        })
    })
}

/// A label or another text of a model's files, without characters that a terminal obeys or that end a column.
pub fn shown(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// Prints a line. Where nobody reads any more, as in `… | head`, the program ends.
pub fn print(line: impl Display) -> Result<()> {
    match writeln!(stdout(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        printed => Ok(printed?),
    }
}
