"""
A store of CubeCL's that `gpu.sh --compile` filled: machine code takes the place of PTX, which the driver would compile anew in each
process, and what was timed on a device that computes nothing is forgotten.

    python benches/gpu_kernels/store.py STORE PTXAS

Needs cbor2.
"""

import sqlite3
import subprocess
import sys
from multiprocessing import Pool
from pathlib import Path
from tempfile import TemporaryDirectory

import cbor2

STORE, PTXAS = sys.argv[1:]
ELF = b"\x7fELF"


def assembled(entry):
    """The key and the value with the kernel's machine code; what is not PTX that can be assembled stays."""
    key, value = entry
    kernel = cbor2.loads(value)
    ptx = bytes(byte & 255 for byte in kernel["ptx"]).rstrip(b"\0")  # of C's signed characters
    if ptx.startswith(ELF):
        return key, value
    with TemporaryDirectory() as folder:
        source, code = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_bytes(ptx)
        run = subprocess.run([PTXAS, "-arch=sm_90a", source, "-o", code], capture_output=True, text=True)
        if run.returncode:
            print(f"{kernel['entrypoint_name']}: {run.stderr[:500]}", file=sys.stderr)
            return key, value
        kernel["ptx"] = [byte - 256 if byte > 127 else byte for byte in code.read_bytes()]
    return key, cbor2.dumps(kernel)


if __name__ == "__main__":
    store = sqlite3.connect(STORE)
    store.execute("DELETE FROM entries WHERE namespace NOT LIKE 'cuda%'")
    kernels = store.execute("SELECT key, value FROM entries WHERE namespace LIKE 'cuda/%'").fetchall()
    with Pool() as pool:
        for key, value in pool.imap_unordered(assembled, kernels):
            store.execute("UPDATE entries SET value = ? WHERE key = ? AND namespace LIKE 'cuda/%'", (value, key))
    store.commit()
    store.execute("VACUUM")
    print(f"{len(kernels)} kernels")
