//! What a file says of one tensor.

use burn::tensor::DType;

/// Shape and element type of a tensor in a file.
pub(in crate::checkpoint) struct Entry {
    pub(in crate::checkpoint) shape: Vec<usize>,
    pub(in crate::checkpoint) dtype: StoredDType,
}

/// The element type of a tensor in a file.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::checkpoint) enum StoredDType {
    /// One of f16, bf16, f32 and f64.
    Float(DType),
    /// Any other type, by the name that the file gives it.
    Other(String),
}
