"""Requests that load, list, invoke and unload models, and what a multi-model Triton answers."""

from __future__ import annotations

from tests.contract.replies import (
    MODEL,
    MODELS,
    Exchange,
    Reply,
    answer,
    bare,
    multi_model,
    refusal,
)
from tests.contract.requests import json_request

TO_OTHER = (("X-Amzn-SageMaker-Target-Model", "fedcba9876543210/model.tar.gz"),)
TO_SPOILED = (("X-Amzn-SageMaker-Target-Model", "spoiled/model.tar.gz"),)


def _load(name: str, reply: Reply, body: bytes, headers=()) -> Exchange:
    return Exchange(name, multi_model(reply), body, path="/models", headers=headers)


def _load_other(name: str, reply: Reply) -> Exchange:
    return _load(name, reply, b'{"model_name": "other", "url": "{archive}"}', TO_OTHER)


def _to_other(name: str, reply: Reply, method: str) -> Exchange:
    return Exchange(name, multi_model(reply), method=method, path="/models/other", headers=TO_OTHER)


def _invoke_other(name: str, reply: Reply, headers=TO_OTHER) -> Exchange:
    body, path = json_request(["a dog"]), "/models/other/invoke"
    return Exchange(name, multi_model(reply), body, path=path, headers=headers)


LOADING = (
    _load("load without a url", refusal(), b'{"model_name": "x"}'),
    _load(
        "load from a folder that is not there",
        refusal(),
        b'{"model_name": "x", "url": "/nowhere/model"}',
    ),
    _load(
        "load from a folder that holds no model",
        refusal(),
        b'{"model_name": "x", "url": "{empty}"}',
    ),
    _load(
        "load an archive with a changed file",
        refusal(),
        b'{"model_name": "x", "url": "{spoiled}"}',
        TO_SPOILED,
    ),
    _load_other("load", bare(200)),
    _load_other("load what is loaded", refusal(409)),
    _to_other("GET /models/NAME", Reply(status=200, says=MODEL), "GET"),
    Exchange(
        "GET /models?limit=1, where two are loaded",
        multi_model(Reply(status=200, says=MODELS)),
        method="GET",
        path="/models?limit=1",
    ),
    _invoke_other("POST /models/NAME/invoke", answer()),
    # Triton serves the model under its target's name: the hash in the path is not asked once the
    # list has it.
    _invoke_other("POST /models/NAME/invoke without the target model's header", refusal(), ()),
    _to_other("DELETE /models/NAME", bare(200), "DELETE"),
    _invoke_other("POST /models/NAME/invoke of an unloaded model", refusal(404)),
    _load_other("load again", bare(200)),
    _to_other("unload again", bare(200), "DELETE"),
)
"""Requests to one multi-model server, in this order."""
