use burn::tensor::DType;

/// The result of a function that can fail with an [`Error`], as [`Precision::check`](crate::Precision::check) does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What cannot be computed; see [`Precision::check`](crate::Precision::check) for an example.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
// Fields are documented by the message that names them. A device is text there: an error is moved often.
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Error {
    /// A precision that a device has no floats for.
    #[error(
        "the precision is {precision}, which {device} cannot compute with; choose f32, or a device with {dtype:?}"
    )]
    UnsupportedPrecision { precision: crate::Precision, device: String, dtype: DType },

    /// A dtype in which a device computes wrong values; `function` is the first that it gets wrong.
    #[error("{device} computes {function} in {dtype:?} wrongly; choose f32 there, or another device")]
    WrongDtype { device: String, dtype: DType, function: &'static str },

    /// A part of a model that the backward is to compute again has too many parameters for one step of autodiff's graph.
    #[error(
        "the part to compute again in the backward has {found} parameters, but at most {most} are possible; compute \
         smaller parts, such as layers, or leave out mini-batches"
    )]
    TooManyParameters { found: usize, most: usize },

    /// A part of a model that the backward is to compute again reads a tensor whose gradient would be lost.
    #[error(
        "the part to compute again in the backward reads a tensor that needs a gradient and is neither its x nor a \
         parameter of its module; put the tensor into the module, as a Param, or detach it"
    )]
    HiddenOperand,

    /// A text that names no precision.
    #[error("the precision is {found:?}, but must be f32 or bf16")]
    UnknownPrecision { found: String },
}
