"""
The peer of benches/compare.rs: BertEmbeddings of Hugging Face transformers, on PyTorch.

    python benches/peers/bench_transformers.py THREADS

A case is `workload batch seq`; see peer.py.
"""

from peer import serve, torch
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertEmbeddings


def make(workload, batch, seq):
    """Runs the workload once, on random weights and ids."""
    module = BertEmbeddings(BertConfig())
    batch, seq = int(batch), int(seq)
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


serve(make)
