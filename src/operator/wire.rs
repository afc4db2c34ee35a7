//! Fields without tensors, as the numbers that travel to a worker.

use burn::backend::ir::ScalarIr;

/// One of the numbers.
pub(crate) type Number = ScalarIr;

/// Those that are still to be read.
pub(crate) type Numbers = std::vec::IntoIter<Number>;

pub(crate) const OTHER_CLIENT: &str = "the client's arguments are not those of this version of burn-bert";

/// A field without tensors.
///
/// # Panics
///
/// `take`, if the client sent something else, such as one with another version of this crate: that ends its session.
pub(crate) trait Plain: Sized {
    fn put(&self, to: &mut Vec<Number>);

    fn take(from: &mut Numbers) -> Self;
}

macro_rules! plain {
    ($($type:ty: $variant:ident as $number:ty),*) => {
        $(
            impl Plain for $type {
                fn put(&self, to: &mut Vec<Number>) {
                    to.push(ScalarIr::$variant(*self as $number));
                }

                fn take(from: &mut Numbers) -> Self {
                    let Some(ScalarIr::$variant(number)) = from.next() else { panic!("{OTHER_CLIENT}") };
                    number as Self
                }
            }
        )*
    };
}
plain!(usize: UInt as u64, f64: Float as f64, bool: Bool as bool);

impl<T: Plain, const N: usize> Plain for [T; N] {
    fn put(&self, to: &mut Vec<Number>) {
        self.iter().for_each(|item| item.put(to));
    }

    fn take(from: &mut Numbers) -> Self {
        std::array::from_fn(|_| T::take(from))
    }
}

impl<T: Plain> Plain for Option<T> {
    fn put(&self, to: &mut Vec<Number>) {
        self.is_some().put(to);
        self.iter().for_each(|item| item.put(to));
    }

    fn take(from: &mut Numbers) -> Self {
        bool::take(from).then(|| T::take(from))
    }
}

impl<T: Plain> Plain for Vec<T> {
    fn put(&self, to: &mut Vec<Number>) {
        self.len().put(to);
        self.iter().for_each(|item| item.put(to));
    }

    fn take(from: &mut Numbers) -> Self {
        let mut items = Vec::new(); // grows with what was sent, whatever length is claimed
        (0..usize::take(from)).for_each(|_| items.push(T::take(from)));
        items
    }
}
