#!/bin/sh
# The operator against Burn's own operations, PyTorch and candle, under three allocators: one table each.
#
#     BURN_BERT_PYTHON=path/to/python benches/compare.sh
#
# The tuned allocator is glibc told to keep its pages, for all contestants.
set -eu
cd "$(dirname "$0")/.."

candle=benches/peers/candle
cargo build --quiet --release --manifest-path "$candle/Cargo.toml" --target-dir target/candle
BURN_BERT_CANDLE=$PWD/target/candle/release/bench-candle
export BURN_BERT_CANDLE

lscpu 2>/dev/null | grep -E 'Model name|^CPU\(s\)' || true
cargo bench --quiet --bench compare
echo
MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 \
    BURN_BERT_ALLOCATOR='tuned' cargo bench --quiet --bench compare
echo
BURN_BERT_ALLOCATOR='mimalloc (Rust only)' cargo bench --quiet --bench compare_mimalloc
