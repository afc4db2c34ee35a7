"""
The peer of benches/compare_sparse.rs: a whole training step of Hugging Face's BertEmbeddings on PyTorch, BERT-base
sizes, 8 sequences of 128 uniform ids, dropout 0.1.

    python benches/peers/bench_sparse_torch.py THREADS

prints its versions, then answers each line `case vocabulary steps` on stdin with the milliseconds of every step.
Driven line by line, so that the two programs take turns and see the same machine. The cases:

    dense   forward, backward, AdamW over everything
    sparse  the word and position table as nn.Embedding(sparse=True): SparseAdam over those two, AdamW over the rest
"""

import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import BertConfig  # noqa: E402
from transformers.models.bert.modeling_bert import BertEmbeddings  # noqa: E402

BATCH, SEQ, BATCHES, LEARNING_RATE = 8, 128, 16, 1e-4


def training(case, vocabulary):
    """A function that does one step, on the next of some batches."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=vocabulary)
    layer = BertEmbeddings(config).train()
    batches = torch.randint(1, vocabulary, (BATCHES, BATCH, SEQ))
    upstream = torch.randn(BATCH, SEQ, config.hidden_size)
    if case == "sparse":
        layer.word_embeddings.sparse = layer.position_embeddings.sparse = True
        tables = [layer.word_embeddings.weight, layer.position_embeddings.weight]
        rest = [p for p in layer.parameters() if all(p is not table for table in tables)]
        optimizers = [torch.optim.SparseAdam(tables, lr=LEARNING_RATE), torch.optim.AdamW(rest, lr=LEARNING_RATE)]
    else:
        optimizers = [torch.optim.AdamW(layer.parameters(), lr=LEARNING_RATE)]
    done = 0

    def step():
        nonlocal done
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        layer(batches[done % BATCHES]).backward(upstream)
        for optimizer in optimizers:
            optimizer.step()
        done += 1

    return step


def main():
    torch.set_num_threads(int(sys.argv[1]))
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}", flush=True)
    steps = {}
    for line in sys.stdin:
        case, vocabulary, count = line.split()
        key = (case, int(vocabulary))
        if key not in steps:
            steps = {k: v for k, v in steps.items() if k[1] == int(vocabulary)}  # what is done with is freed
            steps[key] = training(*key)
        times = []
        for _ in range(int(count)):
            start = time.perf_counter()
            steps[key]()
            times.append((time.perf_counter() - start) * 1e3)
        print(*times, flush=True)


main()
