use std::sync::{Arc, Mutex, PoisonError};

/// Values that all layers read of a batch, each computed for the first that asks. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct OncePerBatch<K, V>(Arc<Mutex<Vec<(K, V)>>>);

impl<K, V> Default for OncePerBatch<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: PartialEq, V: Clone> OncePerBatch<K, V> {
    pub(super) fn get(&self, key: K, compute: impl FnOnce(&K) -> V) -> V {
        // A panic while it was held left no half of an entry.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = known.iter().find(|(known, _)| *known == key) {
            return value.clone();
        }
        let value = compute(&key);
        known.push((key, value.clone()));
        value
    }
}
