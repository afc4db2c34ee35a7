//! A tokenizer into a directory.

use super::files::{TOKENIZER_NAME, VOCAB_NAME, is_json};
use super::tokenizer::BertTokenizer;
use crate::error::{Error, Result};
use crate::files::{Replacement, directory_of, regular_file};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The files of a tokenizer: those that are read here, and those of other libraries.
const FILES: [&str; 9] = [
    TOKENIZER_NAME,
    VOCAB_NAME,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
];

impl BertTokenizer {
    /// Copies the files that the tokenizer was read from into `dir`, which may be where they are: `tokenizer.json` or
    /// `vocab.txt`, and the settings and files of other libraries beside it. Limits that were set since are not in them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a file is gone or cannot be written; [`Error::File`] if `dir` has a file of another tokenizer, which
    /// would be read along with them. Each file is then as it was.
    pub fn save_pretrained(&self, dir: impl AsRef<Path>) -> Result<()> {
        let dir = dir.as_ref();
        if dir.as_os_str().is_empty() {
            return Err(regular_file::empty_path("saved into"));
        }
        fs::create_dir_all(dir).map_err(|source| Error::writing(dir, source))?;
        self.check_directory(dir)?;
        let mut new = Replacement::begin(dir)?;
        for (name, from) in FILES.into_iter().filter_map(|name| Some((name, self.file(name)?))) {
            let mut from = regular_file::open(&from)?;
            new.write(&dir.join(name), |out| io::copy(&mut from, out).map(drop))?;
        }
        new.commit()
    }

    /// Whether [`save_pretrained`](Self::save_pretrained) may write into `dir`.
    pub(crate) fn check_directory(&self, dir: &Path) -> Result<()> {
        let mut names = FILES.into_iter().filter(|name| self.file(name).is_none());
        match names.find(|name| regular_file::exists(&dir.join(name))) {
            Some(foreign) => {
                let problem = "is of another tokenizer than the one that is saved, and would be read with it; remove it, or \
                               choose another directory";
                Err(Error::file(&dir.join(foreign), problem))
            }
            None => Ok(()),
        }
    }

    /// The tokenizer's file of this name, if it has one.
    fn file(&self, name: &str) -> Option<PathBuf> {
        // Under its usual name, by which a directory's tokenizer is found.
        let own = if is_json(&self.path) { TOKENIZER_NAME } else { VOCAB_NAME };
        let beside = directory_of(&self.path).join(name);
        match name {
            _ if name == own => Some(self.path.to_path_buf()),
            // The file that was named was read in its place.
            TOKENIZER_NAME => None,
            _ => regular_file::exists(&beside).then_some(beside),
        }
    }
}
