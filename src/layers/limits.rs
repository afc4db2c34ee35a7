//! What a config may say: sizes, checked before anything is allocated, and probabilities.

use crate::error::{Error, Result};

/// The longest vector: 64 times that of the widest published encoder.
pub(crate) const MAX_WIDTH: usize = 1 << 20;
/// The most rows of a table, because devices count ids in 32 bits.
pub(crate) const MAX_ROWS: usize = i32::MAX as usize;
/// The most parameters of a model: 4 TiB in f32.
const MAX_PARAMS: u128 = 1 << 40;

pub(crate) fn check_sizes<const N: usize>(sizes: [(&'static str, usize, usize); N]) -> Result<()> {
    for (field, size, largest) in sizes {
        let problem = match size {
            0 => "is 0, but must be at least 1".into(),
            _ if size > largest => format!("is {size}, but must be at most {largest}"),
            _ => continue,
        };
        return Err(Error::Config { field, problem });
    }
    Ok(())
}

/// Checks the number of parameters that a config describes. `field` is the one that a message blames.
pub(crate) fn check_num_params(field: &'static str, params: u128) -> Result<()> {
    if params <= MAX_PARAMS {
        return Ok(());
    }
    let problem =
        format!("makes {params} parameters with the other sizes, but at most {MAX_PARAMS} are built");
    Err(Error::Config { field, problem })
}

/// Checks the multiple of a length that sequences are padded to.
pub(crate) fn check_multiple(multiple: usize) -> Result<()> {
    const LARGEST: usize = 1 << 16; // no model reads longer sequences
    if (1..=LARGEST).contains(&multiple) {
        return Ok(());
    }
    let problem = format!("is {multiple}, but must lie in 1..={LARGEST}");
    Err(Error::Config { field: "pad_to_multiple_of", problem })
}

pub(crate) fn check_dropout(field: &'static str, prob: f64) -> Result<()> {
    if (0.0..1.0).contains(&prob) {
        return Ok(());
    }
    Err(Error::Config { field, problem: format!("is {prob}, but must lie in [0, 1)") })
}

/// Checks ε: above 0 in f32, which statistics may be computed in, because a constant row is divided by its root.
pub(crate) fn check_epsilon(epsilon: f64) -> Result<()> {
    let smallest = f32::MIN_POSITIVE;
    if epsilon.is_finite() && epsilon >= f64::from(smallest) {
        return Ok(());
    }
    let problem = format!(
        "is {epsilon:e}, but must be finite and at least {smallest:.1e}, f32's smallest normal number"
    );
    Err(Error::Config { field: "layer_norm_eps", problem })
}
