//! What is refused, and in which words.

#![allow(dead_code)] // every test file takes what it needs

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The error of a result, which must be one of a pattern.
#[allow(unused_macros)] // as above
macro_rules! fails {
    ($result:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {{
        let error = $result.map(drop).expect_err("it should be refused");
        assert!(matches!(&error, $pattern $(if $guard)?), "{error}");
        error
    }};
    ($result:expr, $pattern:pat $(if $guard:expr)?, $part:expr) => {{
        let message = fails!($result, $pattern $(if $guard)?).to_string();
        assert!(message.contains($part), "{message}");
    }};
}
#[allow(unused_imports)] // as above
pub(crate) use fails;

/// Asserts that a result is an error whose message has a part.
#[track_caller]
pub fn says<T, E: Display>(result: Result<T, E>, part: &str) {
    let message = result.map(drop).expect_err(part).to_string();
    assert!(message.contains(part), "{message:?} does not say {part:?}");
}

/// Checks each row of a table, and panics with what is wrong of all that fail.
pub fn each<T>(rows: impl IntoIterator<Item = T>, mut check: impl FnMut(T)) {
    let failed = |(i, row)| Some(format!("row {i}: {}", unless_panics(|| check(row)).err()?));
    let failed: Vec<String> = rows.into_iter().enumerate().filter_map(failed).collect();
    assert!(failed.is_empty(), "{} rows:\n{}", failed.len(), failed.join("\n"));
}

/// What `run` returns, or the message that it panics with.
pub fn unless_panics<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let message = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().map_or(String::new(), ToString::to_string),
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(message)
}

/// The message that `run` panics with.
pub fn panic_of<T>(run: impl FnOnce() -> T) -> String {
    unless_panics(run).map(drop).expect_err("a panic")
}
