//! Batches of sequences with labels.

use crate::embeddings::BertEmbeddingsInput;
use crate::error::{Error, Result};
use crate::layers::PaddingMask;
use crate::model::labels::{Labels, check_padding};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use serde::{Deserialize, Serialize};

/// The labels of a [`BertForSequenceClassification`](crate::model::BertForSequenceClassification), and its loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemType {
    /// Numbers; mean squared error.
    Regression,
    /// One class per sequence; cross-entropy.
    SingleLabelClassification,
    /// Any number of classes per sequence; binary cross-entropy of each.
    MultiLabelClassification,
}

/// A batch for [`BertForSequenceClassification`](crate::model::BertForSequenceClassification).
#[derive(Clone, Debug)]
pub struct SequenceClassificationBatch {
    /// The tokens, padded at the end to one length.
    pub input: BertEmbeddingsInput,
    /// The padding of the sequences, [B, S]; `None` if none is padded.
    pub padding: Option<PaddingMask>,
    pub(in crate::model) labels: SequenceLabels,
}

#[derive(Clone, Debug)]
pub(in crate::model) enum SequenceLabels {
    /// The class of each sequence, or none.
    Classes(Labels),
    /// The probability of each class, or the numbers of a regression: [B, C].
    Numbers(ProblemType, Tensor<2>),
}

impl SequenceClassificationBatch {
    /// One class per sequence, for [`ProblemType::SingleLabelClassification`]. Sequences with the label −100 are ignored, as in
    /// transformers. [`Error::ShapeMismatch`] if there is not one label per sequence, or `padding` is not [B, S];
    /// [`Error::Data`] if a label does not fit an `i32`.
    pub fn single_label(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        labels: &[i64],
    ) -> Result<Self> {
        let labels = Labels::for_sequences(&input, labels)?;
        Self::new(input, padding, SequenceLabels::Classes(labels))
    }

    /// Any number of classes per sequence, for [`ProblemType::MultiLabelClassification`]: one row per sequence with the
    /// probability of each class, mostly 0 or 1. [`Error::ShapeMismatch`] if there is not one row per sequence, the rows differ
    /// in length, or `padding` is not [B, S]; [`Error::Data`] if a number is not in [0, 1].
    pub fn multi_label(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        labels: &[impl AsRef<[f64]>],
    ) -> Result<Self> {
        let targets = matrix(&input, labels, |label| (0.0..=1.0).contains(&label), "must lie in [0, 1]")?;
        let labels = SequenceLabels::Numbers(ProblemType::MultiLabelClassification, targets);
        Self::new(input, padding, labels)
    }

    /// One row of numbers per sequence, for [`ProblemType::Regression`]. Errors are those of
    /// [`multi_label`](Self::multi_label), but the numbers may lie in ±10¹⁵.
    pub fn regression(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        labels: &[impl AsRef<[f64]>],
    ) -> Result<Self> {
        let values = matrix(&input, labels, |label| label.abs() <= MAX_VALUE, "must lie in [-1e15, 1e15]")?;
        Self::new(input, padding, SequenceLabels::Numbers(ProblemType::Regression, values))
    }

    fn new(input: BertEmbeddingsInput, padding: Option<PaddingMask>, labels: SequenceLabels) -> Result<Self> {
        check_padding(&input, padding.as_ref())?;
        Ok(Self { input, padding, labels })
    }

    /// The classes of the N sequences that have one, `[N]`; `None` if there are none.
    pub fn classes(&self) -> Option<Tensor<1, Int>> {
        self.labels()?.tensor.clone()
    }

    /// The logits of the N sequences that have a class, [B, C] → [N, C], and their classes; `None` if there are none.
    pub fn labelled(&self, logits: Tensor<2>) -> Option<(Tensor<2>, Tensor<1, Int>)> {
        self.labels()?.labelled(logits)
    }

    /// The number of sequences that have labels, which the loss is a mean over.
    pub fn num_labelled(&self) -> usize {
        match &self.labels {
            SequenceLabels::Classes(labels) => labels.positions.len(),
            SequenceLabels::Numbers(_, labels) => labels.dims()[0],
        }
    }

    fn labels(&self) -> Option<&Labels> {
        let SequenceLabels::Classes(labels) = &self.labels else { return None };
        Some(labels)
    }

    /// The numbers of each sequence, [B, C]; `None` if the labels are one class each.
    pub fn targets(&self) -> Option<Tensor<2>> {
        let SequenceLabels::Numbers(_, labels) = &self.labels else { return None };
        Some(labels.clone())
    }
}

/// The largest number of a regression: the squares of 100 million of them have a sum in f32.
const MAX_VALUE: f64 = 1e15;

/// Numbers of each sequence, in f64 where the device has it.
fn matrix(
    input: &BertEmbeddingsInput,
    rows: &[impl AsRef<[f64]>],
    is_valid: impl Fn(f64) -> bool,
    allowed: &'static str,
) -> Result<Tensor<2>> {
    let [batch, _] = input.dims();
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    // C is that of the first row: which model reads the batch is not known here.
    let other = rows.iter().map(|row| row.as_ref().len()).find(|&length| length != columns);
    if rows.len() != batch || columns == 0 || other.is_some() {
        let expected = format!("[{batch}, C], one row per sequence, all of one length C > 0");
        return Err(Error::shape("labels", [rows.len(), other.unwrap_or(columns)], expected));
    }
    let values: Vec<f64> = rows.iter().flat_map(|row| row.as_ref()).copied().collect();
    if let Some(at) = values.iter().position(|&label| !is_valid(label)) {
        let (row, column) = (at / columns, at % columns);
        let problem = format!("is {:?}, but {allowed}", values[at]);
        return Err(Error::data(format!("labels[{row}][{column}]"), problem));
    }
    let device = input.device();
    // Which model reads them is not known yet; it casts them to its own dtype.
    let dtype = if device.supports_dtype(DType::F64) { FloatDType::F64 } else { FloatDType::F32 };
    Ok(Tensor::from_data(TensorData::new(values, [batch, columns]), (&device, dtype.into())))
}
