//! One vector a sequence.

use crate::embeddings::PaddingMask;
use burn::prelude::*;

/// One vector a sequence: the mean of its tokens' vectors, without padding.
///
/// This is the mean pooling of sentence-transformers. A sequence of padding only gets zeros.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::PaddingMask;
/// use burn_bert::model::mean_pooled;
///
/// let hidden = Tensor::from_floats([[[1.0], [3.0], [0.0]], [[1.0], [3.0], [5.0]]], &Device::default());
/// let padding = PaddingMask::from_lengths(&[2, 3], 3);
/// let pooled: Vec<f32> = mean_pooled(hidden, Some(&padding)).into_data().try_into_vec().unwrap();
/// assert_eq!(pooled, [2.0, 3.0]);
/// ```
///
/// # Shapes
///
/// - `hidden`: [B, S, H]
/// - `padding`: [B, S]; `None` if every place holds a token
/// - output: [B, H]
///
/// # Panics
///
/// Panics if `padding` is not [B, S].
pub fn mean_pooled(hidden: Tensor<3>, padding: Option<&PaddingMask>) -> Tensor<2> {
    let [batch, seq, _] = hidden.dims();
    let Some(mask) = padding else { return hidden.mean_dim(1).squeeze_dim(1) };
    mask.check([batch, seq]).unwrap_or_else(|error| panic!("{error}"));
    let padding = mask.tensor(&hidden.device()).unsqueeze_dim::<3>(2); // [B, S, 1]
    let counts = padding.clone().bool_not().int().sum_dim(1).clamp_min(1); // [B, 1, 1]
    let dtype = hidden.dtype();
    let total = hidden.clone().mask_fill(padding.expand(hidden.dims()), 0.0).sum_dim(1);
    (total / counts.float().cast(dtype)).squeeze_dim(1)
}
