"""
The peer of benches/compare_classification.rs: transformers' BertModel with a linear head on its pooler, as in
BertForSequenceClassification, on PyTorch.

    python benches/peers/bench_classification_torch.py THREADS

A case is `kind directory`, see peer.py; the directory holds a checkpoint and `batch.json`, with the batch and the
weights of the head. The kind is

    train   a training step
    fused   as `train`, with AdamW(fused=True)
    bf16    as `fused`, under bf16 autocast
    infer   the vectors of all tokens, without gradients
    full    as `infer`, with as many tokens but no padding

and `infer_bf16` and `full_bf16` the same with a model whose weights are bf16.
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
    if kind.endswith("_bf16"):
        kind, model = kind.removesuffix("_bf16"), model.to(torch.bfloat16)
    if kind == "full":
        inputs = {"input_ids": torch.tensor(batch["full"])}
    else:
        inputs = {name: torch.tensor(batch[name]) for name in ("input_ids", "attention_mask")}
    if kind not in ("infer", "full"):
        loss = lambda: cross_entropy(model(**inputs), labels)
        return step(model, loss, fused=kind in ("fused", "bf16"), bf16=kind == "bf16")

    def run():
        with torch.inference_mode():
            model.bert(**inputs)

    model.eval()
    return run


serve(make)
