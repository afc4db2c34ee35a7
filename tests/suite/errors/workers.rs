//! Workers.

use super::{Row, row};
use burn_bert::Error;
use burn_bert::remote::WorkersConfig;

fn connect(address: &str) -> Error {
    WorkersConfig::new([address]).connect().unwrap_err()
}

pub fn rows() -> Vec<Row> {
    vec![
        row(
            "Worker",
            |_| connect("localhost:4000"),
            "worker localhost:4000 is not an address of the form ws://HOST:PORT",
            "",
        ),
        // Nothing can listen on port 0.
        row(
            "Worker",
            |_| connect("ws://127.0.0.1:0"),
            "worker ws://127.0.0.1:0 cannot be reached; is it running?",
            "os error",
        ),
    ]
}
