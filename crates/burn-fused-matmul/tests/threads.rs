//! Work that is shared with other threads.

use burn_fused_matmul::on_threads;
use rayon::ThreadPoolBuilder;
use std::sync::Barrier;

#[test]
fn two_threads_work_at_once_outside_a_pool_and_in_one() {
    // Nobody passes a barrier alone.
    let meet = || {
        let barrier = Barrier::new(2);
        on_threads(2, || {
            barrier.wait();
        });
    };
    meet();
    ThreadPoolBuilder::new().num_threads(2).build().unwrap().install(meet);
}

#[test]
#[should_panic(expected = "a helper fails")]
fn a_panic_of_a_helper_reaches_the_caller() {
    let caller = std::thread::current().id();
    let barrier = Barrier::new(2);
    on_threads(2, || {
        barrier.wait();
        assert_eq!(std::thread::current().id(), caller, "a helper fails");
    });
}
