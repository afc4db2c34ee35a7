#!/usr/bin/env bash
# A linker for `cuda-cpp`, which compiles kernels with NVRTC: functions of LLVM that CubeCL refers to all the same abort the
# program if they are called. `benches/gpu.sh --build FOLDER cuda-cpp` uses it.
set -euo pipefail
cc "$@" 2>/dev/null && exit
previous=''
for argument in "$@"; do
    [ "$previous" != -o ] || output=$argument
    previous=$argument
done
stubs=$(mktemp -d)
trap 'rm -rf "$stubs"' EXIT
cc "$@" -Wl,--unresolved-symbols=ignore-all
nm -D --undefined-only "$output" | sed -n 's/^ *U \(\(LLVM\|cubecl_\)[A-Za-z0-9_]*\)$/void \1(void) { abort(); }/p' >"$stubs/functions"
{ echo '#include <stdlib.h>' && cat "$stubs/functions"; } | cc -c -x c - -o "$stubs/llvm.o"
cc "$@" "$stubs/llvm.o"
