"""
What the PyTorch peers of the comparing benches have in common: a program that is
started with a number of threads, prints its versions, and answers lines on stdin.

    time CASE RUNS    the milliseconds of every run
    peak CASE         the most bytes that one run allocates on the device
    loss CASE         what `loss()` of the case gives, without dropout
    latest CASE       what `latest()` of the case gives: how long a request took, of nearly all

Driven line by line, so that the contestants are interleaved under the same conditions. BURN_BERT_TORCH_DEVICE names
PyTorch's device; unset, it is the CPU.
"""

import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
import transformers  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

transformers.logging.set_verbosity_error()
DEVICE = torch.device(os.environ.get("BURN_BERT_TORCH_DEVICE", "cpu"))


def serve(make):
    """
    `make(*case)` gives the function that does one run, with an attribute `loss` if its loss can be asked for and an
    attribute `prepare` if something has to be done before each run that is not timed. Cases that differ in their
    first word alone are kept.
    """
    torch.set_num_threads(int(sys.argv[1]))
    torch.set_default_device(DEVICE)
    name = torch.cuda.get_device_name(DEVICE) if DEVICE.type == "cuda" else DEVICE.type
    print(f"PyTorch {torch.__version__} on {name}, transformers {transformers.__version__}", flush=True)
    runs = {}
    for line in sys.stdin:
        question, *case = line.split()
        times = int(case.pop()) if question == "time" else 0
        case = tuple(case)
        if case not in runs:
            runs = {other: run for other, run in runs.items() if other[1:] == case[1:]}  # the rest's memory is freed
            torch.manual_seed(0)
            runs[case] = make(*case)
        if question == "peak":
            runs = {case: runs[case]}  # several models and a profiler of a long step are more than 24 GiB
            print(peak(runs[case]), flush=True)
        elif question in ("loss", "latest"):
            print(getattr(runs[case], question)(), flush=True)
        else:
            print(*(milliseconds(runs[case]) for _ in range(times)), flush=True)


def wait():
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def milliseconds(run):
    getattr(run, "prepare", lambda: None)()
    wait()
    start = time.perf_counter()
    run()
    wait()
    return (time.perf_counter() - start) * 1e3


def peak(run):
    run()
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held, least, most = 0, 0, 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        least, most = min(least, held), max(most, held)
    return most - least  # what the last run left, its gradients, goes first


def optimizer(model, fused):
    """AdamW as BERT is trained with it: no decay on biases and LayerNorm."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    spared = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": spared, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, fused=fused)


def step(model, loss, fused=False, tf32=False, bf16=False):
    """A training step on `loss()`, clipped to a norm of 1, with the loss for the asking."""
    adamw = optimizer(model, fused)
    model.train()

    def run():
        torch.backends.cuda.matmul.allow_tf32 = tf32
        adamw.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=bf16):
            value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()

    def without_dropout():
        model.eval()
        with torch.no_grad(), torch.autocast(DEVICE.type, torch.bfloat16, enabled=bf16):
            value = loss().item()
        model.train()
        return value

    run.loss = without_dropout
    return run
