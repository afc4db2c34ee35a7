//! Work that is shared with other threads.

use rayon::{Scope, ThreadPool, ThreadPoolBuilder};
use std::sync::LazyLock;

/// One thread fewer than rayon's own pool has: the caller is the other one. rayon's pool beside a caller that works as
/// well has one more thread than the machine has cores, and the kernel lets two of them share a core while another is idle: a training
/// step took a tenth longer.
static HELPERS: LazyLock<ThreadPool> = LazyLock::new(|| {
    let pool = ThreadPoolBuilder::new().num_threads(rayon::current_num_threads().saturating_sub(1).max(1));
    pool.thread_name(|index| format!("matmul {index}")).build().expect("threads can be started")
});

/// Runs `work` on this thread and on `threads` − 1 others at once, and returns when all have done it. The others are those
/// of rayon's pool if this thread is one of them, so that a pool of the caller's bounds what its work uses; they join in as they wake
/// up, so `work` should take what is left to do item by item.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let runs = AtomicUsize::new(0);
/// burn_fused_matmul::on_threads(3, || {
///     runs.fetch_add(1, Ordering::Relaxed);
/// });
/// assert_eq!(runs.into_inner(), 3);
/// ```
pub fn on_threads(threads: usize, work: impl Fn() + Sync) {
    match (threads, rayon::current_thread_index()) {
        (..2, _) => work(),
        (_, Some(_)) => rayon::in_place_scope(|scope| share(scope, threads, &work)),
        // rayon's own loops put the caller to sleep, which doubles the time of work of some tenths of a millisecond.
        (_, None) => HELPERS.in_place_scope(|scope| share(scope, threads, &work)),
    }
}

fn share<'scope>(scope: &Scope<'scope>, threads: usize, work: &'scope (impl Fn() + Sync)) {
    for _ in 1..threads {
        scope.spawn(|_| work());
    }
    work();
}
