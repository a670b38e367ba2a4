"""More than 10,000 requests that no client should send.

No 5xx, no crash, no leak, and the neighbours never notice. Two servers, one of texts and one of
tensors, run as in their image. A well-behaved client asks both throughout. Every random choice
comes from SEED. Slow senders, clients that leave and clients that do not read are bounded by the
server's own request time, which is set to 4 seconds here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from container.client import OUT_OF_TIME
from tests.contract.faulty_server import Gone
from tests.contract.hostile_server import MAX_CONNECTIONS, SEED, Running, running_server
from tests.contract.server_process import SECONDS, until
from tests.fixtures.hostile.clients import (
    ANSWER_SECONDS,
    Tally,
    answer,
    ask_all,
    drip,
    leave_all,
    never_read,
    throw_all,
)
from tests.fixtures.hostile.requests import (
    TENSORS,
    TEXTS,
    VALID,
    hostile_requests,
    smuggling_attempts,
    wire_noise,
)
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, EMBEDDER, REPOSITORY, Tiny

LEAK_MIB = 64
"""What a server may grow by: allocators keep what a burst of 1 MiB bodies once needed."""
CONFORMS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
BODIES, NOISE, LEAVERS, DRIPS, PER_OPERATION = 6000, 1000, 400, 12, 60
SETTINGS = settings(
    max_examples=PER_OPERATION,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
FORMS = ("texts", "tensors")


@pytest.fixture(scope="module")
def servers(
    archives: Callable[[Tiny], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Running]]:
    """A server of texts and one of tensors."""
    folder = tmp_path_factory.mktemp("hostile")
    forms = zip(FORMS, (EMBEDDER, ARITHMETIC), (TEXTS, TENSORS), strict=True)
    with contextlib.ExitStack() as running:
        yield {
            form: running.enter_context(running_server(archives(tiny), folder / form, document))
            for form, tiny, document in forms
        }


@dataclass
class Neighbour:
    """Sends every server the right request on connections of its own, all the time."""

    servers: tuple[Running, ...]
    stop: threading.Event = field(default_factory=threading.Event)
    answers: int = 0
    faults: list[str] = field(default_factory=list)

    def run(self) -> None:
        pairs = [(server, server.caller()) for server in self.servers]
        right = [server.ask(caller) for server, caller in pairs]
        while not self.stop.wait(0.02):
            for (server, caller), numbers in zip(pairs, right, strict=True):
                try:
                    assert server.ask(caller) == pytest.approx(numbers, abs=1e-5)
                    self.answers += 1
                except (AssertionError, *Gone) as fault:
                    self.faults.append(repr(fault))
                    caller.close()
        for _, caller in pairs:
            caller.close()


@pytest.fixture(scope="module")
def neighbour(servers: dict[str, Running]) -> Iterator[Neighbour]:
    """Asks from before the first hostile request until after the last."""
    one = Neighbour(tuple(servers.values()))
    thread = threading.Thread(target=one.run)
    thread.start()
    yield one
    one.stop.set()
    thread.join()


@pytest.fixture(scope="module", params=FORMS)
def running(
    request: pytest.FixtureRequest, servers: dict[str, Running], neighbour: Neighbour
) -> Running:
    """Each server after the other, with the neighbour before all."""
    return servers[request.param]


def check_tally(running: Running) -> Tally:
    """The tally, which must hold nothing wrong; the server lives."""
    assert running.process.poll() is None, running.log.read_text()[-3000:]
    wrong, running.tally.wrong = running.tally.wrong, []
    assert wrong[:5] == []
    return running.tally


def test_hostile_bodies_get_one_answer_each(running):
    before = running.tally.sent
    requests = hostile_requests(SEED, BODIES, running.document)
    asyncio.run(ask_all(running.port, requests, running.tally))
    tally = check_tally(running)
    assert tally.sent - before == BODIES
    # Else the requests are too tame.
    assert {200, 400, 404, 405, 415} <= set(tally.statuses)


def test_noise_on_the_wire_is_refused_or_answered(running):
    asyncio.run(throw_all(running.port, wire_noise(SEED, NOISE), running.tally))
    assert {400, 413, 431} <= set(check_tally(running).statuses)


def test_no_request_is_smuggled_behind_a_disputed_end(running):
    throws = smuggling_attempts()
    answers = asyncio.run(
        throw_all(running.port, throws, running.tally, silence_seconds=ANSWER_SECONDS)
    )
    check_tally(running)
    # Exactly one answer, and nothing after it is read.
    assert answers and all(statuses == [400] for statuses in answers)


def test_clients_that_leave_are_let_go(running):
    asyncio.run(leave_all(running.port, [VALID] * LEAVERS, running.tally))
    check_tally(running)


def test_slow_senders_are_refused_and_closed(running):
    header, _, _ = VALID.partition(b"\r\n\r\n")

    async def scenario() -> list[int]:
        slow = [
            VALID[: 10 * number] + b"a" * 200 if number < 6 else header + b"\r\nA: " + b"x" * 200
            for number in range(1, DRIPS)
        ]
        return await asyncio.gather(*(drip(running.port, data, running.tally) for data in slow))

    assert set(asyncio.run(scenario())) <= {400, 408} and 408 in check_tally(running).statuses


def test_clients_that_never_read_are_closed(running):
    async def scenario() -> list[bool]:
        return await asyncio.gather(
            *(never_read(running.port, VALID * 50, running.tally) for _ in range(3))
        )

    assert asyncio.run(scenario()) == [True] * 3
    check_tally(running)


def test_connections_beyond_the_most_are_answered_503(running):
    async def scenario() -> list[int]:
        opened = [
            await asyncio.open_connection("127.0.0.1", running.port)
            for _ in range(MAX_CONNECTIONS + 20)
        ]
        running.tally.sent += 20
        last = [(await asyncio.wait_for(answer(reader), SECONDS))[0] for reader, _ in opened[-20:]]
        for _, writer in opened:
            writer.close()
        return last

    assert asyncio.run(scenario()) == [503] * 20
    until(lambda: running.files() < MAX_CONNECTIONS, "the end of the clients' connections")


@pytest.mark.parametrize("mode", GenerationMode, ids=str)
def test_openapi_contract_holds_for_what_schemathesis_sends(running, mode):
    document = yaml.safe_load((REPOSITORY / "docs" / "openapi.yaml").read_text())
    schema = schemathesis.openapi.from_dict(document)
    cases = 0

    def send(case):
        nonlocal cases
        cases += 1
        response = case.call(base_url=f"http://127.0.0.1:{running.port}", timeout=SECONDS)
        running.tally.sent += 1
        body, is_head = repr(case.body).encode(), case.method == "HEAD"
        running.tally.take(body, response.status_code, response.content, is_head=is_head)
        if case.method.upper() == case.operation.method.upper():
            # A request that asks for its answer within microseconds may hear 503, as the
            # contract says.
            is_late = response.status_code == 503 and any(
                words in response.text for words in OUT_OF_TIME
            )
            case.validate_response(response, checks=CONFORMS[1:] if is_late else CONFORMS)

    for operation in schema.get_all_operations():
        strategy = operation.ok().as_strategy(generation_mode=mode)
        with contextlib.suppress(Unsatisfiable):  # nothing is wrong about a GET without parameters
            seed(SEED)(SETTINGS(given(case=strategy)(send)))()
    check_tally(running)
    assert cases >= PER_OPERATION


def test_servers_are_as_before_and_the_neighbour_never_noticed(servers, neighbour):
    assert sum(running.tally.sent for running in servers.values()) >= 10_000
    for running in servers.values():
        most = running.files_before + 1
        until(lambda one=running, most=most: one.files() <= most, "the end of open files")
        assert running.mib() <= running.mib_before + LEAK_MIB
        log = running.log.read_bytes()
        assert b"Traceback" not in log and b'"status":500' not in log
    assert neighbour.faults == [] and neighbour.answers > 200
