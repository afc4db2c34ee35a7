//! The logs of Burn's trainer.

use burn::train::logger::{FileMetricLogger, MetricLogger};
use burn::train::metric::store::{EpochSummary, MetricsUpdate, Split};
use burn::train::metric::{MetricDefinition, MetricId, NumericEntry};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Writes the logs of Burn's own logger, which aborts the process on a full disk; here lines are lost, and training goes on.
pub(super) struct Logs {
    folder: PathBuf,
    reader: FileMetricLogger,
    names: HashMap<MetricId, String>,
    /// Those of the current epoch with their sizes; `None` if one could not be created.
    files: HashMap<PathBuf, Option<(File, u64)>>,
}

impl Logs {
    pub(super) fn new(folder: &Path) -> Self {
        let reader = FileMetricLogger::new(folder);
        Self { folder: folder.to_path_buf(), reader, names: HashMap::new(), files: HashMap::new() }
    }
}

impl MetricLogger for Logs {
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: &Split) {
        let folder = self.folder.join(split.to_string()).join(format!("epoch-{epoch}"));
        let numeric = update.entries_numeric.iter().map(|numeric| &numeric.entry);
        for entry in update.entries.iter().chain(numeric) {
            if entry.serialized_entry.is_not_available() {
                continue;
            }
            let Some(name) = self.names.get(&entry.metric_id) else { continue };
            let path = folder.join(format!("{name}.log"));
            let file = self.files.entry(path).or_insert_with_key(|path| {
                let _ = fs::create_dir_all(&folder);
                Some((File::create(path).ok()?, 0))
            });
            let Some((file, size)) = file else { continue };
            let line = format!("{}\n", entry.serialized_entry.serialized);
            match file.write_all(line.as_bytes()) {
                Ok(()) => *size += line.len() as u64,
                // Half a number is another number.
                Err(_) => drop(file.set_len(*size).and_then(|()| file.seek(SeekFrom::End(0)))),
            }
        }
    }

    fn read_numeric(&mut self, name: &str, epoch: usize, split: &Split) -> Result<Vec<NumericEntry>, String> {
        self.reader.read_numeric(name, epoch, split)
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, definition.name.replace(' ', "_"));
    }

    fn log_epoch_summary(&mut self, _summary: EpochSummary) {
        self.files.clear();
    }
}
