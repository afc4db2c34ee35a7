//! Runs in their directories.

use super::{Row, file, row};
use burn_bert::Result;
use burn_bert::training::Run;
use std::path::Path;

fn open(dir: &Path, settings: i32, resume: bool) -> Result<Run> {
    Run::open(dir, &settings, resume)
}

/// A run with the setting 7 that began at a loss of 3.5.
fn begin(dir: &Path) {
    open(dir, 7, false).unwrap().begin(&7, 3.5).unwrap();
}

pub fn rows() -> Vec<Row> {
    vec![
        row(
            "File",
            |dir| {
                begin(dir);
                open(dir, 7, false).unwrap_err()
            },
            "DIR/training holds a run already; resume it, or choose another output directory",
            "",
        ),
        row(
            "File",
            |dir| open(dir, 7, true).unwrap_err(),
            "DIR/training holds no run to resume; start a new one without resume",
            "",
        ),
        row(
            "File",
            |dir| {
                file(dir, "config.json", "{}");
                open(dir, 7, false).unwrap_err()
            },
            "DIR is not empty; choose another output directory",
            "",
        ),
        row(
            "File",
            |dir| {
                begin(dir);
                open(dir, 8, true).unwrap_err()
            },
            "DIR/training holds a run with other settings: 7; resume it with these, or choose another output \
             directory",
            "",
        ),
        row(
            "File",
            |dir| open(dir, 7, false).unwrap().begin(&7, f64::NAN).unwrap_err(),
            "DIR/training cannot hold a run that begins at a loss of NaN; check the checkpoint and the data",
            "",
        ),
        row(
            "File",
            |dir| {
                begin(dir);
                open(dir, 7, true).unwrap().begin(&7, 3.6).unwrap_err()
            },
            "DIR/training holds a run that began at a loss of 3.5, but with this checkpoint and this data it is \
             3.6; resume with the original checkpoint and data",
            "",
        ),
    ]
}
