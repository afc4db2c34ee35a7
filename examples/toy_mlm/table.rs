//! The closing table.

use crate::Score;
use crate::language::LETTERS;
use burn::prelude::*;

/// Prints the table; returns whether it shows that the position embeddings learned.
pub fn print(scores: [Score; 3], before: &[Tensor<2>; 2], after: &[Tensor<2>; 2], is_used: &[bool]) -> bool {
    let [initial, learned, without_positions] = scores;
    let padding_row = movement(&before[0], &after[0])[0];
    let (used, unused): (Vec<_>, Vec<_>) =
        movement(&before[1], &after[1]).into_iter().zip(is_used).partition(|(_, is_used)| **is_used);
    let used_mean = used.iter().map(|(distance, _)| distance).sum::<f64>() / used.len() as f64;
    let unused_largest = unused.iter().map(|&(distance, _)| distance).fold(0.0, f64::max);

    let row = |label: &str, value: String| println!("  {label:<52} {value:>10}");
    println!("  held-out masked tokens");
    row("  loss before training", format!("{:.3}", initial.loss));
    row("  loss after training", format!("{:.3}", learned.loss));
    row("  … with the position embeddings held at zero", format!("{:.3}", without_positions.loss));
    row("  … guessing any letter", format!("{:.3}", f64::from(LETTERS).ln()));
    row("  accuracy", format!("{:.3}", learned.accuracy));
    row("  … with the position embeddings held at zero", format!("{:.3}", without_positions.accuracy));
    println!("  movement of vectors in training");
    row(&format!("  positions used ({}), mean", used.len()), format!("{used_mean:.3}"));
    row(&format!("  positions never used ({}), largest", unused.len()), exact(unused_largest));
    row("  padding row of the word embeddings", exact(padding_row));

    let has_learned = learned.accuracy >= 0.95 && without_positions.accuracy <= 0.30;
    has_learned && used_mean > 0.0 && unused_largest == 0.0 && padding_row == 0.0
}

/// The Euclidean distance between what each row was and what it is.
fn movement(before: &Tensor<2>, after: &Tensor<2>) -> Vec<f64> {
    (after.clone() - before.clone()).square().sum_dim(1).sqrt().into_data().iter::<f64>().collect()
}

/// A zero that is one, and all digits of what is not.
fn exact(value: f64) -> String {
    if value == 0.0 { "0 exactly".into() } else { format!("{value:e}") }
}
