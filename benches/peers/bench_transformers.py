"""
The peer of benches/compare.rs: BertEmbeddings of Hugging Face transformers, on PyTorch.

    python benches/peers/bench_transformers.py THREADS

prints its versions, then answers each line `workload batch seq runs` on stdin with
the milliseconds of every run. Driven line by line, so that the two programs take
turns and see the same machine.
"""

import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import BertConfig  # noqa: E402
from transformers.models.bert.modeling_bert import BertEmbeddings  # noqa: E402


def bench(workload, batch, seq):
    """A function that runs the workload once, on random weights and ids."""
    torch.manual_seed(0)
    module = BertEmbeddings(BertConfig())
    ids = (torch.arange(batch * seq) * 7919 % 30521 + 1).view(batch, seq)
    if workload == "forward":
        module.eval()

        def run():
            with torch.inference_mode():
                module(ids)

        return run

    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)

    def run():
        y = module(ids)
        if workload == "train":
            return
        optimizer.zero_grad(set_to_none=True)
        y.backward(torch.ones_like(y))
        if workload == "step":
            optimizer.step()

    return run


def main():
    torch.set_num_threads(int(sys.argv[1]))
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}", flush=True)
    benches = {}
    for line in sys.stdin:
        workload, batch, seq, runs = line.split()
        case = (workload, int(batch), int(seq))
        if case not in benches:
            benches = {case: bench(*case)}  # one at a time: nobody else's memory is held
        times = []
        for _ in range(int(runs)):
            start = time.perf_counter()
            benches[case]()
            times.append((time.perf_counter() - start) * 1e3)
        print(*times, flush=True)


main()
