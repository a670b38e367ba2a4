"""Requests that load, list, invoke and unload models, and what each multi-model server answers."""

from __future__ import annotations

from tests.contract.replies import (
    MODEL,
    MODELS,
    PAGE,
    Exchange,
    Reply,
    answered,
    bare,
    multi_model,
    refused,
)
from tests.contract.requests import json_request

TO_OTHER = (("X-Amzn-SageMaker-Target-Model", "fedcba9876543210/model.tar.gz"),)
_LOAD_OTHER = b'{"model_name": "other", "url": "{archive}"}'

LOADING = (
    Exchange(
        name="load without a url",
        path="/models",
        body=b'{"model_name": "x"}',
        replies=multi_model(refused(), refused()),
    ),
    Exchange(
        name="load from a folder that is not there",
        path="/models",
        body=b'{"model_name": "x", "url": "/nowhere/model"}',
        replies=multi_model(refused(), refused()),
    ),
    Exchange(
        name="load from a folder that holds no model",
        path="/models",
        body=b'{"model_name": "x", "url": "{empty}"}',
        replies=multi_model(refused(), refused()),
    ),
    Exchange(
        name="load an archive with a changed file",
        path="/models",
        body=b'{"model_name": "x", "url": "{spoiled}"}',
        headers=(("X-Amzn-SageMaker-Target-Model", "spoiled/model.tar.gz"),),
        replies=multi_model(refused(), refused()),
    ),
    Exchange(
        name="load",
        path="/models",
        body=_LOAD_OTHER,
        headers=TO_OTHER,
        replies=multi_model(bare(200), bare(200)),
    ),
    Exchange(
        name="load what is loaded",
        path="/models",
        body=_LOAD_OTHER,
        headers=TO_OTHER,
        replies=multi_model(refused(409), refused(409)),
    ),
    Exchange(
        name="GET /models/NAME",
        method="GET",
        path="/models/other",
        headers=TO_OTHER,
        replies=multi_model(Reply(status=200, says=MODEL), Reply(status=200, says=MODEL)),
    ),
    Exchange(
        name="GET /models?limit=1, where two are loaded",
        method="GET",
        path="/models?limit=1",
        replies=multi_model(Reply(status=200, says=PAGE), Reply(status=200, says=MODELS)),
    ),
    Exchange(
        name="POST /models/NAME/invoke",
        path="/models/other/invoke",
        body=json_request(["a dog"]),
        headers=TO_OTHER,
        replies=multi_model(answered(), answered()),
    ),
    # Triton serves the model under its target's name: the hash in the path is not asked once the
    # list has it.
    Exchange(
        name="POST /models/NAME/invoke without the target model's header",
        path="/models/other/invoke",
        body=json_request(["a dog"]),
        replies=multi_model(answered(), refused()),
    ),
    Exchange(
        name="DELETE /models/NAME",
        method="DELETE",
        path="/models/other",
        headers=TO_OTHER,
        replies=multi_model(bare(200), bare(200)),
    ),
    Exchange(
        name="POST /models/NAME/invoke of an unloaded model",
        path="/models/other/invoke",
        body=json_request(["a dog"]),
        headers=TO_OTHER,
        replies=multi_model(refused(404), bare(404)),
    ),
    Exchange(
        name="load again",
        path="/models",
        body=_LOAD_OTHER,
        headers=TO_OTHER,
        replies=multi_model(bare(200), bare(200)),
    ),
    Exchange(
        name="unload again",
        method="DELETE",
        path="/models/other",
        headers=TO_OTHER,
        replies=multi_model(bare(200), bare(200)),
    ),
)
"""Requests to one multi-model server, in this order."""
