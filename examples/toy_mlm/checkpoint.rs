//! Saving and resuming a run.
//!
//! A checkpoint is a folder of Burn records and a `run.json`. The records of a step carry its number in their
//! names, and `run.json`, which says which step counts, is written last and by renaming: whatever interrupts
//! a save, the folder holds a whole checkpoint.

use crate::run::{Learner, Run};
use anyhow::{Context, Result, ensure};
use burn::module::Module;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

const STATE: &str = "run.json";

/// What a save writes beside `run.json`, by the names of the records.
const RECORDS: [(&str, &str); 5] = [
    ("learned", "model"),
    ("learned", "optimizer"),
    ("without_positions", "model"),
    ("without_positions", "optimizer"),
    ("initial", "embeddings"),
];

#[derive(Serialize, Deserialize)]
struct State {
    /// Which task, text and seed the run belongs to.
    fingerprint: String,
    /// Held-out loss before the first step.
    initial_loss: f32,
    losses: Vec<f32>,
    losses_without_positions: Vec<f32>,
}

impl Run<'_> {
    /// Writes everything that the next step depends on.
    pub fn save(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir)?;
        for (name, learner) in self.learners() {
            learner.model.clone().save_file(record(dir, name, "model", self.steps()))?;
            learner.optimizer.save(record(dir, name, "optimizer", self.steps()))?;
        }
        self.initial.clone().save_file(record(dir, "initial", "embeddings", self.steps()))?;
        let state = State {
            fingerprint: self.task.fingerprint(),
            initial_loss: self.initial_loss,
            losses: self.learned.losses.clone(),
            losses_without_positions: self.without_positions.losses.clone(),
        };
        let unfinished = dir.join(format!("{STATE}.unfinished"));
        fs::write(&unfinished, serde_json::to_vec(&state)?)?;
        fs::rename(&unfinished, dir.join(STATE))?;
        self.remove_older(dir)
    }

    /// Continues the run that was saved to `dir`.
    pub fn resume(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join(STATE);
        let json = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let state: State =
            serde_json::from_slice(&json).with_context(|| format!("{} is damaged", path.display()))?;
        let fingerprint = self.task.fingerprint();
        ensure!(
            state.fingerprint == fingerprint,
            "it holds a run of ({}), but this one is of ({fingerprint})",
            state.fingerprint
        );
        let steps = state.losses.len();
        let initial = record(dir, "initial", "embeddings", steps);
        self.initial = self.initial.clone().try_load_file(&initial)?;
        self.initial_loss = state.initial_loss;
        let losses = [state.losses, state.losses_without_positions];
        let learners = [("learned", &mut self.learned), ("without_positions", &mut self.without_positions)];
        for ((name, learner), losses) in learners.into_iter().zip(losses) {
            let model = record(dir, name, "model", steps);
            let optimizer = record(dir, name, "optimizer", steps);
            learner.model = learner.model.clone().try_load_file(&model)?;
            learner.optimizer = learner.optimizer.clone().load(&optimizer)?;
            learner.losses = losses;
        }
        Ok(())
    }

    fn learners(&self) -> [(&'static str, &Learner); 2] {
        [("learned", &self.learned), ("without_positions", &self.without_positions)]
    }

    /// Removes the records of earlier saves and no other files: the folder may be one in which the user keeps more.
    fn remove_older(&self, dir: &Path) -> Result<()> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if steps_of(&path).is_some_and(|steps| steps != self.steps()) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// The steps in the name of a record; nothing for any other file.
fn steps_of(path: &Path) -> Option<usize> {
    let name = path.file_stem()?.to_str()?;
    let (start, steps) = name.rsplit_once('-')?;
    let (learner, what) = start.rsplit_once('-')?;
    let steps = steps.parse().ok()?;
    let is_record =
        RECORDS.contains(&(learner, what)) && record(path.parent()?, learner, what, steps) == path;
    is_record.then_some(steps)
}

fn record(dir: &Path, learner: &str, what: &str, steps: usize) -> PathBuf {
    dir.join(format!("{learner}-{what}-{steps}.bpk"))
}
