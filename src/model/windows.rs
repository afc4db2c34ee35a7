//! Texts of any number and length, through a head.

use crate::error::{Error, Result};
use crate::text::{BertTokenizer, Encoding, TextBatch};
use burn::prelude::*;

/// Windows that are read at once.
const BATCH_SIZE: usize = 16;

pub(super) struct Windows {
    encodings: Vec<Encoding>,
    /// The text of each, counted from 0.
    texts: Vec<usize>,
}

impl Windows {
    /// Of texts that each give one or more windows.
    pub(super) fn of(texts: impl Iterator<Item = Result<Vec<Encoding>>>) -> Result<Self> {
        let mut windows = Self { encodings: Vec::new(), texts: Vec::new() };
        for (text, encodings) in texts.enumerate() {
            windows.encodings.extend(encodings?);
            windows.texts.resize(windows.encodings.len(), text);
        }
        Ok(windows)
    }

    /// Gives `found` each window: its text, its tokens, and its N·C logits, of which `logits` computes [B, N, C];
    /// [`Error::Data`] if one is NaN or infinite.
    pub(super) fn for_each(
        &self,
        tokenizer: &BertTokenizer,
        device: &Device,
        logits: impl Fn(&TextBatch) -> Result<Tensor<3>>,
        mut found: impl FnMut(usize, &Encoding, &[f64]),
    ) -> Result<()> {
        for (encodings, texts) in self.encodings.chunks(BATCH_SIZE).zip(self.texts.chunks(BATCH_SIZE)) {
            let logits = logits(&tokenizer.batch(encodings, device)?)?;
            let [_, rows, classes] = logits.dims();
            let logits: Vec<f64> = logits.into_data().iter().collect();
            for ((encoding, &text), logits) in encodings.iter().zip(texts).zip(logits.chunks(rows * classes))
            {
                if logits.iter().any(|logit| !logit.is_finite()) {
                    // NaN has no order: what is sorted by it is arbitrary.
                    return Err(not_finite("scores", text));
                }
                found(text, encoding, logits);
            }
        }
        Ok(())
    }
}

/// The place of a token in its text, at whole characters: byte fallback gives each byte of a character a token.
pub(super) fn place(text: &str, (start, end): (usize, usize)) -> (usize, usize) {
    (text.floor_char_boundary(start), text.floor_char_boundary(end))
}

pub(super) fn not_finite(what: &str, text: usize) -> Error {
    let problem = "are not finite; is the model trained, and are its values finite?";
    Error::data(format!("the {what} of text {text}"), problem)
}

/// Probabilities of scores: exp(xᵢ) / Σ exp(xⱼ).
pub(super) fn softmax(logits: &[f64]) -> Vec<f64> {
    // The largest is taken out: exp overflows above 709.
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = logits.iter().map(|logit| (logit - largest).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.into_iter().map(|exponential| exponential / sum).collect()
}

pub(super) fn sigmoid(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}
