#!/usr/bin/env bash
# Bytes and seconds of an optimiser step on several workers of this machine:
#
#     cargo build --release --features remote,tokenizers,train --example worker --example fine_tune_mlm
#     benches/workers.sh CHECKPOINT TEXT 1 2 4
#
# A step is the difference of two runs, of 4 and of 14 steps, so that what happens once does not count. Everything runs
# in a network namespace of its own, whose loopback counts the bytes that all processes send. EXAMPLES says where the
# programs are, ARGUMENTS what else fine_tune_mlm is given.
set -euo pipefail
export CHECKPOINT=$1 TEXT=$2 EXAMPLES=${EXAMPLES:-target/release/examples} ARGUMENTS=${ARGUMENTS:-}
shift 2
export WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

# WORKERS STEPS: seconds and bytes of a run.
run() {
    local workers=() pids=() addresses
    rm -f "$WORK"/worker*
    for ((i = 0; i < $1; i++)); do
        "$EXAMPLES/worker" >"$WORK/worker$i" 2>"$WORK/log$i" &
        pids+=($!)
    done
    for ((i = 0; i < $1; i++)); do
        until grep -qs '^ws://' "$WORK/worker$i"; do sleep 0.05; done
        workers+=("$(sed -n 's/^\(ws:[^ ]*\) .*/\1/p' "$WORK/worker$i")")
    done
    addresses=$(IFS=,; echo "${workers[*]}")
    local bytes=$(cat /sys/class/net/lo/statistics/tx_bytes) start=$(date +%s.%N)
    rm -rf "$WORK/out"
    # shellcheck disable=SC2086
    "$EXAMPLES/fine_tune_mlm" --checkpoint "$CHECKPOINT" --text "$TEXT" --output "$WORK/out" --workers "$addresses" \
        --steps "$2" --eval-every "$2" --held-out 8 $ARGUMENTS >"$WORK/client" 2>&1 || cat "$WORK/client" >&2
    echo "$(date +%s.%N) - $start" | bc
    echo "$(cat /sys/class/net/lo/statistics/tx_bytes) - $bytes" | bc
    kill "${pids[@]}"
    wait "${pids[@]}" 2>/dev/null || true
}

table() {
    ip link set lo up
    mount -t sysfs sysfs /sys # that of this namespace
    echo "workers  seconds/step  MB/step"
    for count in "$@"; do
        mapfile -t few < <(run "$count" 4)
        mapfile -t many < <(run "$count" 14)
        awk -v n="$count" -v s="${few[0]} ${many[0]}" -v b="${few[1]} ${many[1]}" 'BEGIN {
            split(s, t); split(b, c); printf "%7d  %12.2f  %7.1f\n", n, (t[2] - t[1]) / 10, (c[2] - c[1]) / 1e7 }'
    done
}
export -f run table
unshare -rnm bash -c 'table "$@"' table "$@"
