//! The standard input of a program that reads texts.

use anyhow::{Context, Result};
use std::io::{BufRead, stdin};

/// Its lines; an error says which one is not UTF-8.
pub fn lines() -> impl Iterator<Item = Result<String>> {
    (1..).zip(stdin().lock().lines()).map(|(number, line): (u64, _)| {
        line.with_context(|| format!("line {number} of the standard input cannot be read"))
    })
}
