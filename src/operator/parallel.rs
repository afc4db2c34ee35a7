//! Work shared between the calling thread and rayon's.

use std::sync::{Mutex, PoisonError};

/// Below this many values one thread is faster than waking a second.
const PARALLEL_FROM: usize = 32 * 1024;

/// Calls `work` with every item, of `values` numbers in all, in parallel if that is worth it.
///
/// The calling thread begins at once and rayon's join in as they wake up. rayon's own loops hand everything to
/// the pool and send the caller to sleep; work of some tenths of a millisecond pays for that with as much again.
pub(crate) fn for_each<I>(values: usize, items: I, work: impl Fn(I::Item) + Sync)
where
    I: ExactSizeIterator<Item: Send> + Send,
{
    let threads = if values < PARALLEL_FROM { 1 } else { rayon::current_num_threads().min(items.len()) };
    if threads <= 1 {
        return items.for_each(work);
    }
    let items = Mutex::new(items);
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(item) = next() {
            work(item);
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| run());
        }
        run();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::ThreadPoolBuilder;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_item_is_worked_on_once_whatever_the_threads_and_also_inside_the_pool() {
        for threads in [1, 2, 3, 8] {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for count in [0, 1, 2, 7, 1000] {
                let calls: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                let run = || {
                    for_each(PARALLEL_FROM, calls.iter(), |calls| {
                        calls.fetch_add(1, Ordering::Relaxed);
                    });
                };
                run();
                pool.install(run);
                assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == 2), "{threads}, {count}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "item 5")]
    fn a_panic_reaches_the_caller() {
        for_each(PARALLEL_FROM, 0..64, |item| assert_ne!(item, 5, "item {item}"));
    }
}
