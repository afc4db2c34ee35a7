//! Batches with labels.

use super::labels::{Labels, mismatch};
use crate::embeddings::{BertEmbeddingsInput, PaddingMask};
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
    /// One class each, or none; `None` if no sequence has one.
    Classes(Option<Labels>),
    /// The probability of each class, [B, C].
    Targets(Tensor<2>),
    /// Numbers, [B, C].
    Values(Tensor<2>),
}

impl SequenceClassificationBatch {
    /// One class per sequence, for [`ProblemType::SingleLabelClassification`](super::ProblemType). Sequences with the
    /// label −100 are ignored, as in transformers.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`] if there is not one label per sequence, or `padding` is not [B, S]; [`Error::Data`] if
    /// a label does not fit an `i32`.
    pub fn single_label(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        labels: &[i64],
    ) -> Result<Self> {
        let labels = Labels::of_sequences(&input, labels)?;
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

    /// The classes of the N sequences that have one, `[N]`; `None` if there are none.
    pub fn classes(&self) -> Option<Tensor<1, Int>> {
        self.labels().map(Labels::tensor)
    }

    /// The scores of the N sequences that have a class, [B, C] → [N, C], and their classes; `None` if there are none.
    pub fn labelled(&self, logits: Tensor<2>) -> Option<(Tensor<2>, Tensor<1, Int>)> {
        self.labels().map(|labels| (labels.select(logits), labels.tensor()))
    }

    fn labels(&self) -> Option<&Labels> {
        match &self.labels {
            SequenceLabels::Classes(labels) => labels.as_ref(),
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
        return Err(mismatch(vec![rows.len(), other.unwrap_or(columns)], expected));
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
    pub(super) labels: Option<Labels>,
}

impl TokenClassificationBatch {
    /// One label per token, one row per sequence. Tokens with the label −100 are ignored, as in transformers.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`] if there is not one label per token, or `padding` is not [B, S]; [`Error::Data`] if a
    /// label does not fit an `i32`.
    pub fn new(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        labels: &[impl AsRef<[i64]>],
    ) -> Result<Self> {
        if let Some(padding) = &padding {
            padding.check(input.dims())?;
        }
        let labels = Labels::of_tokens(&input, labels)?;
        Ok(Self { input, padding, labels })
    }

    /// Number of tokens that have a label, N.
    pub fn num_labelled(&self) -> usize {
        self.positions().len()
    }

    /// Row and column of the tokens that have a label; empty if there are none.
    pub fn positions(&self) -> &[[usize; 2]] {
        self.labels.as_ref().map_or(&[], Labels::places)
    }

    /// The labels of the N tokens that have one, `[N]`; `None` if there are none.
    pub fn labels(&self) -> Option<Tensor<1, Int>> {
        self.labels.as_ref().map(Labels::tensor)
    }

    /// The scores of the N tokens that have a label, [B, S, C] → [N, C], and their labels; `None` if there are none.
    pub fn labelled(&self, logits: Tensor<3>) -> Option<(Tensor<2>, Tensor<1, Int>)> {
        self.labels.as_ref().map(|labels| (labels.select(logits), labels.tensor()))
    }
}
