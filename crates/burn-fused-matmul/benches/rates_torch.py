"""
PyTorch's rates of the matmuls of benches/rates.rs, in GFLOP/s: the fastest of many runs, f32 and bf16.

    python benches/rates_torch.py [THREADS] [PART OF A NAME]

In bf16 operands and results are bf16: oneDNN rounds none.
"""

import sys
import time

import torch

TOKENS, MASKED, VOCABULARY = 1024, 150, 30522
SECONDS = 0.3


def shapes():
    """Name, and M, K, N of the forward."""
    for model, hidden in ("MiniLM", 384), ("BERT-base", 768):
        yield f"{model} attention", (TOKENS, hidden, hidden)
        yield f"{model} up", (TOKENS, hidden, 4 * hidden)
        yield f"{model} down", (TOKENS, 4 * hidden, hidden)
        yield f"{model} vocabulary", (MASKED, hidden, VOCABULARY)
    for size in 32, 64:
        yield f"attention head of {size}", (128, size, 128)


def rate(a, b):
    m, k, n = *a.shape, b.shape[1]
    # As a training step reuses its memory.
    out = torch.empty(m, n, dtype=a.dtype)
    best, start, runs = float("inf"), time.perf_counter(), 0
    while runs < 4 or time.perf_counter() - start < SECONDS:
        before = time.perf_counter()
        torch.mm(a, b, out=out)
        best = min(best, time.perf_counter() - before)
        runs += 1
    return 2e-9 * m * n * k / best


threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
part = sys.argv[2] if len(sys.argv) > 2 else ""
torch.set_num_threads(threads)
torch.manual_seed(1)
print(f"PyTorch {torch.__version__}, {threads} threads\n{'':36}{'f32':>8}{'bf16':>8}")
for name, (m, k, n) in shapes():
    x, w, dy = torch.rand(m, k), torch.rand(k, n), torch.rand(m, n)
    # The head of masked language modelling multiplies by the transposed word embeddings.
    w = torch.rand(n, k).T if m == MASKED else w
    for label, a, b in ("forward", x, w), ("input gradient", dy, w.T), ("weight gradient", x.T, dy):
        title = f"{name}, {label}"
        if part in title:
            rates = [rate(a.to(dtype), b.to(dtype)) for dtype in (torch.float32, torch.bfloat16)]
            print(f"{title:36}" + "".join(f"{rate:8.0f}" for rate in rates), flush=True)
