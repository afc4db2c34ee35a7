//! `compare` with mimalloc as the global allocator of the Rust side.

mod bert_base;
#[path = "../tests/support/counting_allocator/mod.rs"]
mod counting_allocator;
mod operator_table;
mod race;

use counting_allocator::Counting;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

fn main() {
    operator_table::print(&bert_base::SHAPES);
}
