//! What the kernels for CubeCL's devices have in common.
//!
//! None uses atomics, planes or anything else whose order varies: two runs are equal bit for bit. All are launched with
//! bounds checks.

pub(crate) mod ids;
pub(crate) mod launch;
pub(crate) mod mask;
pub(crate) mod row;
pub(crate) mod squares;
pub(crate) mod totals;
