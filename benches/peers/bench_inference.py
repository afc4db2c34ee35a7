"""
The peer of benches/compare_inference.rs: transformers' encoders as they are deployed on CPUs.

    python benches/peers/bench_inference.py THREADS

A case is `engine directory`, see peer.py; the directory holds a checkpoint and `batch.json`. Of the engines, `torch` and
`torch_bf16` hold the weights in that dtype (SDPA where transformers has it),

    onnxruntime         ONNX Runtime, f32
    onnxruntime_int8    the same with weights quantised per channel and activations dynamically
    openvino            OpenVINO, f32
    openvino_bf16       the same with bf16 as its inference precision

`loss` is the mean of the absolute values of the last hidden state, to see that all compute the same.

PyTorch needs `onnx` and `onnxscript` for the export, besides `onnxruntime` and `openvino`.
"""

import json
import logging
import sys
import warnings
from pathlib import Path

from peer import serve, torch
from transformers import AutoModel

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
    path = Path(directory) / "model.onnx"
    if not path.exists():
        axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
        torch.onnx.export(
            Encoder(directory), inputs, path, input_names=["input_ids", "attention_mask"], dynamo=True, verbose=False,
            dynamic_shapes=(axes, axes), external_data=False,
        )
    return path


def onnxruntime(path, inputs, int8):
    import onnxruntime as ort
    from onnxruntime.quantization import QuantType, quantize_dynamic

    if int8:
        quantised = path.with_name("int8.onnx")
        if not quantised.exists():
            quantize_dynamic(path, quantised, per_channel=True, weight_type=QuantType.QInt8)
        path = quantised
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    named = dict(zip(("input_ids", "attention_mask"), (tensor.numpy() for tensor in inputs)))
    return lambda: session.run(None, named)[0]


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
