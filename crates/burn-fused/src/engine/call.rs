//! Settings that hold while a call runs on its thread.

use crate::engine::operator::Path;
use crate::numerics::dropout::Seeds;
use crate::numerics::precision::Precision;
use std::cell::RefCell;
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
