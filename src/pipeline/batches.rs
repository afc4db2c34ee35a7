//! Texts of any number and length, through a model.

use super::Pipeline;
use super::text_options::TextOptions;
use crate::error::{Error, Result};
use crate::model::Stored;
use crate::text::{Encoding, TextBatch};
use burn::prelude::*;
use tokenizers::utils::parallelism::MaybeParallelRefIterator;

impl<M: Stored> Pipeline<M> {
    /// Gives `read` the windows of all texts, in batches: the index of the text of each, its tokens, and the batch.
    pub(super) fn in_batches<T: Sync>(
        &self,
        texts: &[T],
        options: &TextOptions,
        encode: impl Fn(&T) -> Result<Vec<Encoding>> + Sync + Send,
        mut read: impl FnMut(&[usize], &[Encoding], &TextBatch) -> Result<()>,
    ) -> Result<()> {
        let device = self.model.bert().embeddings.word_embeddings.weight.lazy_device();
        let size = options.batch_size();
        let mut first = 0;
        // Part by part: the tokens of a million texts would fill the memory.
        for part in texts.chunks(size) {
            let windows: Vec<Result<Vec<Encoding>>> = part.maybe_par_iter().map(&encode).collect();
            let (mut of_text, mut encodings) = (Vec::new(), Vec::new());
            for (index, windows) in (first..).zip(windows) {
                encodings.extend(windows?);
                of_text.resize(encodings.len(), index);
            }
            for (of_text, encodings) in of_text.chunks(size).zip(encodings.chunks(size)) {
                read(of_text, encodings, &self.tokenizer.batch(encodings, &device)?)?;
            }
            first += part.len();
        }
        Ok(())
    }

    /// What `found` makes of the windows of each text, given the index of the text, a window's tokens and its N·C logits, of
    /// which `logits` computes [B, N, C]; [`Error::Data`] if one is NaN or infinite.
    pub(super) fn of_windows<T: Sync, R>(
        &self,
        texts: &[T],
        options: &TextOptions,
        encode: impl Fn(&T) -> Result<Vec<Encoding>> + Sync + Send,
        logits: impl Fn(&TextBatch) -> Result<Tensor<3>>,
        found: impl Fn(usize, &Encoding, &[f64]) -> R,
    ) -> Result<Vec<Vec<R>>> {
        let mut all: Vec<Vec<R>> = texts.iter().map(|_| Vec::new()).collect();
        self.in_batches(texts, options, encode, |of_text, encodings, batch| {
            let logits = logits(batch)?;
            let [_, rows, classes] = logits.dims();
            let logits: Vec<f64> = logits.into_data().iter().collect();
            let windows = of_text.iter().zip(encodings).zip(logits.chunks(rows * classes));
            for ((&text, encoding), logits) in windows {
                check_finite("scores", text, logits)?;
                all[text].push(found(text, encoding, logits));
            }
            Ok(())
        })?;
        Ok(all)
    }
}

/// The place of a token in its text, at whole characters: byte fallback gives each byte of a character a token.
pub(super) fn place(text: &str, (start, end): (usize, usize)) -> (usize, usize) {
    (text.floor_char_boundary(start), text.floor_char_boundary(end))
}

/// NaN has no order: what is sorted by it is arbitrary.
pub(super) fn check_finite(what: &str, text: usize, values: &[f64]) -> Result<()> {
    if values.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(not_finite(what, text)) }
}

pub(super) fn not_finite(what: &str, text: usize) -> Error {
    let problem = "are not finite; is the model trained, and are its values finite?";
    Error::data(format!("the {what} of text {text}"), problem)
}

/// The places of the `k` largest values, the largest first; of equal ones, the first.
pub(super) fn largest(values: &[f64], k: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    let order = |&a: &usize, &b: &usize| values[b].total_cmp(&values[a]).then(a.cmp(&b));
    // Only those are sorted: a vocabulary or a corpus is long.
    if k < places.len() {
        places.select_nth_unstable_by(k, order);
        places.truncate(k);
    }
    places.sort_unstable_by(order);
    places
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
