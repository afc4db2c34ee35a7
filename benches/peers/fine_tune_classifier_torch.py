"""What `fine_tune classifier` does, with PyTorch and transformers: the same data, schedule and optimiser.

    python benches/peers/fine_tune_classifier_torch.py CHECKPOINT TRAIN.tsv VALID.tsv [--epochs 3] [--seeds 1 2 3]

Prints for each seed the validation's accuracy after each epoch and the seconds that the epoch's training took. A real
data set: the 10,604 sentences of movie reviews with mean ratings in `movieReviewSnippets_GroundTruth.txt` of the PyPI
source distribution vaderSentiment 3.3.2 (additional_resources/hutto_ICWSM_2014.tar.gz); positive from 0.5 on,
negative to -0.5.
"""

import argparse
import csv
import random
import time

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

BATCH, RATE, DECAY, LENGTH, BUCKET = 16, 5e-5, 0.01, 128, 50


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [(row["text"], row["label"]) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def batches(order):
    return [order[start:start + BATCH] for start in range(0, len(order), BATCH)]


def shuffled(texts, rng):
    order = list(range(len(texts)))
    rng.shuffle(order)
    found = []
    for start in range(0, len(order), BUCKET * BATCH):
        bucket = sorted(order[start:start + BUCKET * BATCH], key=lambda i: -len(texts[i][0]))
        full = len(bucket) // BATCH * BATCH
        part = batches(bucket[:full])
        rng.shuffle(part)
        found += part + ([bucket[full:]] if full < len(bucket) else [])
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("train")
    parser.add_argument("valid")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args()
    train, valid = rows(args.train), rows(args.valid)
    names = sorted({label for _, label in train})
    tokenizer = AutoTokenizer.from_pretrained(args.checkpoint)

    def encode(part):
        texts = [text for text, _ in part]
        batch = tokenizer(texts, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
        return batch | {"labels": torch.tensor([names.index(label) for _, label in part])}

    for seed in args.seeds:
        set_seed(seed)
        rng = random.Random(seed)
        model = AutoModelForSequenceClassification.from_pretrained(args.checkpoint, num_labels=len(names))
        plain = [p for n, p in model.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
        decayed = [p for n, p in model.named_parameters() if not (n.endswith("bias") or "LayerNorm" in n)]
        groups = [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-8)
        steps = len(batches(train)) * args.epochs
        warmup = steps // 10
        factor = lambda t: (t + 1) / (warmup + 1) if t <= warmup else (steps - t) / (steps - warmup)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        for epoch in range(args.epochs):
            model.train()
            start = time.perf_counter()
            for part in shuffled(train, rng):
                model(**encode([train[i] for i in part])).loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            seconds = time.perf_counter() - start
            model.eval()
            right = 0
            with torch.no_grad():
                for part in batches(list(range(len(valid)))):
                    batch = encode([valid[i] for i in part])
                    right += (model(**batch).logits.argmax(1) == batch["labels"]).sum().item()
            print(f"seed {seed} epoch {epoch + 1}: accuracy {right / len(valid):.4f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
