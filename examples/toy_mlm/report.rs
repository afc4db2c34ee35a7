//! The closing table.

use crate::run::{Run, Score};
use crate::task::Outcome;
use anyhow::{Context, Result};
use burn::prelude::*;
use burn_bert::TokenEmbedding;
use std::fmt;

pub struct Report {
    outcome: Outcome,
    without_positions: Score,
    blind_guess_name: &'static str,
    used: usize,
    unused: usize,
    used_movement: f64,
    lesson: &'static str,
    task_has_learned: bool,
}

impl Report {
    pub fn new(run: &Run) -> Result<Self> {
        let learned = run.score(&run.learned.model)?;
        let without_positions = run.score(&run.without_positions.model)?;

        let labels = run.held_out()?.iter().filter_map(|batch| batch.labels()).collect();
        let labels: Vec<u32> = Tensor::cat(labels, 0).into_data().iter::<u32>().collect();

        let before = &run.initial;
        let after = &run.learned.model.bert.embeddings;
        let no_table = "the model has no position table";
        let moved = movement(
            before.position_embeddings.as_ref().context(no_table)?,
            after.position_embeddings.as_ref().context(no_table)?,
        );
        let used_rows = run.used_positions();
        let (used, unused): (Vec<_>, Vec<_>) =
            moved.into_iter().enumerate().partition(|(row, _)| used_rows.contains(row));
        let words_moved = movement(&before.word_embeddings, &after.word_embeddings);
        let pad = before.word_embeddings.padding_idx.context("the word table has no padding row")?;

        let outcome = Outcome {
            loss_before: run.initial_loss.into(),
            loss: learned.loss,
            accuracy: learned.accuracy,
            accuracy_without_positions: without_positions.accuracy,
            blind_loss: run.task.blind_guess(&labels),
            unused_movement: unused.iter().map(|&(_, distance)| distance).fold(0.0, f64::max),
            pad_movement: words_moved[pad],
        };
        Ok(Self {
            lesson: run.task.lesson(),
            task_has_learned: run.task.has_learned(&outcome),
            outcome,
            without_positions,
            blind_guess_name: run.task.blind_guess_name(),
            used: used.len(),
            unused: unused.len(),
            used_movement: used.iter().map(|&(_, distance)| distance).sum::<f64>() / used.len() as f64,
        })
    }

    /// Whether the model learned what it should.
    pub fn has_learned(&self) -> bool {
        self.task_has_learned
            && self.used_movement > 0.0
            && self.outcome.unused_movement == 0.0
            && self.outcome.pad_movement == 0.0
    }
}

/// How far each row has moved: the Euclidean distance between what it was and what it is.
fn movement(before: &TokenEmbedding, after: &TokenEmbedding) -> Vec<f64> {
    let before = before.weight.val();
    let after = after.weight.val().without_autodiff();
    (after - before).square().sum_dim(1).sqrt().into_data().iter::<f64>().collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { loss_before, loss, accuracy, accuracy_without_positions, .. } = self.outcome;
        let Outcome { blind_loss, unused_movement, pad_movement, .. } = self.outcome;
        let mut row = |label: &str, value: String| writeln!(f, "  {label:<52} {value:>10}");
        row("held-out masked tokens", String::new())?;
        row("  loss before training", format!("{loss_before:.3}"))?;
        row("  loss after training", format!("{loss:.3}"))?;
        row("  … with the position table held at zero", format!("{:.3}", self.without_positions.loss))?;
        row(&format!("  … guessing {}", self.blind_guess_name), format!("{blind_loss:.3}"))?;
        row("  accuracy", format!("{accuracy:.3}"))?;
        row("  … with the position table held at zero", format!("{accuracy_without_positions:.3}"))?;
        row("movement of vectors in training", String::new())?;
        row(&format!("  positions used ({}), mean", self.used), format!("{:.3}", self.used_movement))?;
        row(&format!("  positions never used ({}), largest", self.unused), exact(unused_movement))?;
        row("  padding row of the word table", exact(pad_movement))?;
        let not = if self.has_learned() { "" } else { "NOT shown: " };
        write!(f, "\n{not}{}", self.lesson)
    }
}

/// A zero that is one, and all digits of what is not.
fn exact(value: f64) -> String {
    if value == 0.0 { "0 exactly".into() } else { format!("{value:e}") }
}
