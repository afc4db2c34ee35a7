//! The real transformers. A test that needs them is ignored, with the reason; `cargo test -- --ignored` runs it and
//! fails where an environment variable does not name what it needs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The interpreter that `BURN_BERT_PYTHON` names.
pub struct Python(OsString);

impl Python {
    pub fn named() -> Self {
        Self(named("BURN_BERT_PYTHON"))
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

/// The checkpoint that `BURN_BERT_CHECKPOINT` names.
pub fn real_checkpoint() -> PathBuf {
    named("BURN_BERT_CHECKPOINT").into()
}

fn named(variable: &str) -> OsString {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("set {variable}; tests/fixtures/README.md says to what"))
}
