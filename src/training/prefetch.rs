//! Items that a thread makes ahead of their use.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// An iterator that runs in a thread, a bounded number of items ahead.
///
/// The thread ends with the iterator, or when this is dropped. If it panics, so does the taker.
#[derive(Debug)]
pub(super) struct Prefetch<T> {
    /// `None` once the iterator ended.
    items: Option<Receiver<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Runs what `iterator` makes, `ahead` items ahead.
    pub(super) fn new<I>(ahead: usize, iterator: impl FnOnce() -> I + Send + 'static) -> Self
    where
        I: Iterator<Item = T>,
    {
        let (sender, items) = sync_channel(ahead);
        let thread = thread::spawn(move || send_all(iterator(), &sender));
        Self { items: Some(items), thread: Some(thread) }
    }
}

/// Until nobody takes them any more.
fn send_all<T>(mut items: impl Iterator<Item = T>, sender: &SyncSender<T>) {
    while let Some(item) = items.next()
        && sender.send(item).is_ok()
    {}
}

impl<T> Iterator for Prefetch<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let item = self.items.as_ref()?.recv().ok();
        if item.is_none() {
            self.items = None;
            if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                resume_unwind(panic);
            }
        }
        item
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        self.items = None; // so that the thread's next send fails
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is of an item that nobody asked for.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn items_come_in_order_and_end() {
        let items: Vec<usize> = Prefetch::new(2, || 0..100).collect();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_thread_is_only_so_many_items_ahead_and_stops_when_dropped() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let mut items = Prefetch::new(3, || {
            (0..).inspect(move |_| {
                counter.fetch_add(1, Ordering::SeqCst);
            })
        });
        assert_eq!(items.next(), Some(0));
        thread::sleep(Duration::from_millis(100));
        // One was taken, three wait, and one is in the hand of the thread.
        assert_eq!(made.load(Ordering::SeqCst), 5);
        drop(items);
        assert_eq!(Arc::strong_count(&made), 1, "the thread and its iterator are gone");
    }

    #[test]
    fn a_panic_of_the_thread_reaches_the_taker() {
        let mut items = Prefetch::new(1, || (0..3).inspect(|&i| assert!(i < 1, "item {i}")));
        assert_eq!(items.next(), Some(0));
        let panic = catch_unwind(AssertUnwindSafe(|| items.next())).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), "item 1");
    }
}
