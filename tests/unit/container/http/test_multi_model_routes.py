"""SageMaker's multi-model contract, with models that are only names."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import pytest

from container.server.http.messages import Request
from container.server.http.multi_model_routes import multi_model_application
from container.server.types import Conflict, OutOfMemory, UnknownPath
from tests.unit.container.http.test_routes import ASK, FAILED, Observer, Plane, numbers, sentence


@dataclass(frozen=True)
class Entry:
    name: str
    url: str


class LoadedModels:
    """Two models fit; the token is the place of the next."""

    def __init__(self):
        self.loaded = {}

    async def load(self, name, url):
        if name in self.loaded:
            raise Conflict(f"{name!r} is loaded already.")
        if len(self.loaded) == 2:
            raise OutOfMemory("Two fit.")
        self.loaded[name] = Entry(name, url)

    async def unload(self, name):
        del self.loaded[self.entry(name).name]

    def page(self, token, limit):
        start = 0 if token is None else int(token)
        found = list(self.loaded.values())
        return found[start : start + limit], str(start + limit) if start + limit < len(
            found
        ) else None

    def entry(self, name):
        if name not in self.loaded:
            raise UnknownPath(f"{name!r} is not loaded.")
        return self.loaded[name]

    def plane(self, name):
        self.entry(name)
        return Plane()


class Server:
    def __init__(self):
        self.heard = Observer()
        self._answering = multi_model_application(
            LoadedModels(),
            max_body_bytes=10_000,
            deadline_seconds=60,
            metrics=numbers,
            failed=FAILED.append,
            observer=self.heard,
        )

    def __call__(self, method, path, document=None, query=""):
        body = b"" if document is None else json.dumps(document).encode()
        return asyncio.run(self._answering(Request(method, path, {}, body, query)))

    def load(self, name):
        return self("POST", "/models", {"model_name": name, "url": f"/opt/ml/models/{name}/model"})


def test_model_lives_from_load_to_unload():
    ask = Server()
    assert ask.load("a") == (200, b"", "application/json", ())
    assert json.loads(ask("GET", "/models/a").body) == {
        "modelName": "a",
        "modelUrl": "/opt/ml/models/a/model",
    }
    assert json.loads(ask("POST", "/models/a/invoke", json.loads(ASK)).body) == {
        "outputs": [[5, 5], [5, 5]]
    }
    assert ask("DELETE", "/models/a")[:2] == (200, b"")
    assert [
        ask(*call).status
        for call in (
            ("GET", "/models/a"),
            ("DELETE", "/models/a"),
            ("POST", "/models/a/invoke", {}),
        )
    ] == [404] * 3
    assert [(kind, status, model) for kind, status, _, model in ask.heard[2:4]] == [
        ("infer", 200, "a"),
        ("model", 200, "a"),
    ]


def test_models_are_listed_by_pages():
    ask = Server()
    assert json.loads(ask("GET", "/models").body) == {"models": []}
    ask.load("a"), ask.load("b")
    first = json.loads(ask("GET", "/models", query="limit=1").body)
    assert [model["modelName"] for model in first["models"]] == ["a"]
    second = json.loads(
        ask("GET", "/models", query=f"limit=1&next_page_token={first['nextPageToken']}").body
    )
    assert [model["modelName"] for model in second["models"]] == [
        "b"
    ] and "nextPageToken" not in second


def test_server_is_healthy_without_a_model():
    ask = Server()
    assert [
        ask("GET", path).status
        for path in ("/ping", "/v2/health/live", "/v2/health/ready", "/v2", "/metrics")
    ] == [200] * 5


@pytest.mark.parametrize(
    ("method", "path", "document", "query", "status", "words"),
    [
        ("POST", "/models", {"model_name": "a", "url": "/x"}, "", 409, "loaded already"),
        ("POST", "/models", {"model_name": "c", "url": "/x"}, "", 507, "Two fit"),
        ("POST", "/models", {"url": "/x"}, "", 400, 'needs "model_name" with a string, not null'),
        (
            "POST",
            "/models",
            {"model_name": "a", "url": 7},
            "",
            400,
            'needs "url" with a string, not a number',
        ),
        ("POST", "/models", {"model_name": "a\n", "url": "/x"}, "", 400, "printable"),
        ("POST", "/models", None, "", 400, "not JSON"),
        ("POST", "/models", [], "", 400, "must be a JSON object"),
        ("GET", "/models", None, "limit=0", 400, "from 1 to 1000"),
        ("GET", "/models", None, "limit=x", 400, "limit is 'x'"),
        ("PUT", "/models", None, "", 405, "takes GET, POST"),
        ("GET", "/models/a/invoke", None, "", 405, "takes POST, not GET"),
        ("GET", "/models/a/b", None, "", 404, "There is no"),
        ("POST", "/invocations", json.loads(ASK), "", 404, "There is no '/invocations'"),
    ],
)
def test_refuses_with_one_sentence(method, path, document, query, status, words):
    ask = Server()
    ask.load("a"), ask.load("b")
    response = ask(method, path, document, query)
    assert response.status == status and words in sentence(response)
