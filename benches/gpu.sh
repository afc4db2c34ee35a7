#!/usr/bin/env bash
# What this crate does on a GPU, from a folder of prebuilt programs: the machine needs a driver, but neither a network
# nor Rust nor this repository.
#
#     benches/gpu.sh --build FOLDER [DEVICE]    on a machine with Rust; DEVICE is wgpu (default), vulkan, cuda,
#                                             cuda-cpp or rocm
#     benches/gpu.sh --compile FOLDER CASE...     there, for an H200 and `cuda-cpp`: kernels of cases, before there is a GPU
#     FOLDER/gpu.sh [--quick] [--part NAME]... [OUTPUT]    on the machine with the GPU
#     benches/gpu.sh --write OUTPUT             on a checkout: what was measured, into benches/RESULTS.md
#
# A run goes through cases, the most wanted first: the behaviour suite (suite), kernel launches and bytes of a training step
# in each precision (launches), the rates of copies and matmuls (rates), steps beside PyTorch's (steps), attention alone
# (attention), what kernels take in a step (profile), the embedding layer (operator, embeddings), and first steps without
# CubeCL's caches and with them (first). --part takes the cases of a part alone. A run ends after BURN_BERT_SECONDS, 540 unless
# set, and a case after BURN_BERT_CASE_SECONDS, 180 unless set. Everything that is printed is kept in OUTPUT (default:
# burn-bert-gpu in the current folder), and so are CubeCL's caches: the next run goes on behind the last case that was finished.
# At the end tables are printed. The exit status is 1 if a case failed, and 3 if some are left for another run.
# --quick takes small sizes, to see that everything runs, on a software adapter for one.
#
# Vulkan's loader travels with the folder, for a machine that has none; a driver is looked for where containers hide it.
#
# Most of a first run on an H200 is compiling kernels: Burn tries up to twenty for each size of matmul. --compile does it before, with a
# driver that computes nothing, for cases such as 'profile BERT-base, 32 × 128'. CUDA_PATH names a CUDA toolkit with NVRTC, headers and
# ptxas; pip has one, too. BURN_BERT_PYTHON, or else python3, needs cbor2.
#
# In the folder programs are compressed; a run unpacks them into OUTPUT for as long as it takes.
#
# PyTorch takes part if BURN_BERT_PYTHON, or else python3, has torch and transformers; on its GPU if it finds one.
set -euo pipefail
PATH=$PATH:/sbin:/usr/sbin # ldconfig's
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Megabytes that the folder may have.
limit=60

# The most that a case takes.
case_seconds=${BURN_BERT_CASE_SECONDS:-180}

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
    rm -rf "$folder"/{tests,benches,programs.xz,kernels.xz}
    for name in backend gpu; do
        program=$(sed -n "s/.*\"name\":\"$name\".*\"executable\":\"\([^\"]*\)\".*/\1/p" <<<"$messages")
        strip -o "$folder/$name" "$program"
    done
    # Burn is in both, which a window of both finds.
    tar c -C "$folder" backend gpu | xz -T1 --lzma2=preset=6,dict=256MiB >"$folder/programs.xz"
    rm "$folder"/{backend,gpu}
    mkdir -p "$folder/tests/fixtures" "$folder/benches/peers"
    cp -r tests/fixtures/{embeddings,masked_lm,relative_positions,families,classifiers,sentences} "$folder/tests/fixtures"
    cp benches/peers/{peer,bench_transformers,bench_masked_lm_torch}.py "$folder/benches/peers"
    cp benches/gpu.sh "$folder"
    local loader
    loader=$(ldconfig -p | sed -n 's/.*libvulkan\.so\.1 .*x86-64.* => //p' | head -n 1)
    [ -z "$loader" ] || cp -L "$loader" "$folder/libvulkan.so.1"
    { echo "${device%-cpp}" && git describe --always --dirty 2>/dev/null || echo unknown; } >"$folder/version"
    check_size "$folder"
}

check_size() {
    local size
    size=$(du -sm --apparent-size "$1" | cut -f1)
    echo "$1: $size MB"
    if [ "$size" -gt $limit ] && [ -z "${BURN_BERT_CARGO:-}" ]; then
        echo "gpu.sh: more than $limit MB" >&2
        exit 1
    fi
}

# FOLDER CASE...
compile() {
    local folder work python=${BURN_BERT_PYTHON:-python3} nvrtc needed case failed=0
    folder=$(cd "$1" && pwd)
    [ "$(head -n 1 "$folder/version")" = cuda ] || { echo "gpu.sh: $folder is not for cuda-cpp" >&2 && exit 2; }
    nvrtc=("${CUDA_PATH:?names a CUDA toolkit}"/lib*/libnvrtc.so.*)
    # Where a header is missing, a kernel that includes it would be left out by the tuner without a word.
    for needed in "${nvrtc[0]}" "$CUDA_PATH"/include/{cuda_bf16.h,mma.h,crt/mma.h} "$CUDA_PATH/bin/ptxas"; do
        [ -e "$needed" ] || { echo "gpu.sh: no file $needed" >&2 && exit 2; }
    done
    "$python" -c 'import cbor2' || exit 2
    work=$(mktemp -d)
    cc -O2 -shared -fPIC -o "$work/libcuda.so" "$here/gpu_kernels/driver.c"
    ln -s "${nvrtc[0]}" "$work/libnvrtc.so"
    cd "$work"
    unpack "$folder"
    # Otherwise tuning ends at the first candidate.
    printf '[autotune]\ndisable_short_circuit = true\n' >>cubecl.toml
    for case in "${@:2}"; do
        LD_LIBRARY_PATH=$work:$CUDA_PATH/lib:$CUDA_PATH/lib64 BURN_DEVICE=cuda BURN_BERT_ROOT=$folder \
            ./gpu "${case%% *}" "${case#* }" >case.log 2>&1 || { failed=1 && echo "$case failed:" && tail -n 20 case.log; }
        [[ $case != launches* ]] || cat case.log # counts need no GPU
    done
    "$python" "$here/gpu_kernels/store.py" default.db "$CUDA_PATH/bin/ptxas"
    xz -c -3 default.db >"$folder/kernels.xz"
    rm -r "$work"
    check_size "$folder"
    return $failed
}

# FOLDER: its programs, and its kernels, into the current folder, where CubeCL keeps more.
unpack() {
    xz -dc "$1/programs.xz" | tar x
    [ -e default.db ] || [ ! -e "$1/kernels.xz" ] || xz -dc "$1/kernels.xz" >default.db
    printf '[environment]\npath = "local"\n\n[compilation]\ncache = true\n\n' >cubecl.toml
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
    mkdir -p "${1:-$output}"
    output=$(cd "${1:-$output}" && pwd)
    local device commit
    { read -r device && read -r commit; } <"$here/version"
    export BURN_DEVICE=$device BURN_BERT_ROOT=$here
    find_python
    find_vulkan
    cd "$output"
    # Another build, or other sizes, begin anew.
    local version="burn-bert $commit on $device${size:+, quick}"
    if [ "$(cat version 2>/dev/null)" != "$version" ]; then
        rm -f {suite,launches,rates,steps,attention,profile,operator,embeddings,first}.txt failed.log finished
        echo "$version" >version
    fi
    echo "$version"
    unpack "$here"
    touch finished
    local name plan known
    plan=$(tests "$device" | sed 's/^/suite /' && ./gpu plan "${size[@]}" && echo "first steps")
    known=$(cut -d ' ' -f 1 <<<"$plan" | sort -u | tr '\n' ' ')
    for name in "${parts[@]}"; do
        [[ " $known" == *" $name "* ]] || { echo "gpu.sh: no part '$name'; there are $known" >&2 && exit 2; }
    done
    local part case left limit tried=
    while read -r part case; do
        [ ${#parts[@]} -eq 0 ] || [[ " ${parts[*]} " == *" $part "* ]] || continue
        ! is_finished "$part $case" || continue
        left=$((${BURN_BERT_SECONDS:-540} - SECONDS))
        [ "$left" -gt 0 ] || break
        limit=$((case_seconds < left ? case_seconds : left))
        if [ "$part" != suite ]; then
            measure "$limit" "$part" "$case"
        elif [ -z "$tried" ]; then # all of them at once, of which some may be left
            suite "$limit" "$device"
            tried=yes
        fi
    done <<<"$plan"
    rm backend gpu
    left=0
    while read -r part case; do
        [ ${#parts[@]} -eq 0 ] || [[ " ${parts[*]} " == *" $part "* ]] || continue
        is_finished "$part $case" || left=$((left + 1))
    done <<<"$plan"
    tables "$output"
    [ ! -e profile.txt ] || { printf '\n### Profiles\n\n' && cat profile.txt; }
    [ "$left" -eq 0 ] || { printf '\n%s cases are left: run it again\n' "$left" && exit 3; }
    ! grep -q '^failed' finished
}

# The tests of a device, one a line.
tests() { ./backend --list --format terse "$1::" 2>/dev/null | sed -n 's/: test$//p'; }

# `finished` has lines of a result, seconds, a part and a case.
is_finished() { cut -d ' ' -f 3- finished | grep -qxF "$1"; }

# RESULT SECONDS PART CASE
finish() { echo "$@" | tee -a finished; }

# SECONDS DEVICE: all tests that are left, in one program. Those that ran count also if there was no time for the others.
suite() {
    local name left=() status=0 some=
    while read -r name; do is_finished "suite $name" || left+=("$name"); done < <(tests "$2")
    # What a failure says comes at once, and so also where there is no time for the others.
    timeout "$1" ./backend --nocapture --exact "${left[@]}" >suite.log 2>&1 </dev/null || status=$?
    for name in "${left[@]}"; do
        case $(grep -F "test $name ... " suite.log) in
        *ok) some=yes && finish ok 0 suite "$name" ;;
        *FAILED) some=yes && finish failed 0 suite "$name" ;;
        esac
    done
    # What it said is overwritten by the tests of another run.
    cat suite.log >>suite.txt
    # After a crash, or where none ends in time, the next run would meet it again.
    if [ $status -ne 124 ] || { [ -z "$some" ] && [ "$1" -eq "$case_seconds" ]; }; then
        for name in "${left[@]}"; do is_finished "suite $name" || finish failed 0 suite "$name"; done
    fi
}

# SECONDS PART CASE: what it prints is added to the part's output once it is finished.
measure() {
    local began=$SECONDS result=ok status=0
    timeout "$1" bash -euc '"$@"' - run_case "${@:2}" "${size[@]}" >case.txt 2>case.log </dev/null || status=$?
    if [ $status -ne 0 ]; then
        # Cut by the end of the run, and not by its own limit; or for the first time, which left kernels in CubeCL's caches.
        [ $status -ne 124 ] || [ "$1" -eq "$case_seconds" ] || return 0
        grep -qxF "$2 $3: exit status 124" failed.log 2>/dev/null || [ $status -ne 124 ] || result=late
        { echo "$2 $3: exit status $status" && cat case.txt case.log; } | tee -a failed.log | tail -n 30
        [ $result = late ] && return 0
        result=failed
    fi
    [ $status -ne 0 ] || cat case.txt >>"$2.txt"
    finish $result $((SECONDS - began)) "$2" "$3"
}

# PART CASE [quick]
run_case() {
    if [ "$1" != first ]; then
        ./gpu "$@"
        return
    fi
    local caches
    rm -f first.db*
    for caches in without with; do
        printf "%s CubeCL's caches: " "$caches"
        CUBECL_ENVIRONMENT=first ./gpu first "${@:3}"
    done
}
export -f run_case

# FOLDER: what was measured, as a part of benches/RESULTS.md.
tables() {
    local part title
    cat "$1/version"
    printf '\n%s tests of the behaviour suite passed; failed: ' "$(grep -c '^ok [0-9]* suite ' "$1/finished")"
    sed -n 's/^failed [0-9]* suite //p' "$1/finished" | paste -sd ' ' | sed 's/^$/none/'
    for title in launches:Launches rates:Rates steps:Steps attention:Attention operator:'The embedding layer' \
        embeddings:'Launches of the embedding layer' first:'First steps'; do
        part=$1/${title%%:*}.txt
        [ -e "$part" ] || continue
        printf '\n### %s\n\n' "${title#*:}"
        # Each case has printed the heading of its table again.
        grep -v '^[|-]' "$part" | awk 'NF && !seen[$0]++' || true
        echo
        grep '^|' "$part" | awk '!seen[$0]++' || true
        echo
        grep '^- ' "$part" || true
    done
}

# FOLDER: puts its tables between the marks in benches/RESULTS.md.
write() {
    local page=$here/RESULTS.md
    [ -e "$1/finished" ] || { echo "gpu.sh: nothing was measured in '$1'" >&2 && exit 2; }
    section=$(tables "$1") awk '
        /^<!-- gpu -->$/ { print; print ""; print ENVIRON["section"]; print ""; skip = 1 }
        /^<!-- end gpu -->$/ { skip = 0 }
        !skip' "$page" >"$page.new"
    mv "$page.new" "$page"
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

if [ "${1:-}" = --build ]; then
    [ $# -ge 2 ] || { echo "usage: benches/gpu.sh --build FOLDER [DEVICE]" >&2 && exit 2; }
    build "${@:2}"
elif [ "${1:-}" = --write ]; then
    write "${2:?usage: benches/gpu.sh --write OUTPUT}"
elif [ "${1:-}" = --compile ]; then
    [ $# -ge 3 ] || { echo "usage: benches/gpu.sh --compile FOLDER CASE..." >&2 && exit 2; }
    compile "${@:2}"
elif [ -e "$here/programs.xz" ]; then
    run "$@"
else
    echo "gpu.sh: there are no programs beside it; first: benches/gpu.sh --build FOLDER [DEVICE]" >&2
    exit 2
fi
