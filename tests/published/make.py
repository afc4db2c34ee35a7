"""
The layouts of published checkpoints, made tiny, and what Python computes with them.

    python tests/published/make.py [PART OF A NAME …]

needs transformers, sentence-transformers, sentencepiece and protobuf, and takes a minute on a CPU. It writes
tests/published/checkpoints.json (with names, of it the checkpoints of these names), which tests/suite/published.rs reads: for each repository of LIST (entries.py) its
files as they are published, but with small sizes; which keys its weights have; and ids and values of three texts.

To add a checkpoint, describe its files in entries.py, run this script with its name, and then the test with
BURN_BERT_WRITE=1, which writes docs/models.md.

No weights are stored. Each value follows from the key and the place in the tensor, by `values`, in Python and in Rust.
Tokenizers are those of tests/fixtures/tokenizer_classes, and the few in tests/published/tokenizers.
"""

import json
import logging
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file
from sentence_transformers import CrossEncoder, SentenceTransformer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from entries import LIST  # noqa: E402

logging.disable(logging.WARNING)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.manual_seed(0)

TEXTS = [
    "The quick fox isn't at the OLD market, 10 km away.",
    "Größere Straßen: où était l'été? ¿Mañana, niña?",
    "東京で寿司を食べました。 тебе 😀 तेज भूरी",
]
HIDDEN = 16
# The name of a size in any config, and what it becomes.
SIZES = {
    **dict.fromkeys(["hidden_size", "dim", "n_embd", "d_model"], HIDDEN),
    **dict.fromkeys(["num_hidden_layers", "n_layers", "n_layer"], 2),
    **dict.fromkeys(["num_attention_heads", "n_heads", "n_head"], 2),
    **dict.fromkeys(["intermediate_size", "hidden_dim", "n_inner"], 24),
    "pooler_hidden_size": HIDDEN,
    "head_dim": HIDDEN // 2,
    "embedding_size": 8,
    "local_attention": 8,
    "position_buckets": 32,
}


def values(key, shape):
    """FNV-1a of the key, then SplitMix64 of the index, as a number around 0, or around 1 for the γ of a norm."""
    seed = 0xCBF29CE484222325
    for byte in key.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(np.prod(shape, dtype=int), dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    unit = (z >> np.uint64(11)).astype(np.float64) / 2**52 - 1
    is_gamma = len(shape) == 1 and key.endswith(("weight", "gamma", "gammas"))
    scaled = 1 + unit / 4 if is_gamma else unit / (2 if len(shape) > 1 else 4)
    return scaled.astype(np.float32).reshape(shape)


def tokenizer_folder(kind):
    own = HERE / "tokenizers" / kind
    return own if own.exists() else HERE.parent / "fixtures" / "tokenizer_classes" / kind


def make_tokenizers():
    """ModernBERT's and EuroBERT's, with the vocabulary of RoBERTa's; and that of klue/roberta, WordPiece in RoBERTa's order."""
    fixtures, own = HERE.parent / "fixtures" / "tokenizer_classes", HERE / "tokenizers"
    for name in ["modernbert", "eurobert", "klue"]:
        (own / name).mkdir(parents=True, exist_ok=True)
    text = (fixtures / "roberta" / "tokenizer.json").read_text()
    for old, new in {"<s>": "[CLS]", "<pad>": "[PAD]", "</s>": "[SEP]", "<unk>": "[UNK]", "<mask>": "[MASK]"}.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    file = json.loads(text)
    file["normalizer"] = {"type": "NFC"}
    file["added_tokens"][4]["lstrip"] = True
    special = {name: {"id": name, "ids": [id], "tokens": [name]} for id, name in [(0, "[CLS]"), (2, "[SEP]")]}
    cls, sep = ({"SpecialToken": {"id": name, "type_id": 0}} for name in special)
    a, b = ({"Sequence": {"id": id, "type_id": 0}} for id in "AB")
    file["post_processor"] = {"type": "TemplateProcessing", "single": [cls, a, sep], "pair": [cls, a, sep, b, sep], "special_tokens": special}
    (own / "modernbert" / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")))
    # As Llama 3's: special tokens after the vocabulary, and words by a pattern.
    file = json.loads((fixtures / "roberta" / "tokenizer.json").read_text())
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocab = [word for word in sorted(file["model"]["vocab"], key=file["model"]["vocab"].get) if word not in special]
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "<|parallel_sep|>"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    file["added_tokens"] = [{"id": len(vocab) + i, "content": name, **flags} for i, name in enumerate(names)]
    file["model"] |= {"vocab": {word: id for id, word in enumerate(vocab)}, "unk_token": None, "ignore_merges": True}
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    file["normalizer"], file["pre_tokenizer"] = None, {"type": "Sequence", "pretokenizers": [split, byte_level]}
    begin, end = ({"SpecialToken": {"id": name, "type_id": 0}} for name in names[:2])
    a, b = ({"Sequence": {"id": id, "type_id": 0}} for id in "AB")
    special = {name: {"id": name, "ids": [len(vocab) + i], "tokens": [name]} for i, name in enumerate(names[:2])}
    template = {"type": "TemplateProcessing", "single": [begin, a, end], "pair": [begin, a, end, begin, b, end], "special_tokens": special}
    file["post_processor"] = {"type": "Sequence", "processors": [byte_level | {"use_regex": True}, template]}
    file["decoder"] = byte_level | {"use_regex": True}
    (own / "eurobert" / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")))
    first = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    tokens = first + [word for word in (fixtures / "bert" / "vocab.txt").read_text().split("\n") if word and word not in first]
    (own / "klue" / "vocab.txt").write_text("\n".join(tokens) + "\n")
    file = json.loads((fixtures / "bert" / "tokenizer.json").read_text())
    file["model"]["vocab"] = {word: id for id, word in enumerate(tokens)}
    file["added_tokens"] = [{**token, "id": tokens.index(token["content"])} for token in file["added_tokens"]]
    processor = json.dumps(file["post_processor"]).replace('"[CLS]", 2', '"[CLS]", 0').replace('"[SEP]", 3', '"[SEP]", 2')
    file["post_processor"] = json.loads(processor.replace('"ids": [2]', '"ids": [0]').replace('"ids": [3]', '"ids": [2]'))
    (own / "klue" / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")))


def words(kind):
    """The size of a vocabulary, with room for what the class adds to it."""
    file = json.loads((tokenizer_folder(kind) / "tokenizer.json").read_text())
    vocab = file["model"]["vocab"]
    return len(vocab) + 8


def made_tiny(config, kind):
    tiny = dict(config)
    for name, size in SIZES.items():
        if name in tiny:
            is_width = name == "embedding_size" and tiny[name] == tiny.get("hidden_size")
            tiny[name] = HIDDEN if is_width else size
    # hidden_size is written before embedding_size is compared with it.
    if "embedding_size" in config and config["embedding_size"] == config["hidden_size"]:
        tiny["embedding_size"] = HIDDEN
    if "num_key_value_heads" in tiny:
        tiny["num_key_value_heads"] = 2 if config["num_key_value_heads"] == config["num_attention_heads"] else 1
    if "vocab_size" in tiny:
        tiny["vocab_size"] = words(kind)
    for name in ["max_position_embeddings", "max_trained_positions", "n_positions"]:
        if name in tiny:
            tiny[name] = 128 + tiny[name] % 32 % 10
    for name in ["pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"]:
        if isinstance(tiny.get(name), int) and tiny[name] > 300:
            tiny[name] = {"pad_token_id": 1, "bos_token_id": 0, "cls_token_id": 0}.get(name, 2)
    return tiny


def referenced(config, entry):
    """The config that transformers reads without the publisher's code."""
    changed = {**config, **entry.get("reference", {})}
    return {name: value for name, value in changed.items() if value is not None or name not in entry.get("reference", {})}


def tensors_of(config, entry):
    """The tensors that the publisher's class writes, under the keys that the files have."""
    reference = transformers.AutoConfig.for_model(**referenced(config, entry))
    reference.architectures = None
    name = entry.get("class", (config.get("architectures") or ["?"])[0])
    model = getattr(transformers, name)(reference)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(Path(folder) / "model.safetensors", "np") as file:
            found = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}
    rename = entry.get("rename", lambda key: key)
    tensors = {rename(key): [shape, "f32"] for key, shape in found.items() if rename(key)}
    for key, shape, kind in entry.get("more", []):
        size = {"V": config.get("vocab_size"), "P": config.get("max_position_embeddings"), "H": HIDDEN}
        tensors[key] = [[size.get(part, part) for part in shape], kind]
    kind = entry.get("dtype", "f32")
    return {key: [shape, kind if own == "f32" else own] for key, (shape, own) in tensors.items()}


def array(key, shape, kind):
    if kind.startswith("="):
        return values(kind[1:], shape)
    if kind == "i64":
        return np.arange(np.prod(shape, dtype=int), dtype=np.int64).reshape(shape)
    made = values(key, shape)
    return made.astype(np.float16) if kind == "f16" else made


def write(folder, entry, config, tensors):
    for name, content in {"config.json": config, **entry.get("files", {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    kind, *names = entry["tokenizer"].split()
    place = folder / entry.get("below", "")
    place.mkdir(exist_ok=True)
    for name in names:
        shutil.copy(tokenizer_folder(kind) / name, place / name)
    for path, layout in tensors.items():
        arrays = {key: array(key, shape, own) for key, (shape, own) in layout.items()}
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".bin"):
            by_source = {}
            for key, value in arrays.items():
                # A tied tensor is one storage under several names.
                own = layout[key][1]
                source = own[1:] if own.startswith("=") else key
                by_source[key] = by_source.setdefault(source, torch.from_numpy(value.copy()))
            torch.save(by_source, target)
        else:
            save_file(arrays, target, metadata={"format": "pt"})


def rounded(tensor):
    return [float(f"{x:.7g}") for x in tensor.detach().double().flatten().tolist()]


def ends(rows):
    return rounded(rows[[0, -1]])


def computed(folder, entry, config):
    """Ids and values as Python gives them."""
    task, below = entry["task"], folder / entry.get("below", "")
    tokenizer = transformers.AutoTokenizer.from_pretrained(below, **entry.get("tokenizer_options", {}))
    out = {"ids": [tokenizer(text)["input_ids"] for text in TEXTS]}
    if task == "sentence":
        model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float64}, **entry.get("options", {}))
        model = model.double()
        out["values"] = [rounded(row[:HIDDEN]) for row in model.encode(TEXTS, convert_to_tensor=True)]
        out["length"] = model.max_seq_length
        return out
    if task == "rank":
        model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float64})
        pairs = [(text, TEXTS[(i + 1) % 3]) for i, text in enumerate(TEXTS)]
        out["values"] = [rounded(torch.tensor([score])) for score in model.predict(pairs, convert_to_tensor=True).tolist()]
        return out
    classes = {
        "base": "AutoModel",
        "masked": "AutoModelForMaskedLM",
        "sequence": "AutoModelForSequenceClassification",
        "tokens": "AutoModelForTokenClassification",
        "answers": "AutoModelForQuestionAnswering",
        "replaced": "AutoModelForPreTraining",
    }
    model = getattr(transformers, classes[task]).from_pretrained(folder, dtype=torch.float64, **entry.get("options", {})).eval()
    out["values"] = []
    with torch.no_grad():
        for text in TEXTS:
            result = model(**tokenizer(text, return_tensors="pt"))
            if task == "base":
                found = ends(result.last_hidden_state[0])
            elif task == "masked":
                found = rounded(result.logits[0, 1, :HIDDEN])
            elif task == "sequence":
                found = rounded(result.logits[0])
            elif task in ("tokens", "replaced"):
                found = ends(result.logits[0])
            else:
                found = ends(result.start_logits[0]) + ends(result.end_logits[0])
            out["values"].append(found)
    if task in ("sequence", "tokens"):
        out["labels"] = [str(name) for name in (model.config.id2label[i] for i in range(result.logits.shape[-1]))]
    return out


def main():
    make_tokenizers()
    chosen, table, failed = sys.argv[1:], HERE / "checkpoints.json", []
    old = json.loads(table.read_text()) if chosen else {"checkpoints": [], "layouts": []}
    kept, layouts = {row["name"]: row for row in old["checkpoints"]}, old["layouts"]
    made = []
    for entry in LIST:
        if chosen and not any(name in entry["name"] for name in chosen):
            made.append(kept[entry["name"]])
            continue
        kind = entry["tokenizer"].split()[0]
        config = made_tiny(entry["config"], kind)
        try:
            if "layout" in entry:
                own = {key: [[config["vocab_size"] if part == "V" else part for part in shape], "f32"] for key, shape in entry["layout"].items()}
            elif entry.get("refused"):
                own = {"embeddings.word_embeddings.weight": [[config.get("vocab_size", 9), HIDDEN], "f32"]}
            else:
                own = tensors_of(config, entry)
            tensors = {entry.get("below", "") + entry.get("weights", "model.safetensors"): own}
            for path, layout in entry.get("folders", {}).items():
                tensors[path] = {key: [shape, "f32"] for key, shape in layout.items()}
            row = {name: entry[name] for name in ("name", "task", "tokenizer", "refused", "note", "below", "files") if name in entry}
            row["config"] = config
            with tempfile.TemporaryDirectory() as folder:
                folder = Path(folder)
                if not entry.get("refused"):
                    reference = referenced(config, entry)
                    if "below" in entry:
                        write(folder, {**entry, "files": {**entry.get("files", {}), entry["below"] + "config.json": reference}}, {}, tensors)
                        (folder / "config.json").unlink()
                    else:
                        write(folder, entry, reference, tensors)
                    row |= computed(folder, entry, config)
        except Exception as problem:
            failed.append(f"{entry['name']}: {type(problem).__name__}: {str(problem)[:400]}")
            continue
        row["weights"] = {}
        for path, layout in tensors.items():
            lines = ["{} {}{}".format(key, "x".join(map(str, shape)), "" if own == "f32" else " " + own) for key, (shape, own) in layout.items()]
            if lines not in layouts:
                layouts.append(lines)
            row["weights"][path] = layouts.index(lines)
        made.append(row)
    versions = {"transformers": transformers.__version__, "sentence-transformers": __import__("sentence_transformers").__version__}
    rows = lambda list: ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in list)
    head = f'"versions":{json.dumps(versions)},\n"texts":{json.dumps(TEXTS, ensure_ascii=False)}'
    table.write_text(f'{{{head},\n"checkpoints":[\n{rows(made)}\n],\n"layouts":[\n{rows(layouts)}\n]}}\n')
    print(len(made), "made")
    print("\n".join(failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
