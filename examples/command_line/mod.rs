//! The values that programs take.

use clap::builder::{RangedU64ValueParser, TypedValueParser};

/// A number of things. The product of two fits into 64 bits.
pub fn count() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=u32::MAX.into())
}
