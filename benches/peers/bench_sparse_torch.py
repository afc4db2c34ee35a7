"""
PyTorch's side of `benches/sparse_step.rs`: a whole training step of BERT's input layer, BERT-base sizes, 8 sequences
of 128 uniform ids, dropout 0.1.

    python benches/peers/bench_sparse_torch.py [--threads 2] [--steps 30] [--vocabularies 30522 119547 250002]

dense   transformers' BertEmbeddings, forward, backward, AdamW over everything
sparse  the same with nn.Embedding(sparse=True) for the word and position table, SparseAdam over those two and
        AdamW over the rest

Prints one line a case: `<case> <vocabulary> <median seconds>`.
"""

import argparse
import statistics
import time

import torch
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertEmbeddings

BATCH, SEQ, BATCHES, LEARNING_RATE = 8, 128, 16, 1e-4


def training(vocabulary, sparse):
    """A function that does one step."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=vocabulary)
    layer = BertEmbeddings(config).train()
    batches = torch.randint(1, vocabulary, (BATCHES, BATCH, SEQ))
    upstream = torch.randn(BATCH, SEQ, config.hidden_size)
    if sparse:
        layer.word_embeddings.sparse = layer.position_embeddings.sparse = True
        tables = [layer.word_embeddings.weight, layer.position_embeddings.weight]
        rest = [p for p in layer.parameters() if all(p is not table for table in tables)]
        optimizers = [torch.optim.SparseAdam(tables, lr=LEARNING_RATE), torch.optim.AdamW(rest, lr=LEARNING_RATE)]
    else:
        optimizers = [torch.optim.AdamW(layer.parameters(), lr=LEARNING_RATE)]

    def step(i):
        for optimizer in optimizers:
            optimizer.zero_grad()
        (layer(batches[i % BATCHES]) * upstream).sum().backward()
        for optimizer in optimizers:
            optimizer.step()

    return step


def median_seconds(vocabulary, sparse, steps):
    step = training(vocabulary, sparse)
    for i in range(BATCHES if sparse else 2):
        step(i)
    seconds = []
    for i in range(steps):
        start = time.perf_counter()
        step(i)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[30522, 119547, 250002])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for vocabulary in arguments.vocabularies:
        for name, sparse in ("dense", False), ("sparse", True):
            steps = arguments.steps if sparse else max(5, arguments.steps * 30522 // vocabulary)
            print(name, vocabulary, median_seconds(vocabulary, sparse, steps), flush=True)


if __name__ == "__main__":
    main()
