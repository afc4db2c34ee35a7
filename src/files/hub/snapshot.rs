//! A commit of a model in the cache of Python's huggingface_hub: `blobs` holds files by their checksums,
//! `snapshots/COMMIT` links to them by their names, `refs/REVISION` says the commit of a branch, and `.no_exist/COMMIT` has an
//! empty file for each name that the commit lacks.

use super::HubFiles;
use crate::files::regular_file::is_plain_name;
use crate::files::replace::directory_of;
use crate::files::{
    ADAPTER_CONFIG_NAME, ADAPTER_NAMES, CONFIG_NAME, SENTENCE_NAMES, TOKENIZER_NAMES, TRANSFORMER_NAMES,
    VOCABULARY_NAMES, WEIGHT_NAMES,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

pub(super) struct Snapshot {
    pub(super) model: PathBuf,
    pub(super) commit: String,
}

impl Snapshot {
    /// The one that the cache has for a revision.
    pub(super) fn cached(model: &Path, revision: &str) -> Option<Self> {
        let named = || fs::read_to_string(model.join("refs").join(revision)).ok();
        let commit = if is_hex(revision, 40) { revision.into() } else { named()? };
        is_hex(commit.trim(), 40).then(|| Self { model: model.into(), commit: commit.trim().into() })
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.model.join("snapshots").join(&self.commit)
    }

    /// A link whose blob was deleted counts as missing.
    fn has(&self, name: &str) -> bool {
        self.dir().join(name).is_file()
    }

    fn lacks(&self, name: &str) -> PathBuf {
        self.model.join(".no_exist").join(&self.commit).join(name)
    }

    /// Whether the cache has all that is read.
    pub(super) fn is_complete(&self, wanted: HubFiles) -> bool {
        self.unknown(wanted).is_empty()
    }

    /// Whether it can be loaded, if nobody can say what else belongs to the model.
    pub(super) fn is_usable(&self, wanted: HubFiles) -> bool {
        let is_adapter = self.has(ADAPTER_CONFIG_NAME)
            && (wanted == HubFiles::Settings || ADAPTER_NAMES.iter().any(|name| self.has(name)));
        is_adapter
            || self.has(CONFIG_NAME)
                && (wanted == HubFiles::Settings || WEIGHT_NAMES.iter().any(|name| self.has(name)))
    }

    /// The files to be read of which the cache has neither the file nor the note that there is none. When these are known,
    /// there may be more: folders of modules, shards.
    pub(super) fn unknown(&self, wanted: HubFiles) -> BTreeSet<String> {
        let settings =
            [&TOKENIZER_NAMES[..], &VOCABULARY_NAMES, &SENTENCE_NAMES, &TRANSFORMER_NAMES].concat();
        let modules = self.json(SENTENCE_NAMES[0]);
        let transformer = modules[0]["path"].as_str().filter(|path| is_plain_name(path));
        let of_transformer = transformer
            .into_iter()
            .flat_map(|path| settings.iter().map(move |name| format!("{path}/{name}")));
        let mut names: BTreeSet<String> = of_transformer.collect();
        names.extend(settings.iter().map(|name| name.to_string()));
        names.insert(ADAPTER_CONFIG_NAME.into());
        if wanted == HubFiles::Weights && self.has(ADAPTER_CONFIG_NAME) {
            let first = ADAPTER_NAMES.into_iter().find(|name| !self.lacks(name).exists());
            names.extend(first.map(String::from));
        }
        let paths = modules.as_array().into_iter().flatten().filter_map(|module| module["path"].as_str());
        let folders = paths.filter(|path| is_plain_name(path)).map(|path| format!("{path}/"));
        for folder in folders.chain([String::new()]) {
            names.insert(format!("{folder}{CONFIG_NAME}"));
            let mut weights = WEIGHT_NAMES.map(|name| format!("{folder}{name}")).into_iter();
            // The first that may be there: the others are not read beside it.
            let first = weights.find(|name| wanted == HubFiles::Weights && !self.lacks(name).exists());
            if let Some(name) = first {
                let index = if name.ends_with(".json") { self.json(&name) } else { Value::Null };
                let shards = index["weight_map"].as_object().into_iter().flat_map(|map| map.values());
                let shards = shards.filter_map(Value::as_str).filter(|shard| is_plain_name(shard));
                names.extend(shards.map(|shard| format!("{folder}{shard}")));
                names.insert(name);
            }
        }
        names.retain(|name| !self.has(name) && !self.lacks(name).exists());
        names
    }

    /// `null` if there is none. Whoever reads the file reports what is wrong with it.
    fn json(&self, name: &str) -> Value {
        let text = fs::read(self.dir().join(name)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub(super) fn note_missing(&self, name: &str) -> io::Result<()> {
        write(&self.lacks(name), "")
    }

    pub(super) fn link(&self, name: &str, blob: &str) -> io::Result<()> {
        // A process that began at the same time may be reading it already.
        if self.has(name) {
            return Ok(());
        }
        let link = self.dir().join(name);
        let target = format!("{}blobs/{blob}", "../".repeat(2 + name.matches('/').count()));
        fs::create_dir_all(directory_of(&link))?;
        let _ = fs::remove_file(&link);
        #[cfg(unix)]
        let linked = std::os::unix::fs::symlink(target, &link);
        // Links need a right there that users lack; Python copies too.
        #[cfg(not(unix))]
        let linked = fs::copy(link.with_file_name(target), &link).map(drop);
        // Another process may have been faster.
        if self.has(name) { Ok(()) } else { linked }
    }

    pub(super) fn set_as(&self, revision: &str) -> io::Result<()> {
        if is_hex(revision, 40) {
            return Ok(());
        }
        write(&self.model.join("refs").join(revision), &self.commit)
    }
}

pub(super) fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(directory_of(path))?;
    fs::write(path, text)
}
