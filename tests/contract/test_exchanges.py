"""Every exchange of the list with every kind of server that gets it, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cloud.containers.server_client import Response
from tests.contract.conftest import Served
from tests.contract.exchanges import ANSWERS, LOADING, PATHS, SLIPS
from tests.contract.replies import KINDS, SAYS, Exchange, Reply
from tests.contract.requests import json_request
from tests.fixtures.tiny_embedder.archive import MODEL, write_archive

PAIRS = [
    (kind, exchange) for exchange in (*ANSWERS, *SLIPS, *PATHS) for kind in exchange.kinds(KINDS)
]


def send(served: Served, exchange: Exchange, folders: Path | None = None) -> Response:
    """The server's answer."""
    body = exchange.body
    if folders is not None:
        for name in ("archive", "spoiled", "empty"):
            body = body.replace(f"{{{name}}}".encode(), str(folders / name / "model").encode())
    headers = {"Content-Type": exchange.content_type} if exchange.content_type else {}
    if exchange.path is None:
        headers |= served.headers
    return served.client.request(
        exchange.method, exchange.path or served.infer_path, body, headers | dict(exchange.headers)
    )


def is_reply(answer: Response, reply: Reply) -> bool:
    """Whether an answer is the reply that the list promises."""
    return answer.status == reply.status and SAYS[reply.says](answer.body)


@pytest.mark.parametrize(
    ("kind", "exchange"),
    PAIRS,
    ids=[f"{kind}-{exchange.name.replace(' ', '-')}" for kind, exchange in PAIRS],
)
def test_reply_is_the_one_of_the_list(kind, exchange, launched):
    served = launched(kind)
    answer = send(served, exchange)
    assert is_reply(answer, exchange.replies[kind]), (answer.status, answer.body[:300])
    assert served.client.request("GET", "/ping").status == 200
    assert served.ask(json_request(["a dog"])).status == 200


def test_life_of_a_model_is_the_one_of_the_list(launched, tmp_path):
    served = launched("triton-mme")
    write_archive(tmp_path / "archive" / "model")
    write_archive(tmp_path / "spoiled" / "model")
    changed_request = tmp_path / "spoiled" / "model" / MODEL / "config.pbtxt"
    changed_request.write_text(changed_request.read_text() + "# changed\n")
    (tmp_path / "empty" / "model").mkdir(parents=True)
    for exchange in LOADING:
        answer = send(served, exchange, tmp_path)
        context = exchange.name, answer.status, answer.body[:300]
        assert is_reply(answer, exchange.replies["triton-mme"]), context
        assert served.client.request("GET", "/ping").status == 200
    assert served.ask(json_request(["a dog"])).status == 200
