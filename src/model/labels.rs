//! Labels: what classes are called, and which token or text has which.

use crate::embeddings::Ids;
use crate::error::{Error, Result};
use burn::prelude::*;
use std::collections::BTreeSet;

/// transformers' names of `count` classes without names: `LABEL_0`, `LABEL_1`, ….
pub(super) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|id| format!("LABEL_{id}")).collect()
}

/// Whether these are unique names of at least one class.
pub(super) fn check_names(id2label: &[String]) -> Result<()> {
    let invalid = |problem| Err(Error::Config { field: "id2label", problem });
    if id2label.is_empty() {
        return invalid("is empty, but a classifier needs at least one label".into());
    }
    let mut seen = BTreeSet::new();
    match id2label.iter().find(|name| !seen.insert(*name)) {
        Some(name) => invalid(format!("has {name:?} twice, but label names must be unique")),
        None => Ok(()),
    }
}

/// Whether there is one weight of at least 0 a class.
pub(super) fn check_weights(class_weights: Option<&[f64]>, num_labels: usize) -> Result<()> {
    let invalid = |problem| Err(Error::Config { field: "class_weights", problem });
    let Some(weights) = class_weights else { return Ok(()) };
    if weights.len() != num_labels {
        return invalid(format!("has {} weights, but there are {num_labels} labels", weights.len()));
    }
    match weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
        Some(weight) => invalid(format!("has {weight}, but a weight must be finite and at least 0")),
        None => Ok(()),
    }
}

/// The N > 0 tokens of a batch that have a label.
#[derive(Clone, Debug)]
pub(super) struct TokenLabels {
    /// Where they are, row · S + column.
    places: Vec<usize>,
    /// What they are, [1, N].
    labels: Ids,
    seq: usize,
}

impl TokenLabels {
    /// `None` if no token has a label.
    ///
    /// `places` are rows and columns in a batch of shape `dims`.
    pub(super) fn new(
        dims: [usize; 2],
        places: &[[usize; 2]],
        labels: Vec<i64>,
        device: &Device,
    ) -> Result<Option<Self>> {
        if places.len() != labels.len() {
            return Err(Error::ShapeMismatch {
                input: "labels",
                found: vec![labels.len()],
                expected: format!("[{}], one per position", places.len()),
            });
        }
        let [batch, seq] = dims;
        let mut seen = BTreeSet::new();
        for place @ [row, column] in places {
            if *row >= batch || *column >= seq {
                let problem =
                    format!("is at [{row}][{column}], but the batch has {batch} sequences of {seq} tokens");
                return Err(Error::data("a label", problem));
            }
            if !seen.insert(place) {
                let what = format!("the token at [{row}][{column}]");
                return Err(Error::data(what, "has two labels; keep one of them"));
            }
        }
        if labels.is_empty() {
            return Ok(None);
        }
        let dims = [1, labels.len()];
        Ok(Some(Self {
            places: places.iter().map(|[row, column]| row * seq + column).collect(),
            labels: Ids::from_values("labels", labels, dims, device),
            seq,
        }))
    }

    /// Of rows of labels, one per token, where −100 means none.
    pub(super) fn from_rows(
        dims: [usize; 2],
        rows: &[impl AsRef<[i64]>],
        device: &Device,
    ) -> Result<Option<Self>> {
        let [batch, seq] = dims;
        let columns = |row: usize| rows.get(row).map_or(0, |row| row.as_ref().len());
        if let Some(row) =
            (0..rows.len()).find(|&row| columns(row) != seq).or((rows.len() != batch).then_some(0))
        {
            return Err(Error::ShapeMismatch {
                input: "labels",
                found: vec![rows.len(), columns(row)],
                expected: format!("[{batch}, {seq}], one label per token"),
            });
        }
        let (mut places, mut labels) = (Vec::new(), Vec::new());
        for (row, values) in rows.iter().enumerate() {
            for (column, &label) in values.as_ref().iter().enumerate() {
                if label != IGNORED {
                    places.push([row, column]);
                    labels.push(label);
                }
            }
        }
        Self::new(dims, &places, labels, device)
    }

    /// Number of tokens that have a label, N.
    pub(super) fn len(&self) -> usize {
        self.labels.dims()[1]
    }

    /// Where they are, row · S + column.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }

    /// What they are, `[N]`.
    pub(super) fn labels(&self) -> Tensor<1, Int> {
        self.labels.tensor().squeeze_dim(0)
    }

    /// The first label that is not below `count`, and where it is: row and column.
    pub(super) fn first_not_below(&self, count: usize) -> Result<Option<(Vec<usize>, i64)>> {
        let invalid = first_not_below(&self.labels, count)?;
        Ok(invalid.map(|(index, label)| {
            let place = self.places[index];
            (vec![place / self.seq, place % self.seq], label)
        }))
    }
}

/// The label of a token that has none, as in PyTorch and transformers.
const IGNORED: i64 = -100;

/// The first label that is not below `count`, and where in the labels it is.
pub(super) fn first_not_below(labels: &Ids, count: usize) -> Result<Option<(usize, i64)>> {
    let valid = |label: i64| usize::try_from(label).is_ok_and(|label| label < count);
    Ok(labels.to_host()?.into_iter().enumerate().find(|&(_, label)| !valid(label)))
}
