"""
The peer of benches/compare_inference.rs and benches/compare_serving.rs: transformers' encoders as they are deployed on CPUs.

    python benches/peers/bench_inference.py THREADS

A case is `engine directory`, see peer.py; the directory holds a checkpoint and `batch.json`. Of the engines, `torch` and
`torch_bf16` hold the weights in that dtype (SDPA where transformers has it),

    onnxruntime         ONNX Runtime, f32
    onnxruntime_int8    the same with weights quantised per channel and activations dynamically
    openvino            OpenVINO, f32
    openvino_bf16       the same with bf16 as its inference precision

`loss` is the mean of the absolute values of the last hidden state, to see that all compute the same.

An engine `requests@8` is ONNX Runtime that eight threads ask for the vectors of the texts of `batch.json`, one text a request, the
mean of its tokens' vectors scaled to length 1; `requests1` computes each on one thread, and `_int8` is as above.
`sentences@8` is sentence-transformers with its ONNX backend.

PyTorch needs `onnx` and `onnxscript` for the export, besides `onnxruntime` and `openvino`; sentence-transformers needs `optimum-onnx`,
and that transformers 4.
"""

import json
import logging
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from peer import serve, torch
from transformers import AutoModel, AutoTokenizer

THREADS = int(sys.argv[1])
warnings.simplefilter("ignore")  # exporters announce what they will deprecate
logging.disable(logging.WARNING)


class Encoder(torch.nn.Module):
    """The last hidden state alone, of inputs by position, as exports want it."""

    def __init__(self, directory):
        super().__init__()
        self.bert = AutoModel.from_pretrained(directory, dtype=torch.float32)
        self.bert.pooler = None
        self.eval()

    def forward(self, input_ids, attention_mask):
        return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def exported(directory, inputs):
    """The model as ONNX, once a checkpoint; the batch's axes are dynamic, as they are in deployments."""
    path = Path(directory) / "encoder.onnx"  # sentence-transformers would take a model.onnx for its own
    if not path.exists():
        axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
        torch.onnx.export(
            Encoder(directory), inputs, path, input_names=["input_ids", "attention_mask"], dynamo=True, verbose=False,
            dynamic_shapes=(axes, axes), external_data=False,
        )
    return path


def session(path, int8, threads=THREADS):
    import onnxruntime as ort
    from onnxruntime.quantization import QuantType, quantize_dynamic

    if int8:
        quantised = path.with_name("int8.onnx")
        if not quantised.exists():
            quantize_dynamic(path, quantised, per_channel=True, weight_type=QuantType.QInt8)
        path = quantised
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def onnxruntime(path, inputs, int8):
    run = session(path, int8).run
    named = dict(zip(("input_ids", "attention_mask"), (tensor.numpy() for tensor in inputs)))
    return lambda: run(None, named)[0]


def by_tokenizer(directory, threads, int8):
    """From a text to its vector, without a library in between."""
    tokenizer = AutoTokenizer.from_pretrained(directory).backend_tokenizer
    inputs = tuple(torch.ones(2, 16, dtype=torch.long) for _ in range(2))  # one tensor twice would be one input
    infer = session(exported(directory, inputs), int8, threads).run

    def encode(text):
        ids = np.array([tokenizer.encode(text).ids])
        vector = infer(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0].mean(0)
        return vector / np.linalg.norm(vector)

    return encode


def by_sentence_transformers(directory):
    import onnxruntime as ort
    from sentence_transformers import SentenceTransformer

    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    model = SentenceTransformer(directory, backend="onnx", device="cpu", model_kwargs={"session_options": options})
    return lambda text: model.encode(text, show_progress_bar=False)


def requests(encode, texts, callers):
    pool = ThreadPoolExecutor(callers)
    waits = []

    def wait(text):
        start = time.perf_counter()
        encode(text)
        return (time.perf_counter() - start) * 1e3

    def run():
        waits.extend(pool.map(wait, texts))

    def latest():
        last = np.quantile(waits or [np.nan], 0.99)
        waits.clear()
        return last

    run.latest = latest
    run.loss = lambda: float(np.mean([abs(encode(text)).mean() for text in texts]))
    return run


def openvino(directory, inputs, precision):
    import openvino as ov

    model = ov.convert_model(Encoder(directory), example_input=inputs)
    hints = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    request = ov.Core().compile_model(model, "CPU", hints).create_infer_request()
    arrays = [tensor.numpy() for tensor in inputs]
    return lambda: request.infer(arrays)[0]


def pytorch(directory, inputs, dtype):
    model = Encoder(directory).to(dtype)

    def infer():
        with torch.inference_mode():
            return model(*inputs).float().numpy()

    return infer


def make(engine, directory):
    data = json.loads((Path(directory) / "batch.json").read_text())
    if "@" in engine:
        kind, callers = engine.split("@")
        if kind == "sentences":
            encode = by_sentence_transformers(directory)
        else:
            threads = 1 if kind.startswith("requests1") else THREADS
            encode = by_tokenizer(directory, threads, int8=kind.endswith("_int8"))
        return requests(encode, data["texts"], int(callers))
    ids, mask = inputs = tuple(torch.tensor(data[name]) for name in ("input_ids", "attention_mask"))
    engine, _, variant = engine.partition("_")
    if engine == "torch":
        infer = pytorch(directory, inputs, torch.bfloat16 if variant else torch.float32)
    elif engine == "onnxruntime":
        infer = onnxruntime(exported(directory, inputs), inputs, int8=variant == "int8")
    else:
        infer = openvino(directory, inputs, "bf16" if variant else "f32")

    def run():
        infer()

    run.loss = lambda: float(abs(infer()[mask.numpy() == 1]).mean())
    return run


serve(make)
