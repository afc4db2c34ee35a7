use crate::error::{Error, Result};
use crate::layers::{Ids, IntoIds};
use burn::prelude::*;
use std::ops::Range;

/// The input of [`BertEmbeddings`](crate::BertEmbeddings): a batch of B sequences of S tokens.
///
/// A batch holds either token ids or vectors (Hugging Face's `inputs_embeds`). Token types and positions are
/// optional, in any order:
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::BertEmbeddingsInput;
///
/// let device = Device::default();
/// let input = BertEmbeddingsInput::from_rows(&[[101, 7592, 102, 0], [101, 2088, 999, 102]], &device)?
///     .with_token_type_ids(&[[0, 0, 1, 0], [0, 0, 0, 0]])?;
/// assert_eq!(input.dims(), [2, 4]);
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// Shapes and devices are checked here, the range of ids by
/// [`BertEmbeddings::try_forward`](crate::BertEmbeddings::try_forward).
#[derive(Clone, Debug)]
pub struct BertEmbeddingsInput {
    pub(super) words: Words,
    pub(super) token_type_ids: Option<Ids>,
    pub(super) position_ids: Option<Ids>,
    pub(super) past_key_values_length: usize,
}

/// The word embeddings, the first of the three summands, by id or as vectors.
#[derive(Clone, Debug)]
pub(super) enum Words {
    /// Ids of word embeddings.
    Ids(Ids),
    /// Vectors of the caller, [B, S, H].
    Embeds(Tensor<3>),
}

impl BertEmbeddingsInput {
    /// Token ids from the host: one row per sequence, all of the same length, of any integer type. Returns
    /// [`Error::Empty`] without rows or with empty ones, [`Error::RaggedRows`] if they differ in length,
    /// [`Error::IdOverflow`] if an id does not fit an `i32`, which is what devices count in.
    pub fn from_rows<I>(input_ids: &[impl AsRef<[I]>], device: &Device) -> Result<Self>
    where
        I: Copy + TryInto<i32>,
    {
        Ids::from_rows("input_ids", input_ids, device).map(|ids| Self::new(Words::Ids(ids)))
    }

    /// Token ids in a tensor, [B, S]. Returns [`Error::Empty`] if B or S is 0.
    pub fn from_ids(input_ids: Tensor<2, Int>) -> Result<Self> {
        not_empty("input_ids", &input_ids.dims())?;
        Ok(Self::new(Words::Ids(Ids::from_tensor("input_ids", input_ids))))
    }

    /// Vectors in the place of word embeddings, [B, S, H]; each gets its gradient, also at padding. Returns
    /// [`Error::Empty`] if an axis is 0.
    pub fn from_embeds(inputs_embeds: Tensor<3>) -> Result<Self> {
        // Kernels take no tensors without rows.
        not_empty("inputs_embeds", &inputs_embeds.dims())?;
        Ok(Self::new(Words::Embeds(inputs_embeds)))
    }

    fn new(words: Words) -> Self {
        Self { words, token_type_ids: None, position_ids: None, past_key_values_length: 0 }
    }

    /// Segment ids, [B, S]: rows from the host, or a tensor. Without them every token is of type 0. Returns the errors
    /// of [`from_rows`](Self::from_rows); [`Error::ShapeMismatch`] if the shape is not [B, S];
    /// [`Error::DeviceMismatch`] if a tensor is not on the batch's device.
    pub fn with_token_type_ids<I>(self, token_type_ids: impl IntoIds<I>) -> Result<Self> {
        let [batch, seq] = self.dims();
        let expected = format!("[{batch}, {seq}], the shape of the tokens");
        let ids = self.ids_beside("token_type_ids", token_type_ids, &[[batch, seq]], expected)?;
        Ok(Self { token_type_ids: Some(ids), ..self })
    }

    /// Positions, [B, S], or [1, S] for all sequences alike: rows from the host, or a tensor. Without them positions
    /// follow the module's [`PositionEmbeddingType`](crate::PositionEmbeddingType). Rotary ones may be any numbers, and those of
    /// tensors are read back. Errors are those of [`with_token_type_ids`](Self::with_token_type_ids).
    pub fn with_position_ids<I>(self, position_ids: impl IntoIds<I>) -> Result<Self> {
        let [batch, seq] = self.dims();
        let expected = format!("[{batch}, {seq}] or [1, {seq}]");
        let ids = self.ids_beside("position_ids", position_ids, &[[batch, seq], [1, seq]], expected)?;
        Ok(Self { position_ids: Some(ids), ..self })
    }

    /// The positions of all slots, row-major, if they are given.
    pub(crate) fn positions(&self) -> Result<Option<Vec<i64>>> {
        let Some(ids) = &self.position_ids else { return Ok(None) };
        let (values, [rows, _]) = (ids.values()?, ids.dims());
        let [batch, _] = self.dims();
        Ok(Some(if rows == batch { values } else { values.repeat(batch) }))
    }

    /// Ids of one of `shapes`, on the batch's device.
    fn ids_beside<I>(
        &self,
        input: &'static str,
        ids: impl IntoIds<I>,
        shapes: &[[usize; 2]],
        expected: String,
    ) -> Result<Ids> {
        let ids = ids.into_ids(input, &self.device())?;
        // Moving them here would hide a copy in every step.
        let (found, device) = (ids.tensor().device(), self.device());
        if found != device {
            return Err(Error::device_mismatch(input, found, device));
        }
        if !shapes.contains(&ids.dims()) {
            return Err(Error::ShapeMismatch { input, found: ids.dims().to_vec(), expected });
        }
        Ok(ids)
    }

    /// K, the number of tokens before this batch: default positions start there instead of at 0.
    pub fn with_past_key_values_length(self, past_key_values_length: usize) -> Self {
        Self { past_key_values_length, ..self }
    }

    /// Skips the check of all ids given so far, so that ids in tensors are not read back, which waits for the device.
    ///
    /// The caller guarantees their range. For an id out of range, and for an `AfterPadding` position past its table, Flex's
    /// kernel panics and names the id; other devices take the nearest row. No memory outside a table is read or written.
    pub fn unchecked_ids(self) -> Self {
        self.map(Ids::unchecked, |embeds| embeds)
    }

    fn map(self, ids: impl Fn(Ids) -> Ids, embeds: impl FnOnce(Tensor<3>) -> Tensor<3>) -> Self {
        Self {
            words: match self.words {
                Words::Ids(words) => Words::Ids(ids(words)),
                Words::Embeds(words) => Words::Embeds(embeds(words)),
            },
            token_type_ids: self.token_type_ids.map(&ids),
            position_ids: self.position_ids.map(&ids),
            ..self
        }
    }

    /// Moves the batch to another device. Ids that were read or checked are not read again.
    pub fn to_device(self, device: &Device) -> Self {
        self.map(|ids| ids.to_device(device), |embeds| embeds.to_device(device))
    }

    /// Batch size and sequence length, [B, S].
    pub fn dims(&self) -> [usize; 2] {
        match &self.words {
            Words::Ids(ids) => ids.dims(),
            Words::Embeds(embeds) => {
                let [batch, seq, _] = embeds.dims();
                [batch, seq]
            }
        }
    }

    /// The device that the batch is on.
    pub fn device(&self) -> Device {
        match &self.words {
            Words::Ids(ids) => ids.tensor().device(),
            Words::Embeds(embeds) => embeds.device(),
        }
    }

    /// The token ids, [B, S]; `None` for a batch of vectors.
    pub fn input_ids(&self) -> Option<Tensor<2, Int>> {
        match &self.words {
            Words::Ids(ids) => Some(ids.tensor()),
            Words::Embeds(_) => None,
        }
    }

    /// Some sequences of the batch, for a model that has [checked](super::BertEmbeddings::check_all) the whole.
    pub(crate) fn sequences(&self, range: Range<usize>) -> Result<Self> {
        let part = |ids: &Option<Ids>| ids.as_ref().map(|ids| ids.sequences(range.clone())).transpose();
        Ok(Self {
            words: match &self.words {
                Words::Ids(ids) => Words::Ids(ids.sequences(range.clone())?),
                Words::Embeds(embeds) => Words::Embeds(embeds.clone().narrow(0, range.start, range.len())),
            },
            token_type_ids: part(&self.token_type_ids)?,
            position_ids: part(&self.position_ids)?,
            past_key_values_length: self.past_key_values_length,
        })
    }
}

fn not_empty(input: &'static str, shape: &[usize]) -> Result<()> {
    if shape.contains(&0) {
        return Err(Error::Empty { input, shape: shape.to_vec() });
    }
    Ok(())
}
