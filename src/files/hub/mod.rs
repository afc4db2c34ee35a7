//! Models by their names on the Hugging Face Hub, where a path is expected.

#[cfg(feature = "hub")]
mod download;
#[cfg(feature = "hub")]
mod snapshot;

use crate::error::{Error, Result};
use crate::files::regular_file;
use std::path::{Path, PathBuf};

/// `path`, or the directory of the model that it names.
#[cfg(feature = "checkpoint")]
pub(crate) fn directory_with_weights(path: &Path) -> Result<PathBuf> {
    directory(path, Wanted::Weights)
}

/// `path`, or the directory of the model that it names; weights are not downloaded.
pub(crate) fn directory_without_weights(path: &Path) -> Result<PathBuf> {
    directory(path, Wanted::Settings)
}

#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    #[cfg(feature = "checkpoint")]
    Weights,
    Settings,
}

fn directory(path: &Path, wanted: Wanted) -> Result<PathBuf> {
    match ModelId::of(path) {
        // A dangling link is a path, and no reason for a download.
        Some(id) if !regular_file::exists(path) => id.directory(wanted),
        _ => Ok(path.to_path_buf()),
    }
}

/// `owner/name` or `name`, and `@revision` as in huggingface_hub's `hf://` paths.
struct ModelId {
    name: String,
    revision: String,
}

impl ModelId {
    /// `None` if it can only be a path.
    fn of(path: &Path) -> Option<Self> {
        /// The ends of missing files, which no model's name has.
        const FILES: [&str; 8] = [".git", ".safetensors", ".bin", ".json", ".txt", ".pt", ".pth", ".ckpt"];
        let text = path.to_str()?;
        let (name, revision) = text.split_once('@').unwrap_or((text, "main"));
        let is_name = name.split('/').count() <= 2
            && name.split('/').all(is_part)
            && !name.contains("--")
            && !FILES.iter().any(|end| name.ends_with(end));
        // Both become paths in the cache.
        let is_id = is_name && revision.split('/').all(is_part) && !text.contains("..");
        is_id.then(|| Self { name: name.into(), revision: revision.into() })
    }

    #[cfg(not(feature = "hub"))]
    fn directory(self, _: Wanted) -> Result<PathBuf> {
        let Self { name, revision } = self;
        let revision = if revision == "main" { String::new() } else { format!("--revision {revision} ") };
        let problem = format!(
            "is no path here; to load the model of this name from the Hugging Face Hub, turn on the cargo feature `hub`, or \
             run `hf download {name} {revision}--local-dir DIR` and load DIR"
        );
        Err(Error::Hub { name, problem, source: None })
    }
}

/// The rule of huggingface_hub's `validate_repo_id`.
fn is_part(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    part.len() <= 96
        && part.starts_with(is_word)
        && part.ends_with(is_word)
        && part.chars().all(|c| is_word(c) || c == '-' || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_never_taken_for_a_name() {
        for path in [
            "",
            ".",
            "..",
            "./a",
            "../a",
            "/a",
            "~/a",
            "a/b/c",
            "a/",
            "a//b",
            r"a\b",
            "C:a",
            "a b",
            "-a",
            "a-",
            "a--b",
            "a..b",
            "a/.b",
            "a.git",
            "a/model.safetensors",
            "pytorch_model.bin",
            "a/config.json",
            "vocab.txt",
            "é",
            "a@",
            "a@/b",
            "a@../b",
            "a@b/../c",
            "a@b@c",
        ] {
            assert!(ModelId::of(Path::new(path)).is_none(), "{path}");
        }
    }

    #[test]
    fn a_name_may_have_an_owner_and_a_revision() {
        for (path, name, revision) in [
            ("bert-base-uncased", "bert-base-uncased", "main"),
            ("intfloat/multilingual-e5_a.1", "intfloat/multilingual-e5_a.1", "main"),
            ("a/b@v1.0", "a/b", "v1.0"),
            ("a/b@refs/pr/1", "a/b", "refs/pr/1"),
        ] {
            let id = ModelId::of(Path::new(path)).unwrap();
            assert_eq!((&*id.name, &*id.revision), (name, revision));
        }
    }
}
