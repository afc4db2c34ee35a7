//! The values that the examples' command lines take.

#[path = "../../examples/command_line/mod.rs"]
#[expect(dead_code, reason = "it prints, too")]
mod values;

use clap::{Arg, Command, Error};
use values::{count, not_negative};

fn parse<T: Clone + Send + Sync + 'static>(arg: Arg, value: &str) -> Result<T, Error> {
    let command = Command::new("program").arg(arg.long("value"));
    let mut matches = command.try_get_matches_from(["program", &format!("--value={value}")])?;
    Ok(matches.remove_one("value").unwrap())
}

#[test]
fn numbers_that_overflow_or_mean_nothing_are_refused() {
    let number = |value: &str| parse::<usize>(Arg::new("value").value_parser(count()), value);
    assert_eq!(number("4294967295").unwrap(), u32::MAX as usize);
    for value in ["0", "-1", "4294967296", "18446744073709551615", "18446744073709551616", "1e9"] {
        assert!(number(value).is_err(), "{value}");
    }
    let real = |value: &str| parse::<f64>(Arg::new("value").value_parser(not_negative), value);
    assert_eq!((real("0").unwrap(), real("1e-5").unwrap()), (0.0, 1e-5));
    for value in ["-1", "-1e-300", "nan", "inf", "1e400", "x"] {
        assert!(real(value).is_err(), "{value}");
    }
}
