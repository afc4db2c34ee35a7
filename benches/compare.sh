#!/usr/bin/env bash
# Measures what README and docs/performance.md quote: writes the tables of benches/RESULTS.md, each with its machine, date and
# commit, and from them the charts and the README's table of speed.
#
#     BURN_BERT_PYTHON=path/to/python benches/compare.sh [TABLE ...]
#
# Without names it makes all tables. Nothing else should run on the machine. Python needs torch,
# transformers, onnx, onnxscript, onnxruntime and openvino; `profile` needs perf. A table stands between `<!-- NAME KEY -->` and
# `<!-- end -->`, where KEY is the kind of machine: amd-avx512, intel-amx, …; a new machine gets its marks by hand, once.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${BURN_BERT_PYTHON:?names the interpreter of the peers}"
export RAYON_NUM_THREADS="${RAYON_NUM_THREADS:-$(nproc)}" BURN_DEVICE=flex

[ $# -gt 0 ] || set -- operator operator_tuned operator_mimalloc masked_lm growth encoders profile classification inference encoders_inference single single_1 serving adamw matmul ranks
features=(--features mpi,train)
bench() { cargo bench --quiet "${features[@]}" --bench "$@"; }
# Allocators that keep their pages: glibc's for the peers, mimalloc's here.
tuned() {
    MIMALLOC_PURGE_DELAY=-1 MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 \
        MALLOC_TOP_PAD_=268435456 BURN_BERT_ALLOCATOR=tuned "$@"
}

measure() {
    case $1 in
        operator) bench compare ;;
        operator_tuned) tuned bench compare ;;
        operator_mimalloc) BURN_BERT_ALLOCATOR='mimalloc (Rust only)' bench compare_mimalloc ;;
        masked_lm) tuned bench compare_masked_lm ;;
        growth) tuned bench compare_masked_lm -- growth ;;
        # In processes of their own: PyTorch's keeps the memory of the longest sequences.
        encoders) for model in ModernBERT nomic DeBERTa; do
            tuned bench compare_masked_lm -- encoders "$model" || echo "The run ended there."
        done ;;
        encoders_inference) tuned bench compare_inference -- encoders ;;
        profile) tuned bench compare_masked_lm -- profile ;;
        classification) tuned bench compare_classification ;;
        inference) tuned bench compare_inference ;;
        single) tuned bench compare_inference -- single ;;
        single_1) RAYON_NUM_THREADS=1 tuned bench compare_inference -- single ;;
        serving) tuned bench compare_serving ;;
        adamw) tuned bench compare_adamw ;;
        matmul) echo '```text' && tuned cargo bench --quiet -p burn-fused-matmul --bench rates && echo '```' ;;
        ranks) bench ranks ;;
        *) echo "no table is called $1" >&2 && exit 2 ;;
    esac
}

# The model, its number of cores, and those instructions that a kernel depends on.
machine() {
    lscpu | sed -n 's/^Model name: *//p;s/^CPU(s): */× /p' | sort -r | paste -sd ' '
    for flag in avx2 avx512f avx512_bf16 avx512_vnni amx_bf16; do
        grep -qw "$flag" /proc/cpuinfo && echo "$flag"
    done
}

# The kind of machine: who made it, and the widest instructions that kernels use.
key() {
    local flag widest=scalar
    for flag in avx2 avx512f amx_bf16; do
        grep -qw "$flag" /proc/cpuinfo && widest=${flag%%[f_]*}
    done
    case $(lscpu) in
        *AuthenticAMD*) echo "amd-$widest" ;;
        *GenuineIntel*) echo "intel-$widest" ;;
        *) echo "$(uname -m)-$widest" ;;
    esac
}

# Puts the file $3 between the marks of the table $2 in the document $1.
insert() {
    grep -q "^<!-- $2 -->$" "$1" || { echo "$1 has no mark <!-- $2 -->: the table is only printed" >&2; return 0; }
    awk -v name="$2" -v file="$3" '
        $0 == "<!-- end -->" { inside = 0 }
        !inside { print }
        $0 == "<!-- " name " -->" { inside = 1; print ""; while ((getline line < file) > 0) print line; print "" }
    ' "$1" >"$results/document" && cat "$results/document" >"$1"
}

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
if [[ " $* " == *" operator"* ]]; then
    cargo build --quiet --release --manifest-path benches/peers/candle/Cargo.toml --target-dir target/candle
    export BURN_BERT_CANDLE=$PWD/target/candle/release/bench-candle
fi
# Built before anything is timed.
cargo bench --quiet "${features[@]}" --no-run
cargo bench --quiet -p burn-fused-matmul --bench rates --no-run
commit=$(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ' with changes')
for table in "$@"; do
    {
        echo "$(date +'%-d %B %Y'), commit $commit, $(machine | paste -sd ' ')"
        echo
        measure "$table"
    } | tee "$results/$table"
    insert benches/RESULTS.md "$table $(key)" "$results/$table"
done
cargo run --quiet -p report
