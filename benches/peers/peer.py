"""
What the PyTorch peers of the comparing benches have in common: a program that is
started with a number of threads, prints its versions, and answers lines on stdin.

    time CASE RUNS    the milliseconds of every run
    peak CASE         the most bytes that one run allocates

Driven line by line, so that the contestants take turns and see the same machine.
"""

import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
import transformers  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402


def serve(make):
    """`make(*case)` gives the function that does one run. Cases that differ in their first word alone are kept."""
    torch.set_num_threads(int(sys.argv[1]))
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}", flush=True)
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
            print(peak(runs[case]), flush=True)
        else:
            print(*(milliseconds(runs[case]) for _ in range(times)), flush=True)


def milliseconds(run):
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def peak(run):
    run()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held, least, most = 0, 0, 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        least, most = min(least, held), max(most, held)
    return most - least  # what the last run left, its gradients, goes first
