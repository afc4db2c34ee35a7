//! The choice between kernels and the reference.

use std::cell::Cell;

/// What computes the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Path {
    /// The backend's kernels, where it has them for the input.
    #[default]
    Fused,
    /// The reference, made of Burn's own operations.
    Reference,
}

thread_local! {
    static PATH: Cell<Path> = const { Cell::new(Path::Fused) };
}

/// Runs `f` with the reference instead of every kernel, on this thread.
///
/// A forward in `f` runs the operators' references, made of Burn's own operations, and so will its backward, wherever that
/// is called. Results are those of the kernels up to rounding, for ids that are in range,
/// and a seed gives the same dropout mask: use it to compare a kernel with the reference.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::functional::on_reference_path;
/// use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput};
///
/// let device = Device::default();
/// let embeddings = BertEmbeddingsConfig::new().with_vocab_size(100).with_hidden_size(8).init(&device);
/// let input = BertEmbeddingsInput::from_rows(&[[2, 7, 3, 0]], &device)?;
/// let fused = embeddings.forward(&input);
/// let reference = on_reference_path(|| embeddings.forward(&input));
/// assert!(fused.all_close(reference, Some(1e-5), Some(1e-5)));
/// # Ok::<(), burn_bert::Error>(())
/// ```
pub fn on_reference_path<T>(f: impl FnOnce() -> T) -> T {
    Path::Reference.take(f)
}

impl Path {
    /// Runs `f` with this as the choice, on this thread.
    pub(crate) fn take<T>(self, f: impl FnOnce() -> T) -> T {
        struct Restore(Path);
        impl Drop for Restore {
            fn drop(&mut self) {
                PATH.set(self.0);
            }
        }
        let _restore = Restore(PATH.replace(self));
        f()
    }

    /// What computes an operator that is called now, on this thread.
    pub(crate) fn current() -> Self {
        PATH.get()
    }
}

#[cfg(feature = "remote")]
impl super::wire::Plain for Path {
    fn put(&self, to: &mut Vec<super::wire::Number>) {
        (*self == Self::Reference).put(to);
    }

    fn take(from: &mut super::wire::Numbers) -> Self {
        if bool::take(from) { Self::Reference } else { Self::Fused }
    }
}
