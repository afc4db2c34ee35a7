//! Settings of a thread that hold while a call runs.

use std::cell::RefCell;
use std::mem::take;
use std::thread::LocalKey;

/// What `f` returns with `value` in `place`, and what it left there. Then `place` has the value before again.
pub(crate) fn within<V: Default, T>(
    place: &'static LocalKey<RefCell<V>>,
    value: V,
    f: impl FnOnce() -> T,
) -> (T, V) {
    struct Restore<V: Default + 'static>(&'static LocalKey<RefCell<V>>, V);
    impl<V: Default> Drop for Restore<V> {
        fn drop(&mut self) {
            self.0.set(take(&mut self.1));
        }
    }
    // Dropped, and so restored, also if `f` panics.
    let restore = Restore(place, place.replace(value));
    (f(), restore.0.take())
}
