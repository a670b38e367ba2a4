"""A naive server on a GPU: Flask, transformers' tokenizer, PyTorch eager FP32, json.

One request a call; started by gunicorn with one sync worker. NAIVE_MODEL: a name of
`networks.SIZES`; NAIVE_TOKENIZER: tokenizer.json; NAIVE_DEVICE: cuda or cpu; NAIVE_MAX_TOKENS: the
most tokens of a text.
"""

from __future__ import annotations

import json
import os

import torch
from flask import Flask, Response, request  # type: ignore[import-not-found]
from transformers import PreTrainedTokenizerFast

from benchmarks.h200.programs.networks import INPUTS, embedder

device = os.environ["NAIVE_DEVICE"]
model = embedder(os.environ["NAIVE_MODEL"]).to(device)
tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.environ["NAIVE_TOKENIZER"], pad_token="[PAD]")
longest = int(os.environ["NAIVE_MAX_TOKENS"])
app = Flask(__name__)


def ping() -> str:
    """Return nothing: the server is ready, because everything is loaded at import."""
    return ""


def invocations() -> Response:
    """Answer {"inputs": [text, …]} with {"outputs": [[float, …], …]}."""
    texts = json.loads(request.get_data())["inputs"]
    tokens = tokenizer(
        texts, padding=True, truncation=True, max_length=longest, return_tensors="pt"
    )
    tokens["token_type_ids"] = torch.zeros_like(tokens["input_ids"])
    with torch.inference_mode():
        rows = model(*(tokens[name].to(device) for name in INPUTS))
    return Response(json.dumps({"outputs": rows.cpu().tolist()}), content_type="application/json")


app.add_url_rule("/ping", view_func=ping)
app.add_url_rule("/invocations", view_func=invocations, methods=["POST"])
