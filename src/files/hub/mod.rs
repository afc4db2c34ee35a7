//! Models by their names on the Hugging Face Hub, where a path is expected.

#[cfg(feature = "hub")]
mod api;
#[cfg(feature = "hub")]
mod download;
#[cfg(feature = "hub")]
mod snapshot;

use crate::error::{Error, Result};
use crate::files::{CONFIG_NAME, SENTENCE_NAMES, read_json, regular_file};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What of a model is read: without weights, none are downloaded.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum HubFiles {
    Weights,
    Settings,
}

/// `path`, or the directory of the model that it names.
pub(crate) fn directory(path: &Path, wanted: HubFiles) -> Result<PathBuf> {
    let dir = match ModelId::parse(path) {
        // A dangling link is a path, and no reason for a download.
        Some(id) if !regular_file::exists(path) => id.directory(wanted)?,
        _ => path.to_path_buf(),
    };
    Ok(transformer_folder(&dir).unwrap_or(dir))
}

/// The folder with the model in a directory of sentence-transformers that has it in one, as those before version 2.
pub(crate) fn transformer_folder(dir: &Path) -> Option<PathBuf> {
    // Whoever reads the list reports what is wrong with it.
    let modules: Value = read_json(&dir.join(SENTENCE_NAMES[0])).ok()?;
    let name = modules[0]["path"].as_str().filter(|name| regular_file::is_plain_name(name))?;
    Some(dir.join(name)).filter(|folder| regular_file::exists(&folder.join(CONFIG_NAME)))
}

/// `owner/name` or `name`, and `@revision` as in huggingface_hub's `hf://` paths.
struct ModelId {
    name: String,
    revision: String,
}

impl ModelId {
    /// `None` if it can only be a path.
    fn parse(path: &Path) -> Option<Self> {
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
    fn directory(self, _: HubFiles) -> Result<PathBuf> {
        let Self { name, revision } = self;
        let revision = if revision == "main" { String::new() } else { format!("--revision {revision} ") };
        let problem = format!(
            "is not a local path; to load the model of this name from the Hugging Face Hub, turn on the cargo feature `hub`, or \
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
