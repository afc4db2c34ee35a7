//! The labels of a batch, and which token or sequence has which.

use crate::embeddings::BertEmbeddingsInput;
use crate::error::{Error, Result};
use crate::layers::PaddingMask;
use burn::prelude::*;
use burn_fused::Moves;
use std::collections::BTreeSet;

/// The label of a token or sequence that has none, as in PyTorch and transformers.
pub(super) const IGNORED: i64 = -100;

/// The N positions of a batch that have a label: tokens, or sequences.
#[derive(Clone, Debug)]
pub(super) struct Labels {
    /// The axes that have labels: [B, S] or `[B]`.
    shape: Vec<usize>,
    /// The row and column of each label; the column of a sequence is 0.
    pub(super) positions: Vec<[usize; 2]>,
    values: Vec<i64>,
    /// The labels, `[N]`; `None` without any, as operators take no tensors without values.
    pub(super) tensor: Option<Tensor<1, Int>>,
}

impl Labels {
    pub(super) fn at(input: &BertEmbeddingsInput, positions: &[[usize; 2]], labels: &[u32]) -> Result<Self> {
        if positions.len() != labels.len() {
            let expected = format!("[{}], one per position", positions.len());
            return Err(Error::shape("labels", [labels.len()], expected));
        }
        let [batch, seq] = input.dims();
        // A move of rows takes each of them once.
        let mut seen = BTreeSet::new();
        for &position @ [row, column] in positions {
            if row >= batch || column >= seq {
                let problem =
                    format!("is at [{row}][{column}], but the batch has {batch} sequences of {seq} tokens");
                return Err(Error::data("a label", problem));
            }
            if !seen.insert(position) {
                let what = format!("the token at [{row}][{column}]");
                return Err(Error::data(what, "has two labels; keep one of them"));
            }
        }
        let labels = labels.iter().map(|&label| label.into());
        Self::new(input, vec![batch, seq], positions.iter().copied().zip(labels))
    }

    /// One label per token, where −100 is none.
    pub(super) fn for_tokens(input: &BertEmbeddingsInput, rows: &[impl AsRef<[i64]>]) -> Result<Self> {
        let [batch, seq] = input.dims();
        let other = rows.iter().map(|row| row.as_ref().len()).find(|&length| length != seq);
        if rows.len() != batch || other.is_some() {
            // The length that is to blame, or that of all rows where only their number is wrong.
            let columns = other.unwrap_or(if rows.is_empty() { 0 } else { seq });
            let expected = format!("[{batch}, {seq}], one label per token");
            return Err(Error::shape("labels", [rows.len(), columns], expected));
        }
        let labels = rows.iter().enumerate().flat_map(|(row, labels)| {
            labels.as_ref().iter().enumerate().map(move |(column, &label)| ([row, column], label))
        });
        Self::new(input, vec![batch, seq], labels)
    }

    /// One label per sequence, where −100 is none.
    pub(super) fn for_sequences(input: &BertEmbeddingsInput, labels: &[i64]) -> Result<Self> {
        let [batch, _] = input.dims();
        if labels.len() != batch {
            let expected = format!("[{batch}], one label per sequence");
            return Err(Error::shape("labels", [labels.len()], expected));
        }
        let labels = labels.iter().enumerate().map(|(row, &label)| ([row, 0], label));
        Self::new(input, vec![batch], labels)
    }

    fn new(
        input: &BertEmbeddingsInput,
        shape: Vec<usize>,
        labels: impl Iterator<Item = ([usize; 2], i64)>,
    ) -> Result<Self> {
        // Places without a label are left out here: as ids, −100 would be out of range in every gather.
        let (positions, values): (Vec<_>, Vec<_>) = labels.filter(|&(_, label)| label != IGNORED).unzip();
        if let Some(at) = values.iter().position(|&label| i32::try_from(label).is_err()) {
            let index: String = positions[at][..shape.len()].iter().map(|i| format!("[{i}]")).collect();
            // Not every device has 64-bit integers.
            let problem = format!("is {}, which is not an id: ids are 32-bit signed integers", values[at]);
            return Err(Error::data(format!("labels{index}"), problem));
        }
        // Labels have no gradient, and a tensor of an autodiff device would carry that into a plain model.
        let device = input.device().without_autodiff();
        // The values stay on the host too, where classes are checked without reading the device.
        let tensor = (!values.is_empty()).then(|| Tensor::from_data(&values[..], &device));
        Ok(Self { shape, positions, values, tensor })
    }

    /// The labels' indices among the batch's positions: row · S + column.
    pub(super) fn rows(&self) -> Vec<usize> {
        // Labels of sequences are as those of batches with one position each.
        let seq = self.shape.get(1).copied().unwrap_or(1);
        self.positions.iter().map(|[row, column]| row * seq + column).collect()
    }

    /// The logits at the positions that have a label, [B, S, C] or [B, C] → [N, C], and the labels; `None` without any.
    pub(super) fn labelled<const D: usize>(&self, logits: Tensor<D>) -> Option<(Tensor<2>, Tensor<1, Int>)> {
        let labels = self.tensor.clone()?;
        let device = logits.device();
        let logits = logits.clone().reshape([-1, logits.dims()[D - 1] as i32]);
        // Every position has a label: nothing to gather.
        if logits.dims()[0] == self.positions.len() {
            return Some((logits, labels));
        }
        // Not `select`, whose gradient on GPUs is slow and serial over ids.
        let moves = Moves::new(&self.rows(), logits.dims()[0], &device).expect("one label each");
        Some((moves.apply(logits), labels))
    }

    /// Σ w of the labels, with w the weight of each class, or 1.
    pub(super) fn total_weight(&self, class_weights: Option<&[f64]>) -> f64 {
        let weight = |label: &i64| class_weights.map_or(1.0, |weights| weights[*label as usize]);
        self.values.iter().map(weight).sum()
    }

    /// Whether these are labels of `input`, a public field of the batch that may have been replaced.
    pub(super) fn check(&self, input: &BertEmbeddingsInput) -> Result<()> {
        let Some(tensor) = &self.tensor else { return Ok(()) };
        let expected = &input.dims()[..self.shape.len()];
        check_batch(input, &self.shape, expected, "the shape of the batch", tensor.device())
    }

    pub(super) fn check_classes(&self, input: &BertEmbeddingsInput, num_labels: usize) -> Result<()> {
        self.check(input)?;
        match self.first_not_below(num_labels) {
            Some((index, label)) => Err(Error::LabelOutOfRange { index, label, num_labels }),
            None => Ok(()),
        }
    }

    /// The first label that is not in 0..count, and where it is.
    pub(super) fn first_not_below(&self, count: usize) -> Option<(Vec<usize>, i64)> {
        let is_valid = |label: i64| usize::try_from(label).is_ok_and(|label| label < count);
        let at = self.values.iter().position(|&label| !is_valid(label))?;
        Some((self.positions[at][..self.shape.len()].to_vec(), self.values[at]))
    }
}

pub(super) fn check_padding(input: &BertEmbeddingsInput, padding: Option<&PaddingMask>) -> Result<()> {
    padding.map_or(Ok(()), |padding| padding.check(input.dims()))
}

/// Whether labels of the shape `found` on `device` are those of the batch `input`.
pub(super) fn check_batch(
    input: &BertEmbeddingsInput,
    found: &[usize],
    expected: &[usize],
    what: &str,
    device: Device,
) -> Result<()> {
    if found != expected {
        return Err(Error::shape("labels", found, format!("{expected:?}, {what}")));
    }
    if device != input.device() {
        return Err(Error::device_mismatch("labels", device, input.device()));
    }
    Ok(())
}
