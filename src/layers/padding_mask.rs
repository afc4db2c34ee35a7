use super::ids::IntoIds;
use crate::error::{Error, Result};
use burn::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// The padding of a batch [B, S]: at the end, at the start or anywhere.
///
/// The mask is on the host, because the number of tokens determines shapes in the encoder. transformers'
/// `attention_mask` is the opposite: 1 where there is a token.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::PaddingMask;
///
/// let mask = PaddingMask::from_lengths(&[3, 1], 3)?;
/// assert_eq!((mask.dims(), mask.num_tokens()), ([2, 3], 4));
/// let tensor = Tensor::from_data([[false, false, false], [false, true, true]], &Device::default());
/// assert_eq!(PaddingMask::from(tensor), mask); // reads the tensor back
/// assert_eq!(PaddingMask::from_attention_mask(&[[1, 1, 1], [1, 0, 0]])?, mask);
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaddingMask {
    /// True where there is no token, row by row.
    is_padding: Arc<[bool]>,
    /// [B, S].
    dims: [usize; 2],
    num_tokens: usize,
}

impl PaddingMask {
    /// Sequences of these lengths, padded at the end to length `seq`. Returns [`Error::Data`] if one is longer, [`Error::Empty`]
    /// without sequences or columns.
    pub fn from_lengths(lengths: &[usize], seq: usize) -> Result<Self> {
        if lengths.is_empty() || seq == 0 {
            return Err(Error::Empty { input: "lengths", shape: vec![lengths.len(), seq] });
        }
        if let Some(row) = lengths.iter().position(|&length| length > seq) {
            let problem = format!("is {}, but sequences are padded to {seq}", lengths[row]);
            return Err(Error::data(format!("lengths[{row}]"), problem));
        }
        Ok(Self::padded(lengths, seq))
    }

    /// [`from_lengths`](Self::from_lengths) of any number of lengths that are at most `seq`.
    pub(crate) fn padded(lengths: &[usize], seq: usize) -> Self {
        let is_padding = lengths.iter().flat_map(|&length| (0..seq).map(move |column| column >= length));
        Self::new(is_padding.collect(), [lengths.len(), seq])
    }

    /// A mask from rows of one length, true at padding. Returns [`Error::RaggedRows`] if the rows differ in length.
    pub fn from_rows<R: AsRef<[bool]>>(rows: &[R]) -> Result<Self> {
        let seq = rows.first().map_or(0, |row| row.as_ref().len());
        // Rows of one length are what makes the mask a matrix; without rows it is [0, 0].
        if let Some(row) = rows.iter().position(|row| row.as_ref().len() != seq) {
            let found = rows[row].as_ref().len();
            return Err(Error::RaggedRows { input: "padding", row, found, expected: seq });
        }
        let is_padding = rows.iter().flat_map(|row| row.as_ref().iter().copied());
        Ok(Self::new(is_padding.collect(), [rows.len(), seq]))
    }

    /// The mask that transformers calls `attention_mask`: 1 at tokens, 0 at padding; rows on the host of any integer type, or
    /// a tensor [B, S], which is read back. Returns [`Error::Data`] if a value is neither 0 nor 1, [`Error::Empty`] without
    /// rows or columns, [`Error::RaggedRows`] or [`Error::UnreadableIds`].
    pub fn from_attention_mask<I>(attention_mask: impl IntoIds<I>) -> Result<Self> {
        let (values, dims) = attention_mask.into_values("attention_mask")?;
        if let Some(at) = values.iter().position(|value| ![0, 1].contains(value)) {
            let (row, column) = (at / dims[1], at % dims[1]);
            let problem = format!("is {}, but must be 1 at a token and 0 at padding", values[at]);
            return Err(Error::data(format!("attention_mask[{row}][{column}]"), problem));
        }
        Ok(Self::new(values.into_iter().map(|value| value == 0).collect(), dims))
    }

    /// The length that sequences of these lengths are padded to, the smallest multiple that holds the longest, and their
    /// padding; `None` if there is none.
    pub(crate) fn to_multiple(lengths: &[usize], multiple_of: Option<usize>) -> (usize, Option<Self>) {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let seq = longest.next_multiple_of(multiple_of.unwrap_or(1));
        // Without padding a batch needs no mask, and no rows are gathered.
        let mask = Self::padded(lengths, seq);
        (seq, (!mask.is_full()).then_some(mask))
    }

    pub(crate) fn sequences(&self, range: Range<usize>) -> Self {
        let [_, seq] = self.dims;
        Self::new(self.is_padding[range.start * seq..range.end * seq].into(), [range.len(), seq])
    }

    fn new(is_padding: Arc<[bool]>, dims: [usize; 2]) -> Self {
        // Counted once: every layer and every head ask for it.
        let num_tokens = is_padding.iter().filter(|&&is_padding| !is_padding).count();
        Self { is_padding, dims, num_tokens }
    }

    /// [B, S].
    pub fn dims(&self) -> [usize; 2] {
        self.dims
    }

    /// Number of tokens that are not padding, N.
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Whether there is no padding.
    pub fn is_full(&self) -> bool {
        self.num_tokens == self.is_padding.len()
    }

    /// The rows of the mask, one per sequence; true at padding.
    pub fn rows(&self) -> impl Iterator<Item = &[bool]> {
        let [batch, seq] = self.dims;
        (0..batch).map(move |row| &self.is_padding[row * seq..][..seq])
    }

    /// The mask on a device, [B, S].
    pub fn tensor(&self, device: &Device) -> Tensor<2, Bool> {
        Tensor::from_data(TensorData::new(self.is_padding.to_vec(), self.dims), device)
    }

    /// Whether the first position of each sequence holds a token, except in sequences of padding alone.
    pub(crate) fn check_first(&self) -> Result<()> {
        // A row of padding alone has no token to read, wherever it is padded.
        match self.rows().position(|row| row.first() == Some(&true) && row.contains(&false)) {
            Some(row) => Err(Error::data(
                format!("padding[{row}]"),
                "has padding before its first token, but the head reads the vector at position 0; pad at the end",
            )),
            None => Ok(()),
        }
    }

    /// Whether the mask is that of a batch [B, S].
    pub(crate) fn check(&self, [batch, seq]: [usize; 2]) -> Result<()> {
        if self.dims == [batch, seq] {
            return Ok(());
        }
        Err(Error::shape("padding", self.dims, format!("[{batch}, {seq}], the shape of the tokens")))
    }
}

/// Reads the tensor back, which waits for the device.
impl From<Tensor<2, Bool>> for PaddingMask {
    fn from(tensor: Tensor<2, Bool>) -> Self {
        let dims = tensor.dims();
        Self::new(tensor.into_data().iter::<bool>().collect(), dims)
    }
}
