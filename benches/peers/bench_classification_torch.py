"""
The peer of benches/compare_classification.rs: transformers' BertModel with a linear head on its pooler, as in
BertForSequenceClassification, on PyTorch.

    python benches/peers/bench_classification_torch.py THREADS

A case is `kind directory`, see peer.py; the directory holds a checkpoint and `batch.json`, with the batch and the
weights of the head. The kind is

    train   a training step
    fused   as `train`, with AdamW(fused=True)
    bf16    as `fused`, under bf16 autocast
"""

import json
from pathlib import Path

from peer import DEVICE, serve, step, torch
from torch.nn.functional import cross_entropy
from transformers import BertModel


class Classifier(torch.nn.Module):
    def __init__(self, directory, weight, bias):
        super().__init__()
        self.bert = BertModel.from_pretrained(directory, dtype=torch.float32)
        self.dropout = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(len(weight[0]), len(weight))
        self.head.weight.data, self.head.bias.data = torch.tensor(weight), torch.tensor(bias)

    def forward(self, **inputs):
        return self.head(self.dropout(self.bert(**inputs).pooler_output))


def make(kind, directory):
    """Does one step on one batch."""
    batch = json.loads((Path(directory) / "batch.json").read_text())
    model = Classifier(directory, batch["weight"], batch["bias"]).to(DEVICE)
    labels = torch.tensor(batch["labels"])
    inputs = {name: torch.tensor(batch[name]) for name in ("input_ids", "attention_mask")}
    loss = lambda: cross_entropy(model(**inputs), labels)
    return step(model, loss, fused=kind != "train", bf16=kind == "bf16")


serve(make)
