//! The values that the examples' command lines take.

#[path = "../../examples/command_line/mod.rs"]
mod values;

#[path = "../../examples/command_line/input.rs"]
#[expect(dead_code, reason = "it prints, too")]
mod input;

#[path = "../../examples/swap_backend/trial.rs"]
#[expect(dead_code, reason = "it also runs")]
mod trial;

use crate::refusals::says;
use clap::{Arg, Command, Error};
use trial::Size;
use values::count;

fn parse<T: Clone + Send + Sync + 'static>(arg: Arg, value: &str) -> Result<T, Error> {
    let command = Command::new("program").arg(arg.long("value"));
    let mut matches = command.try_get_matches_from(["program", &format!("--value={value}")])?;
    Ok(matches.remove_one("value").unwrap())
}

#[test]
fn numbers_that_overflow_or_count_nothing_are_refused() {
    let number = |value: &str| parse::<usize>(Arg::new("value").value_parser(count()), value);
    assert_eq!(number("4294967295").unwrap(), u32::MAX as usize);
    for value in ["0", "-1", "4294967296", "18446744073709551615", "18446744073709551616", "1e9"] {
        says(number(value), &format!("invalid value '{value}'"));
    }
}

#[test]
fn lines_are_the_texts_of_any_file() {
    let lines = |bytes: &[u8]| -> Vec<_> { input::lines_of(bytes).map(|line| line.ok()).collect() };
    let some = |text: &str| Some(text.to_string());
    // A byte order mark would move every place in the line.
    let found = lines("\u{feff}one\r\n\n\u{feff}two".as_bytes());
    assert_eq!(found, [some("one"), some(""), some("\u{feff}two")]);
    assert_eq!(lines(b""), []);
    let errors: Vec<_> = input::lines_of(&b"one\n\xff\n"[..]).filter_map(Result::err).collect();
    assert!(errors.len() == 1 && errors[0].to_string().contains("line 2"), "{errors:?}");
}

#[test]
fn what_a_model_says_is_printed_without_what_a_terminal_obeys() {
    assert_eq!(input::shown("B-\u{1b}[31mX\tmæß\n"), r"B-\u{1b}[31mX\tmæß\n");
}

#[test]
fn sizes_that_fit_in_no_memory_are_refused_before_anything_is_made() {
    let size = |vocab, hidden, batch, seq| Size { vocab, hidden, batch, seq }.check();
    size(30522, 768, 8, 128).unwrap();
    size(1 << 31, 1, 1, 1).unwrap();
    size(1, 1 << 11, 1 << 10, 1 << 10).unwrap();
    for (vocab, hidden, batch, seq) in [
        (1_000_000_000_000_000, 768, 8, 128),
        ((1 << 31) + 1, 1, 1, 1),
        (1, 1 << 11, 1 << 10, (1 << 10) + 1),
        (30522, usize::MAX, 8, 128),
        (30522, 768, usize::MAX, usize::MAX),
        (usize::MAX, 1, 1, 1),
    ] {
        let error = size(vocab, hidden, batch, seq).unwrap_err().to_string();
        assert!(error.contains("are too many; at most 2147483648 values"), "{error}");
    }
}
