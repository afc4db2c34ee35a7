//! Work that is shared with other threads.

use burn_fused_matmul::on_threads;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cell::Cell;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

fn pool_of_two() -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(2).build().unwrap()
}

/// As many as calls outside pools take on every machine.
const THREADS: usize = 4;

/// While one test makes calls outside pools no other does: together they have fewer helpers.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The first of these tests sets it.
    let _ = ThreadPoolBuilder::new().num_threads(THREADS).build_global();
    assert_eq!(rayon::current_num_threads(), THREADS);
    alone
}

#[test]
fn two_threads_work_at_once_outside_a_pool_and_in_one() {
    let _alone = alone();
    // Nobody passes a barrier alone.
    let meet = || {
        let barrier = Barrier::new(2);
        on_threads(2, || {
            barrier.wait();
        });
    };
    meet();
    pool_of_two().install(meet);
    // A helper waits awake for the next call, and then not: each call has one, however long after the last it is made.
    for pause in (0..200).map(Duration::from_micros) {
        let begin = Instant::now();
        while begin.elapsed() < pause {}
        meet();
    }
}

#[test]
#[should_panic(expected = "a helper fails")]
fn a_panic_of_a_helper_reaches_the_caller() {
    let _alone = alone();
    let caller = std::thread::current().id();
    let barrier = Barrier::new(2);
    on_threads(2, || {
        barrier.wait();
        assert_eq!(std::thread::current().id(), caller, "a helper fails");
    });
}

thread_local! {
    static IS_IN_A_CALL: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn a_thread_that_waits_for_its_helpers_runs_no_other_job_of_the_pool() {
    let pool = Arc::new(pool_of_two());
    let (found, all) = channel();
    let (helper_is_inside, others_are_queued) = (Barrier::new(2), Arc::new(Barrier::new(2)));
    let waiting = others_are_queued.clone();
    let caller = pool.clone();
    pool.spawn(move || {
        IS_IN_A_CALL.set(true);
        let id = thread::current().id();
        on_threads(2, || {
            helper_is_inside.wait();
            if thread::current().id() != id {
                // The caller waits for this thread, and could take what is queued.
                waiting.wait();
                sleep(Duration::from_millis(100));
            }
        });
        IS_IN_A_CALL.set(false);
        drop(caller);
    });
    for _ in 0..10 {
        let found = found.clone();
        pool.spawn(move || found.send(IS_IN_A_CALL.get()).unwrap());
    }
    others_are_queued.wait();
    drop(found);
    assert_eq!(all.iter().collect::<Vec<_>>(), [false; 10], "ran within another job's call");
}

/// How many threads take part in a call that `spawn` hands to a thread of its own.
fn threads_of_a_call(spawn: impl FnOnce(Box<dyn FnOnce() + Send>)) -> usize {
    let (done, end) = channel();
    spawn(Box::new(move || {
        let runs = AtomicUsize::new(0);
        on_threads(2, || {
            runs.fetch_add(1, Ordering::Relaxed);
        });
        done.send(runs.into_inner()).unwrap();
    }));
    end.recv_timeout(Duration::from_secs(20)).expect("a call that waits for no thread that is busy elsewhere")
}

#[test]
fn a_call_does_not_wait_for_a_helper_that_has_not_begun() {
    let _alone = alone();
    let pool = pool_of_two();
    let (is_busy, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let [busy, released] = [&is_busy, &release].map(Arc::clone);
    pool.spawn(move || {
        busy.wait();
        released.wait();
    });
    is_busy.wait();
    assert_eq!(threads_of_a_call(|call| pool.spawn(call)), 1);
    release.wait();

    // Those of threads outside pools: one call has all helpers, and another asks for one of them.
    let (are_busy, release) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    thread::scope(|scope| {
        scope.spawn(|| {
            on_threads(THREADS, || {
                are_busy.wait();
                release.wait();
            })
        });
        are_busy.wait();
        let alone = catch_unwind(|| threads_of_a_call(|call| drop(thread::spawn(call))));
        release.wait();
        assert_eq!(alone.unwrap(), 1);
    });
}

/// How many threads take part in a call outside pools that asks for `THREADS`: as many as `expected`, if they come, and no more.
fn threads_beside(expected: usize) -> usize {
    let (caller, threads) = (thread::current().id(), AtomicUsize::new(0));
    on_threads(THREADS, || {
        threads.fetch_add(1, Ordering::Relaxed);
        if thread::current().id() != caller {
            return;
        }
        let begin = Instant::now();
        while threads.load(Ordering::Relaxed) < expected && begin.elapsed() < Duration::from_secs(20) {
            thread::yield_now();
        }
        // Time enough for one more.
        sleep(Duration::from_millis(50));
    });
    threads.into_inner()
}

#[test]
fn a_call_has_one_helper_fewer_for_each_other_caller() {
    let _alone = alone();
    for others in 0..=THREADS {
        let (are_inside, release) = (&Barrier::new(others + 1), &Barrier::new(others + 1));
        thread::scope(|scope| {
            for _ in 0..others {
                scope.spawn(|| {
                    let caller = thread::current().id();
                    on_threads(2, || {
                        if thread::current().id() == caller {
                            are_inside.wait();
                            release.wait();
                        }
                    });
                });
            }
            are_inside.wait();
            let expected = THREADS.saturating_sub(others).max(1);
            let found = threads_beside(expected);
            release.wait();
            assert_eq!(found, expected, "{others} other callers");
        });
    }
    // Neither a call that this thread is in counts, nor one that ended in a panic.
    catch_unwind(|| on_threads(2, || panic!("a call fails"))).unwrap_err();
    let caller = thread::current().id();
    on_threads(2, || {
        if thread::current().id() == caller {
            assert_eq!(threads_beside(THREADS), THREADS);
        }
    });
}

#[test]
fn calls_within_calls_share_their_helpers() {
    let _alone = alone();
    let total = AtomicUsize::new(0);
    let work = || {
        let next = AtomicUsize::new(0);
        on_threads(3, || {
            while next.fetch_add(1, Ordering::Relaxed) < 10 {
                let next = AtomicUsize::new(0);
                on_threads(3, || {
                    while next.fetch_add(1, Ordering::Relaxed) < 100 {
                        total.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
    };
    for _ in 0..100 {
        work();
        pool_of_two().install(work);
    }
    assert_eq!(total.into_inner(), 200 * 10 * 100);
}
