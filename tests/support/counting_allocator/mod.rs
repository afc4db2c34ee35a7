//! A global allocator that counts: how many bytes are alive, how many were at most, and the largest single request.
//!
//!     #[global_allocator]
//!     static ALLOCATOR: Counting<System> = Counting(System);

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts what it passes on to another allocator.
pub struct Counting<A>(pub A);

static ALIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// What was allocated while something ran.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// Most bytes alive at once, beyond those alive before.
    pub peak: usize,
    /// Bytes alive after, beyond those alive before.
    #[allow(dead_code, reason = "not everyone who counts asks for all")]
    pub kept: isize,
    /// The largest single request.
    #[allow(dead_code, reason = "not everyone who counts asks for all")]
    pub largest: usize,
}

/// Runs `work` and says what it allocated. Other threads' allocations count too.
pub fn count<T>(work: impl FnOnce() -> T) -> (T, Use) {
    let before = ALIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    LARGEST.store(0, Relaxed);
    let result = work();
    let peak = PEAK.load(Relaxed).saturating_sub(before);
    let kept = ALIVE.load(Relaxed) as isize - before as isize;
    (result, Use { peak, kept, largest: LARGEST.load(Relaxed) })
}

/// Bytes alive now.
#[allow(dead_code, reason = "not everyone who counts asks for all")]
pub fn alive() -> usize {
    ALIVE.load(Relaxed)
}

fn grown(size: usize) {
    let alive = ALIVE.fetch_add(size, Relaxed) + size;
    PEAK.fetch_max(alive, Relaxed);
    LARGEST.fetch_max(size, Relaxed);
}

// SAFETY: every call is passed on unchanged.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(size);
        ALIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}
