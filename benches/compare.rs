//! The operator, Burn's own operations, PyTorch and candle side by side, as one table.
//!
//!     BURN_BERT_PYTHON=python BURN_BERT_CANDLE=program cargo bench --bench compare
//!
//! They are interleaved, so that they run under the same conditions. Columns of contestants that are not named are empty. See
//! `benches/compare.sh`, which builds candle's program and runs this under several allocators.

mod bert_base;
#[path = "../tests/support/counting_allocator/mod.rs"]
mod counting_allocator;
mod operator_table;
mod race;

use counting_allocator::Counting;
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

fn main() {
    operator_table::print(&bert_base::SHAPES);
}
