"""A naive server: Flask, transformers' tokenizer, one request a call, json; gunicorn starts it.

NAIVE_CHECKPOINT: the folder of tokenizer.json; NAIVE_ENGINE: the ONNX network; NAIVE_THREADS:
intra-op threads, 0 for ONNX Runtime's default; NAIVE_MAX_TOKENS: texts are cut there.
"""

from __future__ import annotations

import json
import os

import numpy as np
import onnxruntime
from flask import Flask, Response, request  # type: ignore[import-not-found]
from transformers import AutoTokenizer

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ["NAIVE_THREADS"])
session = onnxruntime.InferenceSession(
    os.environ["NAIVE_ENGINE"], options, providers=["CPUExecutionProvider"]
)
tokenizer = AutoTokenizer.from_pretrained(os.environ["NAIVE_CHECKPOINT"])
inputs = [tensor.name for tensor in session.get_inputs()]
app = Flask(__name__)


def ping() -> str:
    """Return nothing: the server is ready, because everything is loaded at import."""
    return ""


def invocations() -> Response:
    """Answer {"inputs": [text, …]} with {"outputs": [[float, …], …]}."""
    texts = json.loads(request.get_data())["inputs"]
    tokens = tokenizer(
        texts,
        padding=True,
        truncation=True,
        max_length=int(os.environ["NAIVE_MAX_TOKENS"]),
        return_tensors="np",
    )
    answer = session.run(None, {name: tokens[name].astype(np.int64) for name in inputs})[0]
    return Response(json.dumps({"outputs": answer.tolist()}), content_type="application/json")


app.add_url_rule("/ping", view_func=ping)
app.add_url_rule("/invocations", view_func=invocations, methods=["POST"])
