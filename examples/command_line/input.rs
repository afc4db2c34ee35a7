//! The standard input and output of a program that reads texts.

use anyhow::{Context, Result};
use std::fmt::Display;
use std::io::{BufRead, ErrorKind, Write, stdin, stdout};

/// Its lines; an error says which one is not UTF-8.
#[allow(dead_code)] // one program takes its text as an argument
pub fn lines() -> impl Iterator<Item = Result<String>> {
    (1..).zip(stdin().lock().lines()).map(|(number, line): (u64, _)| {
        line.with_context(|| format!("line {number} of the standard input cannot be read"))
    })
}

/// Prints a line. Where nobody reads any more, as in `… | head`, the program ends.
pub fn print(line: impl Display) -> Result<()> {
    match writeln!(stdout(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        printed => Ok(printed?),
    }
}
