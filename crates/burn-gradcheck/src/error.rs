use burn::tensor::DType;

pub(super) type Result<T, E = GradCheckError> = std::result::Result<T, E>;

/// Why a [`GradCheck`](crate::GradCheck) cannot be made. A wrong gradient is not an error: the report shows it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
// Fields are documented by the message that names them.
#[allow(missing_docs)]
pub enum GradCheckError {
    /// The module lies on a device that records no gradients.
    #[error(
        "`{path}` is on a device without autodiff; build the module on `device.autodiff()`, \
         or call `train()` on it first"
    )]
    NoAutodiff { path: String },

    /// The module has no float parameter that is trained.
    #[error("the module has no trained float parameter; there is no gradient to check")]
    NothingTrained,

    /// The dtype is too coarse for a difference quotient, or the device does not have it.
    #[error("cannot take differences in {dtype:?} here; use F64 where the device has it, otherwise F32")]
    Dtype { dtype: DType },

    /// A tolerance or step that no check can be made with.
    #[error("{name} is {value:e}, which must be finite and {allowed}")]
    Setting { name: &'static str, value: f64, allowed: &'static str },

    /// The loss is not one number.
    #[error("the loss has {found} values; reduce it to one, with `Probe::weighted_sum` for example")]
    NotScalar { found: usize },

    /// The loss was computed in a dtype other than the one that the check works in.
    #[error(
        "the loss is {found:?} but the check works in {expected:?}; \
         pass the constants of the loss through `Probe::constant`"
    )]
    LossDtype { found: DType, expected: DType },

    /// The loss has no graph to go back through.
    #[error(
        "the loss records no gradients; it, or all it was made of, was taken off autodiff by `inner` or `valid`"
    )]
    NoGraph,

    /// The loss of the module as it is, or of a neighbour, is infinite or not a number.
    #[error("the loss is {value} {place}")]
    NotFinite { value: f64, place: String },

    /// The same parameters gave two losses.
    #[error(
        "the loss is {first} and then {second} at the same parameters; set the probability of \
         dropout to 0 and turn other randomness off, or seed the device inside the loss"
    )]
    NotRepeatable { first: f64, second: f64 },

    /// A row was excluded from a parameter that the module does not have.
    #[error("no trained parameter is called `{path}`; there are: {known}")]
    UnknownPath { path: String, known: String },

    /// A row was excluded that the parameter does not have.
    #[error("`{path}` has {rows} rows; there is no row {row} to exclude")]
    NoSuchRow { path: String, row: usize, rows: usize },
}
