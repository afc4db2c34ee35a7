#!/usr/bin/env bash
# What this crate does on a GPU, from a folder of prebuilt programs: the machine needs a driver, but neither a network
# nor Rust nor this repository.
#
#     benches/gpu.sh --build FOLDER [DEVICE]    on a machine with Rust; DEVICE is wgpu (default), vulkan, cuda,
#                                             cuda-cpp or rocm
#     FOLDER/gpu.sh [--quick] [--part NAME]... [OUTPUT]    on the machine with the GPU
#
# A run has seven parts: the first steps of training, without CubeCL's caches and with them (first), the behaviour suite
# (suite), kernel launches and bytes (launches), the input layer's times (operator), the rates of matmuls and copies (rates),
# what kernels take in a training step (profile) and the times of whole ones (steps). --part runs one of them alone. A part is ended after BURN_BERT_PART_SECONDS, 570 unless
# set. A run ends with a table of the parts, and with exit status 1 if one of them failed. Everything that is printed is
# kept in OUTPUT (default: burn-bert-gpu in the current folder), from one run to the next, and so are CubeCL's caches.
# --quick takes small sizes, to see that everything runs, on a software adapter for one.
#
# Vulkan's loader travels with the folder, for a machine that has none; a driver is looked for where containers hide it.
#
# In the folder programs are compressed; a run unpacks them into OUTPUT for as long as it takes.
#
# PyTorch takes part if BURN_BERT_PYTHON, or else python3, has torch and transformers; on its GPU if it finds one.
set -euo pipefail
PATH=$PATH:/sbin:/usr/sbin # ldconfig's
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Megabytes that the folder may have.
limit=60

build() {
    local folder=$1 device=${2:-wgpu} features
    case $device in
    wgpu | vulkan | cuda | rocm | cuda-cpp) features=flex,$device ;;
    *) echo "gpu.sh: no device '$device'; there are wgpu, vulkan, cuda, cuda-cpp and rocm" >&2 && exit 2 ;;
    esac
    if [ "$device" = cuda-cpp ]; then # without the download of LLVM
        export DOCS_RS=1 CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER="$here/link_without_llvm.sh"
    fi
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    cd "$here/.."
    local cargo=(--profile gpu --no-default-features --features "$features")
    # Other arguments, to use what a build for development has compiled already. Its programs are larger.
    [ -z "${BURN_BERT_CARGO:-}" ] || read -ra cargo <<<"$BURN_BERT_CARGO"
    local messages
    messages=$(cargo test --no-run "${cargo[@]}" --test backend --bench gpu --message-format json)
    local name program
    for name in backend gpu; do
        program=$(sed -n "s/.*\"name\":\"$name\".*\"executable\":\"\([^\"]*\)\".*/\1/p" <<<"$messages")
        strip -o "$folder/$name" "$program"
        gzip -9f "$folder/$name"
    done
    rm -rf "$folder/tests" "$folder/benches"
    mkdir -p "$folder/tests/fixtures" "$folder/benches/peers"
    cp -r tests/fixtures/{embeddings,masked_lm,classifiers,sentences} "$folder/tests/fixtures"
    cp benches/peers/{peer,bench_transformers,bench_masked_lm_torch}.py "$folder/benches/peers"
    cp benches/gpu.sh "$folder"
    local loader
    loader=$(ldconfig -p | sed -n 's/.*libvulkan\.so\.1 .*x86-64.* => //p' | head -n 1)
    [ -z "$loader" ] || cp -L "$loader" "$folder/libvulkan.so.1"
    { echo "${device%-cpp}" && git describe --always --dirty 2>/dev/null || echo unknown; } >"$folder/version"
    local size
    size=$(du -sm --apparent-size "$folder" | cut -f1)
    echo "$folder: $size MB for $device"
    if [ "$size" -gt $limit ] && [ -z "${BURN_BERT_CARGO:-}" ]; then
        echo "gpu.sh: more than $limit MB" >&2
        exit 1
    fi
}

run() {
    local size=() parts=() output=burn-bert-gpu
    while [[ ${1:-} == --* ]]; do
        case $1 in
        --quick) size=(quick) ;;
        --part) parts+=("${2:?--part needs a name}") && shift ;;
        *) echo "gpu.sh: no option '$1'" >&2 && exit 2 ;;
        esac
        shift
    done
    [ ${#parts[@]} -gt 0 ] || parts=(first suite launches operator rates profile steps)
    mkdir -p "${1:-$output}"
    output=$(cd "${1:-$output}" && pwd)
    local device commit
    { read -r device && read -r commit; } <"$here/version"
    export BURN_DEVICE=$device BURN_BERT_ROOT=$here
    find_python
    find_vulkan
    local name summary=$output/summary.md failed=0
    for name in backend gpu; do
        gzip -dc "$here/$name.gz" >"$output/$name"
        chmod +x "$output/$name"
    done
    printf '| part | result | seconds |\n|---|---|---|\n' >"$summary"
    echo "burn-bert $commit on $device"
    cd "$output"
    printf '[environment]\npath = "local"\n\n[compilation]\ncache = true\n' >cubecl.toml
    for name in "${parts[@]}"; do
        case $name in
        suite) part suite ./backend "$device::" ;;
        first) part first first "${size[@]}" ;;
        launches | operator | rates | profile | steps) part "$name" ./gpu "$name" "${size[@]}" ;;
        *) echo "gpu.sh: no part '$name'; there are first, suite, launches, operator, rates, profile and steps" >&2 && exit 2 ;;
        esac
    done
    rm backend gpu
    for name in "${parts[@]}"; do
        [ "$name" = suite ] || { printf '\n' && cat "$output/$name.txt"; }
    done
    printf '\n' && cat "$summary"
    return $failed
}

# Sets BURN_BERT_PYTHON if there is a Python that can take part, and PyTorch's device.
find_python() {
    local interpreter=${BURN_BERT_PYTHON:-python3} found
    unset BURN_BERT_PYTHON
    if found=$("$interpreter" -c '
import torch, transformers
print("cuda" if torch.cuda.is_available() else "cpu")' 2>/dev/null); then
        export BURN_BERT_PYTHON=$interpreter BURN_BERT_TORCH_DEVICE=${BURN_BERT_TORCH_DEVICE:-$found}
    else
        echo "$interpreter has no torch and transformers: PyTorch's columns stay empty"
    fi
}

# Lets programs find Vulkan's loader in the folder and the driver's description, where the system has neither.
find_vulkan() {
    if [ -e "$here/libvulkan.so.1" ] && ! ldconfig -p | grep -q 'libvulkan\.so\.1'; then
        export LD_LIBRARY_PATH=$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
    compgen -G '/usr/share/vulkan/icd.d/*.json' >/dev/null || compgen -G '/etc/vulkan/icd.d/*.json' >/dev/null && return
    local driver
    driver=$(find /usr/local /opt -name '*_icd*.json' -path '*vulkan*' 2>/dev/null | head -n 1)
    [ -z "$driver" ] || export VK_DRIVER_FILES=${VK_DRIVER_FILES:-$driver}
}

# The first steps without CubeCL's caches, and with those that they left.
first() {
    local caches
    rm -f first.db*
    for caches in without with; do
        printf "\n%s CubeCL's caches\n\n" "$caches"
        CUBECL_ENVIRONMENT=first ./gpu first "$@"
    done
}
export -f first

# NAME COMMAND...: runs a part, adds a line to the summary.
part() {
    local name=$1 start=$SECONDS result
    shift
    printf '\n== %s\n' "$name"
    if timeout "${BURN_BERT_PART_SECONDS:-570}" bash -euc '"$@"' - "$@" >"$output/$name.txt" 2>"$output/$name.log"; then
        result=ok
    else
        result="**failed** (exit status $?), see $output/$name.log"
        failed=1
        tail -n 30 "$output/$name.txt" "$output/$name.log"
    fi
    if [ "$name" = suite ]; then
        result="$result: $(sed -n 's/^test result: [^.]*\. \(.* failed\).*/\1/p' "$output/$name.txt")"
    fi
    echo "$result, $((SECONDS - start)) s"
    echo "| $name | $result | $((SECONDS - start)) |" >>"$summary"
}

if [ "${1:-}" = --build ]; then
    [ $# -ge 2 ] || { echo "usage: benches/gpu.sh --build FOLDER [DEVICE]" >&2 && exit 2; }
    build "${@:2}"
elif [ -e "$here/backend.gz" ] && [ -e "$here/gpu.gz" ]; then
    run "$@"
else
    echo "gpu.sh: there are no programs beside it; first: benches/gpu.sh --build FOLDER [DEVICE]" >&2
    exit 2
fi
