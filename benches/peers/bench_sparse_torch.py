"""
The peer of benches/compare_sparse.rs: a whole training step of Hugging Face's BertEmbeddings on PyTorch, BERT-base
sizes, 8 sequences of 128 uniform ids, dropout 0.1.

    python benches/peers/bench_sparse_torch.py THREADS

A case is `dense vocabulary` or `sparse vocabulary`; see peer.py.

    dense   forward, backward, AdamW over everything
    sparse  the word and position table as nn.Embedding(sparse=True): SparseAdam over those two, AdamW over the rest
"""

from peer import serve, torch
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertEmbeddings

BATCH, SEQ, BATCHES, LEARNING_RATE = 8, 128, 16, 1e-4


def make(case, vocabulary):
    """Does one step, on the next of some batches."""
    config = BertConfig(vocab_size=int(vocabulary))
    layer = BertEmbeddings(config).train()
    batches = torch.randint(1, config.vocab_size, (BATCHES, BATCH, SEQ))
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


serve(make)
