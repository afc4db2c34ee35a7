//! The real transformers, where an interpreter has them. What needs them says so and compares nothing where none is named.

#![allow(dead_code)] // every test file takes what it needs

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The interpreter that `BURN_BERT_PYTHON` names.
pub struct Python(OsString);

impl Python {
    pub fn find() -> Option<Self> {
        named("BURN_BERT_PYTHON").map(Self)
    }

    /// What a script of `tests/fixtures` prints. Fails with what it complains of.
    pub fn run(&self, script: &str, arguments: &[&Path], input: impl Into<Stdio>) -> Vec<u8> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(script);
        let run = Command::new(&self.0).arg(script).args(arguments).stdin(input).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        run.stdout
    }

    /// A command of `check_with_transformers.py`, on a checkpoint, with a folder to write to.
    pub fn check(&self, command: &str, checkpoint: &Path, out: &Path) {
        let printed =
            self.run("check_with_transformers.py", &[Path::new(command), checkpoint, out], Stdio::null());
        println!("{}", String::from_utf8_lossy(&printed));
    }
}

/// The checkpoint that `BURN_BERT_MODEL` names.
pub fn real_checkpoint() -> Option<PathBuf> {
    named("BURN_BERT_MODEL").map(PathBuf::from)
}

fn named(variable: &str) -> Option<OsString> {
    let found = std::env::var_os(variable);
    if found.is_none() {
        println!("{variable} is not set: nothing was compared");
    }
    found
}
