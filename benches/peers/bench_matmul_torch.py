"""
The peer of burn-fused-matmul's bench `rates`: PyTorch's matmuls, into memory that is there.

    python benches/peers/bench_matmul_torch.py THREADS

A case is `dtype layout m k n` of C [m, n] = A [m, k] · B [k, n]. The layout is `nn`, or `nt` or `tn` if B or A is the transpose
of a matrix row by row; C has the operands' dtype.
"""

from peer import serve, torch


def make(dtype, layout, *sizes):
    """Multiplies once."""
    m, k, n = map(int, sizes)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    rows = lambda *shape: torch.randn(*shape).to(dtype)
    a = rows(k, m).t() if layout == "tn" else rows(m, k)
    b = rows(n, k).t() if layout == "nt" else rows(k, n)
    c = torch.zeros(m, n, dtype=dtype)
    return lambda: torch.mm(a, b, out=c)


serve(make)
