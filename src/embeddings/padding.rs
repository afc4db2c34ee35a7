//! Sequences of unequal length in one batch.

use burn::prelude::*;

/// The length to which sequences are padded: the smallest multiple that holds the longest.
pub(crate) fn padded_length(longest: usize, multiple_of: Option<usize>) -> usize {
    longest.next_multiple_of(multiple_of.unwrap_or(1))
}

/// True past the end of each sequence, [B, S]; `None` if all are of length S.
pub(crate) fn padding_mask(lengths: &[usize], seq: usize, device: &Device) -> Option<Tensor<2, Bool>> {
    if lengths.iter().all(|&length| length == seq) {
        return None;
    }
    let is_padding: Vec<bool> =
        lengths.iter().flat_map(|&length| (0..seq).map(move |column| column >= length)).collect();
    Some(Tensor::from_data(TensorData::new(is_padding, [lengths.len(), seq]), device))
}
