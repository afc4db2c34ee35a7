//! Settings that hold while a call runs on its thread.

use burn::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::{replace, take};

/// What operators that are called now, on this thread, take with them.
#[derive(Default)]
pub(crate) struct Call {
    pub(crate) precision: Precision,
    pub(crate) path: Path,
    pub(crate) seeds: Seeds,
}

thread_local! {
    static CALL: RefCell<Call> = RefCell::default();
}

/// What `f` makes of the settings of this thread.
pub(crate) fn with_current<T>(f: impl FnOnce(&mut Call) -> T) -> T {
    CALL.with_borrow_mut(f)
}

/// What `f` returns with `value` in a field of the settings, and what it left there. Then the field has the value before again.
pub(crate) fn within<V: Default, T>(
    field: fn(&mut Call) -> &mut V,
    value: V,
    f: impl FnOnce() -> T,
) -> (T, V) {
    struct Restore<V: Default>(fn(&mut Call) -> &mut V, V);
    impl<V: Default> Drop for Restore<V> {
        fn drop(&mut self) {
            with_current(|call| *self.0(call) = take(&mut self.1));
        }
    }
    // Dropped, and so restored, also if `f` panics.
    let _restore = Restore(field, with_current(|call| replace(field(call), value)));
    let result = f();
    (result, with_current(|call| take(field(call))))
}

/// What `f` returns under no settings: of a job that a pool runs on this thread while `f` waits, they would be another call's.
pub(crate) fn outside<T>(f: impl FnOnce() -> T) -> T {
    within(|call| call, Call::default(), f).0
}

/// What the operands of matmuls are rounded to. Parameters, sums, statistics and losses are f32 in both.
///
/// Parsed from and written as `f32` and `bf16`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Matmuls are computed in f32: 24 bits of mantissa, and a range of 1e-38 to 3e38.
    #[default]
    F32,
    /// bfloat16: 8 bits of mantissa, and the range of f32.
    Bf16,
}

/// What computes the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Path {
    /// The backend's kernels, where it has them for the input.
    #[default]
    Fused,
    /// The reference, made of Burn's own operations.
    Reference,
}

/// Runs `f` with the reference instead of every kernel, on this thread.
///
/// Use it to compare a kernel with the reference, which is made of Burn's own operations. The backward of what runs in `f`
/// is the reference's, too. For ids in range, results equal the kernels' up to rounding; a seed gives the same dropout mask.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{bias_gelu, on_reference_path};
///
/// let device = Device::default();
/// let x = Tensor::from_floats([[0.5, -1.0]], &device);
/// let forward = || bias_gelu(x.clone(), Tensor::zeros([2], &device));
/// let reference = on_reference_path(forward);
/// assert!(forward().all_close(reference, Some(1e-5), Some(1e-5)));
/// ```
pub fn on_reference_path<T>(f: impl FnOnce() -> T) -> T {
    Path::Reference.take(f)
}

impl Path {
    /// Runs `f` with this as the choice, on this thread.
    pub(crate) fn take<T>(self, f: impl FnOnce() -> T) -> T {
        within(|call| &mut call.path, self, f).0
    }

    /// What computes an operator that is called now, on this thread.
    pub(crate) fn current() -> Self {
        with_current(|call| call.path)
    }
}

/// Seeds, [K, 4], and the row of one.
pub(crate) type Seed = (Tensor<2, Int>, usize);

/// The source of the seeds of a call's operators.
#[derive(Default)]
pub(crate) struct Seeds {
    pub(crate) source: SeedSource,
    /// The seeds that operators got, recorded if a part's backward needs them again.
    pub(crate) recorded: Option<Vec<Seed>>,
}

#[derive(Default)]
pub(crate) enum SeedSource {
    /// Each operator draws its own seed.
    #[default]
    Own,
    /// One draw of `count` seeds, when the first operator asks for one.
    OneDraw { count: usize, drawn: VecDeque<Seed> },
    /// A call whose seeds were recorded.
    Recorded(VecDeque<Seed>),
}
