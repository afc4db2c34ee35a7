//! Seeds of masks, from the generator of a device.

use crate::scope::within;
use burn::prelude::*;
use burn::tensor::Distribution;
use std::cell::RefCell;
use std::collections::VecDeque;

thread_local! {
    static SHARED: RefCell<Option<Shared>> = const { RefCell::new(None) };
    static RECORDED: RefCell<Option<Vec<Seed>>> = const { RefCell::new(None) };
    static REPLAYED: RefCell<VecDeque<Seed>> = const { RefCell::new(VecDeque::new()) };
}

/// Seeds, [K, 4], and the row of one.
pub(crate) type Seed = (Tensor<2, Int>, usize);

/// Seeds of the operators of one forward.
struct Shared {
    count: usize,
    /// [count, 4], when the first operator has asked for one.
    drawn: Option<Tensor<2, Int>>,
    next: usize,
}

/// Runs `f`, whose first `count` operators with dropout on one device get the rows of one draw, in the order in which they
/// are called.
///
/// A queue such as that of Burn's fusion can run independent draws in another order than
/// they were asked for. Inside another call `f` goes on with that call's seeds.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{Norm, add_layer_norm, with_one_draw};
///
/// let device = Device::default().autodiff();
/// let x = Tensor::<2>::ones([2, 4], &device).require_grad();
/// let norm = || Norm { gamma: Tensor::ones([4], &device), beta: None, epsilon: 1e-12 };
/// let y = with_one_draw(2, || {
///     let y = add_layer_norm(x.clone(), None, x.clone(), norm(), 0.1);
///     add_layer_norm(y.clone(), None, y, norm(), 0.1)
/// });
/// assert_eq!(y.dims(), [2, 4]);
/// ```
pub fn with_one_draw<T>(count: usize, f: impl FnOnce() -> T) -> T {
    if SHARED.with_borrow(Option::is_some) {
        return f();
    }
    within(&SHARED, Some(Shared { count, drawn: None, next: 0 }), f).0
}

/// What `f` returns, and the seeds that its operators got.
pub(crate) fn recorded<T>(f: impl FnOnce() -> T) -> (T, Vec<Seed>) {
    let (result, seeds) = within(&RECORDED, Some(Vec::new()), f);
    (result, seeds.expect("nothing else stops the recording"))
}

/// Runs `f`, whose operators get the seeds of a recorded call.
pub(crate) fn replayed<T>(seeds: Vec<Seed>, f: impl FnOnce() -> T) -> T {
    within(&REPLAYED, seeds.into(), f).0
}

/// Seeds on a device, and the row of one that no other operator has.
///
/// They are outside autodiff: those of one draw go to operators with and without gradient checkpointing, whose tensors
/// Burn does not mix.
pub(super) fn next(device: &Device) -> Seed {
    let again = REPLAYED.with_borrow_mut(VecDeque::pop_front);
    let seed = again.unwrap_or_else(|| new(&device.clone().without_autodiff()));
    RECORDED.with_borrow_mut(|recorded| recorded.as_mut().map(|seeds| seeds.push(seed.clone())));
    seed
}

fn new(device: &Device) -> Seed {
    SHARED.with_borrow_mut(|shared| {
        let Some(shared) = shared.as_mut().filter(|shared| shared.next < shared.count) else {
            // More operators than were announced: each draws for itself.
            return (draw(1, device), 0);
        };
        let drawn = shared.drawn.get_or_insert_with(|| draw(shared.count, device));
        // A model may span devices; the draw is on one.
        if drawn.device() != *device {
            return (draw(1, device), 0);
        }
        shared.next += 1;
        (drawn.clone(), shared.next - 1)
    })
}

fn draw(count: usize, device: &Device) -> Tensor<2, Int> {
    Tensor::random([count, 4], Distribution::Uniform(0.0, 65536.0), device)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// The seed, and how many its draw has.
    fn seed() -> (Vec<i32>, usize) {
        let (seeds, row) = next(&Device::flex());
        let drawn = seeds.dims()[0];
        (seeds.narrow(0, row, 1).into_data().iter::<i32>().collect(), drawn)
    }

    #[test]
    fn operators_of_a_forward_have_seeds_of_their_own_from_one_draw() {
        let mut seeds = with_one_draw(3, || {
            let first = seed();
            // An encoder within a model.
            let second = with_one_draw(2, seed);
            vec![first, second, seed(), seed()]
        });
        seeds.push(seed());
        assert_eq!(seeds.iter().map(|seed| seed.1).collect::<Vec<_>>(), [3, 3, 3, 1, 1]);
        for (i, a) in seeds.iter().enumerate() {
            assert!(a.0.iter().all(|word| (0..65536).contains(word)), "{a:?}");
            assert!(seeds[..i].iter().all(|b| a.0 != b.0), "{seeds:?}");
        }
    }

    #[test]
    fn a_forward_that_panicked_leaves_no_seeds_to_the_next() {
        let forward = || with_one_draw(2, || -> Vec<i32> { panic!("after {:?}", seed()) });
        assert!(catch_unwind(AssertUnwindSafe(forward)).is_err());
        assert_eq!(with_one_draw(5, seed).1, 5);
    }
}
