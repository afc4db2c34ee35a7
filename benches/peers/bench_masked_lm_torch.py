"""
The peer of benches/compare_masked_lm.rs: a whole training step of transformers' masked LMs on PyTorch.

    python benches/peers/bench_masked_lm_torch.py THREADS

A case is `kind directory`, see peer.py; the directory holds a checkpoint and the batch, `batch.json`. The kind is

    every   the model unmodified: scores for every token, also for those that are not masked
    masked  the same modules, the head on the masked tokens alone
    fused   as `masked`, with AdamW(fused=True)
    tf32    as `fused`, with TF32 products
    bf16    as `fused`, under bf16 autocast
"""

import json
from pathlib import Path

from peer import DEVICE, serve, step, torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForMaskedLM


def make(kind, directory):
    """Does one step on one batch."""
    model = AutoModelForMaskedLM.from_pretrained(directory, dtype=torch.float32).to(DEVICE)
    batch = json.loads((Path(directory) / "batch.json").read_text())
    inputs = torch.tensor(batch["input_ids"])
    mask = batch.get("attention_mask")
    mask = mask and torch.tensor(mask)
    labels = torch.tensor(batch["labels"])  # -100 where a token is not masked
    is_masked = labels != -100
    head = model.cls if hasattr(model, "cls") else torch.nn.Sequential(model.head, model.decoder)

    def loss():
        if kind == "every":
            return model(input_ids=inputs, attention_mask=mask, labels=labels).loss
        vectors = model.base_model(input_ids=inputs, attention_mask=mask).last_hidden_state[is_masked]
        return cross_entropy(head(vectors), labels[is_masked])

    fused = kind in ("fused", "tf32", "bf16")
    return step(model, loss, fused=fused, tf32=kind == "tf32", bf16=kind == "bf16")


serve(make)
