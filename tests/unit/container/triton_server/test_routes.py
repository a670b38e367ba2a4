"""Paths of the server before Triton, with Tritons that write down what they are asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from container.server.http.messages import Request
from container.server.settings import Settings
from container.server.supervisor import free_ports
from container.server.triton.app import has_metrics, triton_command
from container.server.triton.health import PROOF_SECONDS, Health, ModelHealth
from container.server.triton.routes import TritonRoutes, watched_model
from container.server.types import Response
from container.server.upstream import UpstreamRequest

TEXT = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]}
BODY = json.dumps({"inputs": [TEXT]}).encode()


class Triton:
    """Answers every request with one status."""

    def __init__(self, status: int | Exception = 200, body: bytes = b"{}") -> None:
        self.status, self.body, self.requests = status, body, []

    async def request(self, request: UpstreamRequest) -> Response:
        self.requests.append(request)
        if isinstance(self.status, Exception):
            raise self.status
        return Response(self.status, self.body, "application/json")


class Log(list):
    """The failure log's faults."""

    def report(self, event, fault=None, **facts):
        self.append((event, type(fault)))


def front(triton: Triton, *, multi_model=False, log=None, metrics=None) -> TritonRoutes:
    health = Health(triton.request, lambda: (), lambda: 0.0)
    health.add(ModelHealth(name="a", archive=Path("/x"), request=None))
    if not multi_model:
        health.add(watched_model(Path("/nowhere")))
    return TritonRoutes(
        triton,
        health,
        Settings(multi_model=multi_model, max_body_bytes=1 << 20, deadline_seconds=5),
        log=Log() if log is None else log,
        metrics=metrics,
    )


def ask(routes, method, path, body=b"", headers=()) -> Response:
    return asyncio.run(routes(Request(method, path, dict(headers), body)))


def test_request_reaches_triton_written_again_with_sagemakers_headers_alone():
    triton = Triton()
    headers = {b"x-amzn-sagemaker-target-model": b"a.tar.gz", b"cookie": b"x", b"host": b"y"}
    answer = ask(front(triton, multi_model=True), "POST", "/models/a/invoke", BODY, headers.items())
    assert answer.status == 200
    (request,) = triton.requests
    assert (request.path, json.loads(request.body)) == ("/models/a/invoke", json.loads(BODY))
    assert request.headers == ((b"x-amzn-sagemaker-target-model", b"a.tar.gz"),)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"model_name": "a"}',
        b'{"model_name": "a/b", "url": "/x"}',
        b'{"model_name": "a", "url": "x"}',
        b'{"model_name": "a", "url": "/x\\n"}',
    ],
)
def test_refuses_loads_that_are_none_before_triton_reads_them(body):
    triton = Triton()
    assert ask(front(triton, multi_model=True), "POST", "/models", body).status == 400
    assert triton.requests == []


def test_model_is_watched_from_its_load_to_its_unloading():
    triton = Triton()
    routes = front(triton, multi_model=True)
    ask(routes, "POST", "/models", b'{"model_name": "b", "url": "/x", "more": 1}')
    assert json.loads(triton.requests[0].body) == {"model_name": "b", "url": "/x"}
    triton.status = 507
    ask(routes, "POST", "/models", b'{"model_name": "c", "url": "/x"}')
    assert list(routes._health.models) == ["a", "b"]
    triton.status = 200
    ask(routes, "DELETE", "/models/b")
    assert list(routes._health.models) == ["a"]


def test_model_is_unloaded_once_its_health_request_is_answered():
    async def scenario():
        triton, go_on, unloaded = Triton(), asyncio.Event(), Request("DELETE", "/models/a", {}, b"")
        routes = front(triton, multi_model=True)
        routes._health.models["a"].request = UpstreamRequest("POST", "/models/a/invoke")

        async def ask(request):
            await go_on.wait()
            return await triton.request(request)

        routes._health._ask = ask
        inspection = asyncio.ensure_future(routes._health.inspect())
        await asyncio.sleep(0)
        unloading = asyncio.ensure_future(routes(unloaded))
        for _ in range(5):
            await asyncio.sleep(0)
        assert triton.requests == []
        go_on.set()
        await asyncio.gather(inspection, unloading)
        return [request.method for request in triton.requests]

    assert asyncio.run(scenario()) == ["POST", "DELETE"]


def test_model_that_cannot_answer_is_refused_and_makes_health_503():
    triton = Triton()
    routes = front(triton, multi_model=True)
    routes._health.models["a"].broken = "its Python process 7 ended"
    assert ask(routes, "POST", "/models/a/invoke", BODY).status == 503
    assert ask(routes, "GET", "/ping").status == 503
    assert triton.requests == []


def test_python_process_that_is_late_is_no_fault_of_the_request():
    """Triton answers 400, as it does for a text that no tokenizer takes."""
    words = b'{"error":"Stub process \'a_0_0\' is not healthy."}'
    routes = front(Triton(400, words))
    model = routes._health.models[""]
    model.proven = 0.0
    assert ask(routes, "POST", "/invocations", BODY).status == 503
    assert model.proven == -PROOF_SECONDS, "its health is in doubt"
    model.request, model.proven = UpstreamRequest("POST", "/invocations"), None
    asyncio.run(routes._health.inspect())
    assert model.request is not None and model.failures == 1
    assert ask(front(Triton(400)), "POST", "/invocations", BODY).status == 400


def test_ping_is_good_once_the_only_model_has_answered():
    routes = front(Triton())
    routes._health.models[""].request = UpstreamRequest("POST", "/invocations")
    assert ask(routes, "GET", "/ping").status == 503
    routes._health.observe("", 200)
    assert ask(routes, "GET", "/ping").status == 200


def test_list_of_models_may_end_with_a_slash():
    triton = Triton()
    assert ask(front(triton, multi_model=True), "GET", "/models/").status == 200
    assert [request.path for request in triton.requests] == ["/models"]


def test_refuses_an_index_beyond_a_models_table_before_triton_reads_it():
    triton = Triton()
    routes = front(triton, multi_model=True)
    routes._health.models["a"].tables = {"n": 4}
    tensor = {"name": "n", "shape": [1, 1], "datatype": "INT64", "data": [4]}
    answer = ask(routes, "POST", "/models/a/invoke", json.dumps({"inputs": [tensor]}).encode())
    assert (answer.status, triton.requests) == (400, [])


def test_refuses_a_target_model_that_could_end_its_line():
    headers = ((b"x-amzn-sagemaker-target-model", b"a\xff b"),)
    answer = ask(front(Triton(), multi_model=True), "POST", "/models/a/invoke", BODY, headers)
    assert answer.status == 400


def test_metrics_are_those_of_tritons_own_port_and_absent_without_them():
    triton, metrics = Triton(), Triton()
    assert ask(front(triton, metrics=metrics), "GET", "/metrics").status == 200
    assert ([item.path for item in metrics.requests], triton.requests) == (["/metrics"], [])
    assert ask(front(triton, metrics=metrics), "POST", "/metrics").status == 405
    assert ask(front(triton), "GET", "/metrics").status == 404


def test_triton_keeps_its_metrics_to_this_server():
    off, on = "--allow-metrics=false", "--allow-metrics=true"
    given = ("tritonserver", off, on, "--metrics-port=23000")
    assert has_metrics(given) and not has_metrics(given[:2]) and not has_metrics(())
    first, second = free_ports(2)
    assert first != second
    assert triton_command(given, first, second) == (
        *given[:3],
        f"--sagemaker-port={first}",
        "--metrics-address=127.0.0.1",
        f"--metrics-port={second}",
    )


def test_refuses_a_request_larger_than_one_may_be():
    answer = ask(front(Triton()), "POST", "/invocations", BODY + b" " * (1 << 20))
    assert answer.status == 413 and "send it in parts" in json.loads(answer.body)["error"]
