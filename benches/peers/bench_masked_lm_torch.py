"""
The peer of benches/compare_masked_lm.rs: a whole training step of transformers' BertForMaskedLM on PyTorch.

    python benches/peers/bench_masked_lm_torch.py THREADS

A case is `head layers heads hidden intermediate batch seq`; see peer.py. The head is

    every   the model as it comes: scores for every token, also for those that are not hidden
    hidden  the same modules, the head on the hidden tokens alone
"""

from peer import serve, torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM

LEARNING_RATE, MAX_GRAD_NORM, DECAY = 1e-4, 1.0, 0.01


def make(head, *sizes):
    """Does one step on one batch, 15 % of whose tokens are hidden."""
    layers, heads, hidden, intermediate, batch, seq = map(int, sizes)
    config = BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=intermediate
    )
    model = BertForMaskedLM(config).train()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    spared = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": spared, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE)
    ids = torch.randint(1, config.vocab_size, (batch, seq))
    is_hidden = torch.rand(batch, seq) < 0.15
    labels = torch.where(is_hidden, ids, -100)
    inputs = torch.where(is_hidden, 103, ids)

    def loss():
        if head == "every":
            return model(input_ids=inputs, labels=labels).loss
        vectors = model.bert(input_ids=inputs).last_hidden_state[is_hidden]
        return cross_entropy(model.cls(vectors), ids[is_hidden])

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()

    return step


serve(make)
