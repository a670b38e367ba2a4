"""SageMaker's multi-model contract, with models that are only names."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from container.server.http.messages import Request
from container.server.http.routes import multi_model_application
from container.server.settings import Settings
from container.server.types import Conflict, OutOfMemory, UnknownPath
from tests.unit.container.http.test_routes import (
    ANSWER,
    BODY,
    Observer,
    Plane,
    sentence,
)


class LoadedModels:
    """Two models fit; the token is the position of the next."""

    def __init__(self):
        self.loaded = {}

    async def load(self, name, url):
        if name in self.loaded:
            raise Conflict(f"{name!r} is loaded already.")
        if len(self.loaded) == 2:
            raise OutOfMemory("Two fit.")
        self.loaded[name] = SimpleNamespace(name=name, url=url)

    async def unload(self, name):
        del self.loaded[self.entry(name).name]

    def page(self, token, limit):
        end = int(token or 0) + limit
        entries = list(self.loaded.values())
        return entries[end - limit : end], str(end) if end < len(entries) else None

    def entry(self, name):
        if name not in self.loaded:
            raise UnknownPath(f"{name!r} is not loaded.")
        return self.loaded[name]

    def plane(self, name):
        self.entry(name)
        return Plane()


class Server:
    def __init__(self, *models):
        self.observer = Observer()
        self._answer = multi_model_application(
            LoadedModels(), Settings(), self.observer, self.observer
        )
        self.loads = [
            self("POST", "/models", {"model_name": name, "url": f"/opt/ml/models/{name}/model"})
            for name in models
        ]

    def __call__(self, method, path, document=None, query=""):
        body = b"" if document is None else json.dumps(document).encode()
        return asyncio.run(self._answer(Request(method, path, {}, body, query)))

    def get(self, path, query=""):
        return json.loads(self("GET", path, query=query).body)


def test_model_lives_from_load_to_unload():
    server = Server("a")
    assert server.loads == [(200, b"", "application/json", ())]
    assert server.get("/models/a") == {"modelName": "a", "modelUrl": "/opt/ml/models/a/model"}
    assert json.loads(server("POST", "/models/a/invoke", json.loads(BODY)).body) == ANSWER
    assert server("DELETE", "/models/a")[:2] == (200, b"")
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/invoke")):
        assert server(method, f"/models/a{path}", {}).status == 404
    assert [(kind, status, model) for kind, status, _, model in server.observer[2:4]] == [
        ("infer", 200, "a"),
        ("model", 200, "a"),
    ]


@pytest.mark.parametrize("path", ["/ping", "/metrics"])
def test_server_is_healthy_without_a_model(path):
    assert Server()("GET", path).status == 200


@pytest.mark.parametrize(
    ("document", "status", "words"),
    [
        ({"model_name": "a", "url": "/x"}, 409, "loaded already"),
        ({"model_name": "c", "url": "/x"}, 507, "Two fit"),
        ({"url": "/x"}, 400, 'needs "model_name" with a string, not null'),
        ({"model_name": "a", "url": 7}, 400, 'needs "url" with a string, not a number'),
        ({"model_name": "a\n", "url": "/x"}, 400, "printable"),
        (None, 400, "not JSON"),
        ([], 400, "must be a JSON object"),
    ],
)
def test_refuses_to_load(document, status, words):
    response = Server("a", "b")("POST", "/models", document)
    assert response.status == status and words in sentence(response)


@pytest.mark.parametrize(
    ("method", "path", "query", "status", "words"),
    [
        ("GET", "/models", "limit=0", 400, "from 1 to 1000"),
        ("GET", "/models", "limit=x", 400, "limit is 'x'"),
        ("PUT", "/models", "", 405, "takes GET, POST"),
        ("GET", "/models/a/invoke", "", 405, "takes POST, not GET"),
        ("GET", "/models/a/b", "", 404, "There is no"),
        ("POST", "/invocations", "", 404, "There is no '/invocations'"),
    ],
)
def test_refuses_with_one_sentence(method, path, query, status, words):
    response = Server("a", "b")(method, path, query=query)
    assert response.status == status and words in sentence(response)
