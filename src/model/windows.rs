//! Texts of any number and length, through a head.

use crate::error::Result;
use crate::text::{BertTokenizer, Encoding, TextBatch};
use burn::prelude::*;

/// Windows that are read at once.
const BATCH_SIZE: usize = 16;

/// Gives `found` the scores of each of the `windows`, of which there may be any number: C for each token.
///
/// # Shapes
///
/// - output of `logits`: [B, S, C]
pub(super) fn for_each_window(
    tokenizer: &BertTokenizer,
    windows: &[Encoding],
    device: &Device,
    logits: impl Fn(&TextBatch) -> Result<Tensor<3>>,
    mut found: impl FnMut(usize, &[f64], usize) -> Result<()>,
) -> Result<()> {
    for (batch, windows) in windows.chunks(BATCH_SIZE).enumerate() {
        let logits = logits(&tokenizer.batch(windows, device)?)?;
        let [_, seq, classes] = logits.dims();
        let logits: Vec<f64> = logits.into_data().iter().collect();
        for (i, logits) in logits.chunks(seq * classes).enumerate() {
            found(batch * BATCH_SIZE + i, logits, classes)?;
        }
    }
    Ok(())
}

/// Probabilities of scores: exp(xᵢ) / Σ exp(xⱼ).
pub(super) fn softmax(logits: &[f64]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = logits.iter().map(|logit| (logit - largest).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.into_iter().map(|exponential| exponential / sum).collect()
}
