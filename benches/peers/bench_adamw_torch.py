"""
The peer of benches/compare_adamw.rs: AdamW over all parameters of a BERT, whose gradients are there.

    python benches/peers/bench_adamw_torch.py THREADS

A case is `kind layers heads hidden intermediate`, see peer.py. The kind is

    default          AdamW unmodified
    fused            AdamW(fused=True)
    clipped          clip_grad_norm_, then AdamW unmodified
    clipped_fused    clip_grad_norm_, then AdamW(fused=True)
"""

from peer import optimizer, serve, torch
from transformers import BertConfig, BertForMaskedLM


def make(kind, *sizes):
    """Does one update."""
    layers, heads, hidden, intermediate = map(int, sizes)
    config = BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=intermediate
    )
    model = BertForMaskedLM(config)
    rows = [torch.randn(parameter.shape[-1]) * 1e-3 for parameter in model.parameters()]
    adamw = optimizer(model, "fused" in kind)

    def run():
        if "clipped" in kind:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()

    def backward():
        """Gradients in new memory, as a backward leaves them: one row drawn and repeated."""
        for parameter, row in zip(model.parameters(), rows):
            parameter.grad = row.repeat(*parameter.shape[:-1], 1).reshape(parameter.shape)

    run.prepare = backward
    return run


serve(make)
