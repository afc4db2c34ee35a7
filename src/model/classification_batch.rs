//! Batches with labels.

use super::labels::TokenLabels;
use crate::embeddings::{BertEmbeddingsInput, Ids, PaddingMask};
use crate::error::{Error, Result};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};

/// A batch for [`BertForSequenceClassification`](super::BertForSequenceClassification).
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::{BertEmbeddingsInput, PaddingMask};
/// use burn_bert::model::SequenceClassificationBatch;
///
/// let device = Device::default();
/// let input = BertEmbeddingsInput::from_rows(&[[2, 7, 9, 3], [2, 8, 3, 0]], &device)?;
/// let padding = PaddingMask::from_lengths(&[4, 3], 4);
/// let batch = SequenceClassificationBatch::single_label(input, Some(padding), &[1, 0])?;
/// # let _ = batch;
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SequenceClassificationBatch {
    /// The tokens, padded at the end to one length.
    pub input: BertEmbeddingsInput,
    /// Where a sequence is padded, [B, S]; `None` if none is.
    pub padding: Option<PaddingMask>,
    pub(super) labels: SequenceLabels,
}

/// What is known of each sequence of a batch.
#[derive(Clone, Debug)]
pub(super) enum SequenceLabels {
    /// One class each, [1, B].
    Classes(Ids),
    /// The probability of each class, [B, C].
    Targets(Tensor<2>),
    /// Numbers, [B, C].
    Values(Tensor<2>),
}

impl SequenceClassificationBatch {
    /// One class per sequence, for [`ProblemType::SingleLabelClassification`](super::ProblemType).
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`] if there is not one label per sequence, or `padding` is not [B, S].
    pub fn single_label(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        labels: &[u32],
    ) -> Result<Self> {
        let [batch, _] = input.dims();
        if labels.len() != batch {
            return Err(one_a_sequence(vec![labels.len()], format!("[{batch}], one label per sequence")));
        }
        let values = labels.iter().map(|&label| label.into()).collect();
        let labels = Ids::from_values("labels", values, [1, batch], &input.device());
        Self::new(input, padding, SequenceLabels::Classes(labels))
    }

    /// Any number of classes per sequence, for [`ProblemType::MultiLabelClassification`](super::ProblemType): one row
    /// per sequence, with 1 for a class that it has, 0 for one that it does not have, or a probability.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`] if there is not one row per sequence, the rows differ in length, or `padding` is not
    /// [B, S]; [`Error::Data`] if a number is not in [0, 1].
    pub fn multi_label(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        labels: &[impl AsRef<[f64]>],
    ) -> Result<Self> {
        let targets = matrix(&input, labels, |label| (0.0..=1.0).contains(&label), "must lie in [0, 1]")?;
        Self::new(input, padding, SequenceLabels::Targets(targets))
    }

    /// One row of numbers per sequence, for [`ProblemType::Regression`](super::ProblemType).
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`] if there is not one row per sequence, the rows differ in length, or `padding` is not
    /// [B, S]; [`Error::Data`] if a number is not finite.
    pub fn regression(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        labels: &[impl AsRef<[f64]>],
    ) -> Result<Self> {
        let values = matrix(&input, labels, f64::is_finite, "must be finite")?;
        Self::new(input, padding, SequenceLabels::Values(values))
    }

    fn new(input: BertEmbeddingsInput, padding: Option<PaddingMask>, labels: SequenceLabels) -> Result<Self> {
        if let Some(padding) = &padding {
            padding.check(input.dims())?;
        }
        Ok(Self { input, padding, labels })
    }

    /// The class of each sequence, `[B]`; `None` if the labels are not one class each.
    pub fn classes(&self) -> Option<Tensor<1, Int>> {
        match &self.labels {
            SequenceLabels::Classes(labels) => Some(labels.tensor().squeeze_dim(0)),
            SequenceLabels::Targets(_) | SequenceLabels::Values(_) => None,
        }
    }

    /// The numbers of each sequence, [B, C]; `None` if the labels are one class each.
    pub fn targets(&self) -> Option<Tensor<2>> {
        match &self.labels {
            SequenceLabels::Classes(_) => None,
            SequenceLabels::Targets(labels) | SequenceLabels::Values(labels) => Some(labels.clone()),
        }
    }
}

/// Numbers of each sequence, in f64 where the device has it.
fn matrix(
    input: &BertEmbeddingsInput,
    rows: &[impl AsRef<[f64]>],
    is_valid: impl Fn(f64) -> bool,
    allowed: &'static str,
) -> Result<Tensor<2>> {
    let [batch, _] = input.dims();
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    let other = rows.iter().map(|row| row.as_ref().len()).find(|&length| length != columns);
    if rows.len() != batch || columns == 0 || other.is_some() {
        let expected = format!("[{batch}, C], one row per sequence, all of one length C > 0");
        return Err(one_a_sequence(vec![rows.len(), other.unwrap_or(columns)], expected));
    }
    let mut values = Vec::with_capacity(batch * columns);
    for (row, labels) in rows.iter().enumerate() {
        for (column, &label) in labels.as_ref().iter().enumerate() {
            if !is_valid(label) {
                return Err(Error::data(
                    format!("labels[{row}][{column}]"),
                    format!("is {label}, but {allowed}"),
                ));
            }
            values.push(label);
        }
    }
    let device = input.device();
    let dtype = if device.supports_dtype(DType::F64) { FloatDType::F64 } else { FloatDType::F32 };
    Ok(Tensor::from_data(TensorData::new(values, [batch, columns]), (&device, dtype.into())))
}

fn one_a_sequence(found: Vec<usize>, expected: String) -> Error {
    Error::ShapeMismatch { input: "labels", found, expected }
}

/// A batch for [`BertForTokenClassification`](super::BertForTokenClassification).
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::BertEmbeddingsInput;
/// use burn_bert::model::TokenClassificationBatch;
///
/// let device = Device::default();
/// let input = BertEmbeddingsInput::from_rows(&[[2, 7, 9, 3]], &device)?;
/// let batch = TokenClassificationBatch::new(input, None, &[[-100, 1, 0, -100]])?;
/// assert_eq!(batch.num_labelled(), 2);
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenClassificationBatch {
    /// The tokens, padded at the end to one length.
    pub input: BertEmbeddingsInput,
    /// Where a sequence is padded, [B, S]; `None` if none is.
    pub padding: Option<PaddingMask>,
    pub(super) labels: Option<TokenLabels>,
}

impl TokenClassificationBatch {
    /// One label per token, one row per sequence. Tokens with the label −100 are ignored, as in transformers.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`] if there is not one label per token, or `padding` is not [B, S].
    pub fn new(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        labels: &[impl AsRef<[i64]>],
    ) -> Result<Self> {
        if let Some(padding) = &padding {
            padding.check(input.dims())?;
        }
        let labels = TokenLabels::from_rows(input.dims(), labels, &input.device())?;
        Ok(Self { input, padding, labels })
    }

    /// Number of tokens that have a label, N.
    pub fn num_labelled(&self) -> usize {
        self.labels.as_ref().map_or(0, TokenLabels::len)
    }

    /// Where they are, row · S + column; empty if there are none.
    pub fn positions(&self) -> &[usize] {
        self.labels.as_ref().map_or(&[], TokenLabels::places)
    }

    /// Their labels, `[N]`; `None` if there are none.
    pub fn labels(&self) -> Option<Tensor<1, Int>> {
        self.labels.as_ref().map(TokenLabels::labels)
    }
}
