//! `compare` with mimalloc as the global allocator of the Rust side.

#[path = "compare.rs"]
mod compare;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    compare::main();
}
