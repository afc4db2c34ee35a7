//! Runs in their directories.

use super::{Row, file, row};
use burn_bert::Result;
use burn_bert::training::Run;
use std::path::Path;

fn create(dir: &Path) -> Result<Run> {
    Run::create(dir, &7)
}

/// A run with the setting 7 that began at a loss of 3.5.
fn begin(dir: &Path) {
    create(dir).unwrap().begin(3.5, &[]).unwrap();
}

pub fn rows() -> Vec<Row> {
    vec![
        row(
            "File",
            |dir| {
                begin(dir);
                create(dir).unwrap_err()
            },
            "DIR/training holds a run already; resume it, or choose another output directory",
        ),
        row(
            "File",
            |dir| Run::resume(dir, &7).unwrap_err(),
            "DIR/training holds no run to resume; start a new one",
        ),
        row(
            "File",
            |dir| {
                file(dir, "config.json", "{}");
                create(dir).unwrap_err()
            },
            "DIR is not empty; choose another output directory",
        ),
        row(
            "File",
            |dir| {
                begin(dir);
                Run::resume(dir, &8).unwrap_err()
            },
            "DIR/training holds a run with other settings: 7, now 8; resume it with those it began with, or choose \
             another output directory",
        ),
        row(
            "File",
            |dir| create(dir).unwrap().begin(f64::NAN, &[]).unwrap_err(),
            "DIR/training cannot hold a run that begins at a loss of NaN; check the checkpoint and the data",
        ),
        row(
            "File",
            |dir| {
                begin(dir);
                Run::resume(dir, &7).unwrap().begin(3.6, &[]).unwrap_err()
            },
            "DIR/training holds a run that began at a loss of 3.5, but with this checkpoint it is 3.6; resume with \
             the original checkpoint",
        ),
    ]
}
