//! Work that is shared with other threads.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::any::Any;
use std::cell::Cell;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One thread fewer than rayon's own pool has: the caller is the other one. rayon's pool beside a caller that works as
/// well has one more thread than the machine has cores, and the kernel lets two of them share a core while another is idle: a training
/// step took a tenth longer.
static HELPERS: LazyLock<ThreadPool> = LazyLock::new(|| {
    let pool = ThreadPoolBuilder::new().num_threads(rayon::current_num_threads().saturating_sub(1).max(1));
    pool.thread_name(|index| format!("matmul {index}")).build().expect("threads can be started")
});

/// Runs `work` on this thread and, as they become free, on up to `threads` − 1 others at once, and returns when all that began have
/// ended. The others are those of rayon's pool if this thread is one of them, so that a pool of the caller's bounds what its work uses.
/// `work` should take what is left to do item by item, and return when nothing is left.
///
/// Outside pools a call asks for one helper fewer for each other thread that is in a call. A thread that is busy elsewhere is not waited
/// for: it finds the call closed, and does nothing. While this thread waits it runs nothing else, unlike rayon's own `scope`, `join` and
/// loops, in which a thread of a pool takes any other job of the pool in between. So what holds for this thread while it is here, such as a
/// thread-local, never holds for another job.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let (next, sum) = (AtomicUsize::new(1), AtomicUsize::new(0));
/// burn_fused_matmul::on_threads(3, || {
///     while let number @ ..=100 = next.fetch_add(1, Ordering::Relaxed) {
///         sum.fetch_add(number, Ordering::Relaxed);
///     }
/// });
/// assert_eq!(sum.into_inner(), 5050);
/// ```
///
/// # Panics
///
/// If `work` does, on any of the threads.
pub fn on_threads(threads: usize, work: impl Fn() + Sync) {
    match (threads, rayon::current_thread_index()) {
        (..2, _) => work(),
        (_, Some(_)) => share(threads - 1, &work, Duration::ZERO, rayon::spawn),
        (_, None) => {
            // rayon's own loops put the caller to sleep, which doubles the time of work of some tenths of a millisecond.
            let caller = Caller::new();
            match (threads - 1).min(HELPERS.current_num_threads().saturating_sub(caller.others)) {
                0 => {
                    LAST.store(0, Ordering::Relaxed);
                    work();
                }
                helpers => share(helpers, &work, PATIENCE, |helper| HELPERS.spawn(helper)),
            }
        }
    }
}

/// Threads of no pool that are in a call. With more threads at work than cores, one would be off its core while a call waits for it.
static CALLERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread is one of [`CALLERS`].
    static IS_CALLER: Cell<bool> = const { Cell::new(false) };
}

/// A thread in a call, or in one within it.
struct Caller {
    is_outermost: bool,
    /// How many other threads are in calls.
    others: usize,
}

impl Caller {
    fn new() -> Self {
        let is_outermost = !IS_CALLER.replace(true);
        let others = match is_outermost {
            true => CALLERS.fetch_add(1, Ordering::Relaxed),
            false => CALLERS.load(Ordering::Relaxed) - 1,
        };
        Self { is_outermost, others }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.is_outermost {
            CALLERS.fetch_sub(1, Ordering::Relaxed);
            IS_CALLER.set(false);
        }
    }
}

/// How long a helper that has nothing else to do waits awake for the next call of the same thread: as long as what a model computes
/// between two products on one thread takes. To wake it up takes some 30 µs.
const PATIENCE: Duration = Duration::from_micros(100);

/// The thread that made the last call, or 0: a helper does not wait awake for one where several make calls.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// The calls that a thread is in, which helpers join.
#[derive(Default)]
struct Calls {
    open: Mutex<OpenCalls>,
    /// How many have been opened.
    opened: AtomicUsize,
}

#[derive(Default)]
struct OpenCalls {
    /// The innermost is the last.
    calls: Vec<Call>,
    /// Helpers that were asked for and have not begun, or wait awake: they join the call that is open when they look.
    asked: usize,
}

struct Call {
    shared: Arc<Shared>,
    /// How many helpers may still join.
    room: usize,
}

/// What a call and its helpers share.
struct Shared {
    /// Exists until the call is closed and nobody is inside.
    work: &'static (dyn Fn() + Sync),
    /// Helpers at work.
    inside: AtomicUsize,
    /// What a helper panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

thread_local! {
    static CALLS: Arc<Calls> = Arc::default();
}

fn share<'a>(
    helpers: usize,
    work: &'a (dyn Fn() + Sync + 'a),
    patience: Duration,
    spawn: impl Fn(Box<dyn FnOnce() + Send>),
) {
    // SAFETY: helpers call it while they are inside, and `Closed` keeps this call from ending before they are outside, also when a panic
    // ends it. Nobody gets inside later: a call that is not open is not found.
    let work = unsafe { transmute::<&'a (dyn Fn() + Sync + 'a), &'static (dyn Fn() + Sync)>(work) };
    let shared = Arc::new(Shared { work, inside: AtomicUsize::new(0), panic: Mutex::default() });
    let calls = CALLS.with(Arc::clone);
    let missing = {
        let mut open = lock(&calls.open);
        open.calls.push(Call { shared: shared.clone(), room: helpers });
        calls.opened.fetch_add(1, Ordering::Release);
        LAST.store(calls.id(), Ordering::Relaxed);
        let missing = helpers.saturating_sub(open.asked);
        open.asked += missing;
        missing
    };
    /// Closes the call when dropped, and waits for helpers inside.
    struct Closed<'a>(&'a Calls, &'a Shared);
    impl Drop for Closed<'_> {
        fn drop(&mut self) {
            lock(&self.0.open).calls.pop();
            wait_until(|| self.1.inside.load(Ordering::Acquire) == 0);
        }
    }
    let closed = Closed(&calls, &shared);
    for _ in 0..missing {
        let calls = calls.clone();
        spawn(Box::new(move || calls.help(patience)));
    }
    work();
    drop(closed);
    if let Some(panic) = lock(&shared.panic).take() {
        resume_unwind(panic);
    }
}

impl Calls {
    /// A number that no other thread's calls have.
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Works on the innermost call that has room, if any is open, and then on those that are opened within `patience`.
    fn help(&self, patience: Duration) {
        loop {
            let (shared, opened) = {
                let mut open = lock(&self.open);
                let call = open.calls.iter_mut().rev().find(|call| call.room > 0);
                let shared = call.map(|call| {
                    call.room -= 1;
                    call.shared.inside.fetch_add(1, Ordering::Relaxed);
                    call.shared.clone()
                });
                if shared.is_none() || patience.is_zero() {
                    open.asked -= 1;
                }
                (shared, self.opened.load(Ordering::Relaxed))
            };
            let Some(shared) = shared else { return };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(shared.work)) {
                lock(&shared.panic).get_or_insert(panic);
            }
            shared.inside.fetch_sub(1, Ordering::Release);
            if patience.is_zero() {
                return;
            }
            let is_next = || self.opened.load(Ordering::Acquire) != opened;
            let begin = Instant::now();
            while !is_next() && LAST.load(Ordering::Relaxed) == self.id() && begin.elapsed() < patience {
                std::hint::spin_loop();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for what another thread is about to end.
pub(crate) fn wait_until(is_done: impl Fn() -> bool) {
    let mut spins = 0;
    while !is_done() {
        spins += 1;
        // Soon, unless the system has taken that thread's core away.
        if spins < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}
