//! Users with homes of their own, and the processes that load for them.

use crate::files::walk;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};
use tempfile::TempDir;

/// Nobody listens there.
pub const UNREACHABLE: &str = "http://127.0.0.1:9";

/// A user, with a home and a cache.
pub struct User {
    pub home: TempDir,
    pub endpoint: String,
    variables: BTreeMap<&'static str, String>,
}

impl User {
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { home: tempfile::tempdir().unwrap(), endpoint: endpoint.into(), variables: BTreeMap::new() }
    }

    pub fn with(mut self, variable: &'static str, value: &str) -> Self {
        self.variables.insert(variable, value.into());
        self
    }

    pub fn cache(&self) -> PathBuf {
        self.home.path().join("hf/hub")
    }

    pub fn model(&self) -> PathBuf {
        self.cache().join("models--owner--tiny")
    }

    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            if ["HF_", "HUGGINGFACE", "TRANSFORMERS", "XDG_"].iter().any(|start| name.starts_with(start)) {
                command.env_remove(&*name);
            }
        }
        command
            .current_dir(&self.home)
            .env("HOME", self.home.path())
            .env("HF_HOME", self.home.path().join("hf"))
            .env("HF_ENDPOINT", &self.endpoint)
            .env("NO_PROXY", "127.0.0.1,localhost")
            .envs(&self.variables)
            .stdin(Stdio::null());
        command
    }

    pub fn loading(&self, kind: &str, name: &str) -> Child {
        let mut command = self.command(env::current_exe().unwrap());
        command.args(["child", "--exact", "--ignored", "--nocapture"]).env("KIND", kind).env("NAME", name);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What a process loads, or the messages of its error.
    pub fn load(&self, kind: &str, name: &str) -> Result<String, String> {
        finished(self.loading(kind, name))
    }
}

pub fn finished(child: Child) -> Result<String, String> {
    let output = child.wait_with_output().unwrap();
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let line = |start: &str| out.lines().find_map(|line| line.strip_prefix(start).map(String::from));
    let result = line("loaded: ").ok_or_else(|| line("failed: ").unwrap_or_else(|| panic!("{out}\n{err}")));
    // There is no terminal for a progress bar.
    assert_eq!(err, "");
    result
}

pub fn has(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

/// All that is in a folder: files with their content, links with their targets.
pub fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let content = |name: PathBuf| {
        let path = dir.join(&name);
        let target = fs::read_link(&path).map(|target| target.into_os_string().into_encoded_bytes());
        (name.into_os_string().into_string().unwrap(), target.unwrap_or_else(|_| fs::read(path).unwrap()))
    };
    let files = if dir.exists() { walk(dir) } else { Vec::new() };
    files.into_iter().map(content).collect()
}
