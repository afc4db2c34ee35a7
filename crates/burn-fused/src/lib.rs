#![doc = include_str!("../README.md")]
//!
//! # Devices without kernels
//!
//! NdArray runs the reference with a backward that saves as little as the kernels' does; so does a CubeCL device if dtypes
//! are mixed (but for γ and β in f32 beside rows in 16 bits) or it has too few buffer bindings, and for attention less than 256 units a cube or 26 KB of shared memory (52 KB in
//! f64), or a head more than 256 columns. Every other device runs the reference with Burn's backward, and dropout's
//! mask is Burn's own there. [`on_reference_path`] runs the reference everywhere.
//!
//! # Calls at once
//!
//! Any number of threads may call at once, and results do not depend on it: the bits are those of a call alone. [`autocast`],
//! [`on_reference_path`], [`with_one_draw`] and recomputed parts hold for the calls of a closure on its thread. An operator takes
//! these settings with it when it is called, to its backward and its device's queue; while it runs they are at their defaults on the
//! thread, and threads that wait for others in a matmul or another kernel run nothing else.
//!
//! What remains is a Burn operation that is called within such a closure and shares its work by rayon, such as `Tensor::matmul` on
//! Flex, on a thread of a rayon pool: while it waits, rayon lets the thread run any other job of the pool, which then finds the settings of
//! the closure, unless it states its own. Call from threads that are in no pool, such as those of tokio's `spawn_blocking`, or let each
//! job state its own precision by [`autocast`].
//!
//! Training modules that share parameters from several threads deadlocks inside Burn 0.22.1's autodiff: give each thread a `fork`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(feature = "_cubecl")]
mod cube {
    //! What the kernels for CubeCL's devices have in common.
    //!
    //! None uses atomics, planes or anything else whose order varies: two runs are equal bit for bit. All are launched with
    //! bounds checks.

    pub(crate) mod launch;
    pub(crate) mod layer_norm;
    pub(crate) mod mask;
    pub(crate) mod row;
    pub(crate) mod totals;
}
mod engine {
    //! What an operator is, and how it reaches the device that its tensors are on.

    pub(crate) mod call;
    #[cfg(feature = "_cubecl")]
    pub(crate) mod deferred;
    pub(crate) mod device;
    pub(crate) mod inputs;
    pub(crate) mod operator;
    pub(crate) mod recompute;
    pub(crate) mod run;
}
mod error;
#[cfg(feature = "flex")]
mod flex;
mod numerics {
    pub(crate) mod dropout;
    pub(crate) mod layer_norm;
    pub(crate) mod philox;
    pub(crate) mod precision;
}
mod ops {
    pub(crate) mod activation;
    pub(crate) mod add_layer_norm;
    pub(crate) mod attention;
    pub(crate) mod cross_entropy;
    pub(crate) mod drop_out;
    pub(crate) mod embed_layer_norm;
    pub(crate) mod linear;
    pub(crate) mod move_rows;
    pub(crate) mod optimizer;
    pub(crate) mod rotary;
    pub(crate) mod self_attention;
}
pub use engine::call::{Precision, on_reference_path};
pub use engine::device::{check_dtype, read_at_once};
pub use engine::recompute::{recomputed, recomputed_anywhere};
pub use error::{Error, Result};
#[cfg(feature = "flex")]
pub use flex::matrix_kernel;
pub use numerics::dropout::with_one_draw;
pub use numerics::precision::{autocast, computed_in};
pub use ops::activation::{Activation, bias_activation, bias_gelu, gated_activation};
pub use ops::add_layer_norm::add_layer_norm;
pub use ops::attention::{Positions, Sequences, attention, attention_weights};
pub use ops::cross_entropy::cross_entropy;
pub use ops::drop_out::{add_drop_out, drop_out};
pub use ops::embed_layer_norm::{Norm, Rows, embed_layer_norm, lookup};
pub use ops::linear::{linear, linear_narrow, prepared};
pub use ops::move_rows::{Moves, indices};
pub use ops::optimizer::{AdamStep, adam, clip, fuse_adam};
pub use ops::rotary::rotary;
pub use ops::self_attention::self_attention;
