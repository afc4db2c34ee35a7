//! What the programs that train share: the values that they take, and printing.

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// A number of things. The product of two fits into 64 bits.
pub fn count() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=u32::MAX.into())
}

/// A finite number that is not negative.
pub fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        Ok(_) => Err("it must be finite and at least 0".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// A number in (0, 1].
pub fn factor(text: &str) -> Result<f64, String> {
    not_negative(text).and_then(|factor| {
        if factor > 0.0 && factor <= 1.0 { Ok(factor) } else { Err("it must lie in (0, 1]".into()) }
    })
}

static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Whether [`print_line`] prints: of several ranks, only the first does.
pub fn print_lines(is_first: bool) {
    IS_SILENT.store(!is_first, Ordering::Relaxed);
}

/// Prints a line, if anybody reads it: a training does not end because its output was closed.
pub fn print_line(line: impl Display) {
    if !IS_SILENT.load(Ordering::Relaxed) {
        let _ = writeln!(io::stdout(), "{line}");
    }
}
