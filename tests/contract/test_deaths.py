"""Servers that are killed, replaced and drained under load: health is true, requests answered."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.crowd import GONE, OK, TEXTS, TURNED, UNAVAILABLE, Crowd
from tests.contract.engine_faults import LOADS
from tests.contract.faulty_server import FaultyServer, Gone, launched_server, load, ports_served_by
from tests.contract.server_process import REAL, child_processes, until

PROCESSES = (1, 2)
CROWD = 6
LESS_THAN_THE_DEFAULT = 20
"""Seconds, of ROUNDHOUSE_DRAIN_SECONDS: who ends so soon has read what it was given."""


@pytest.fixture(params=PROCESSES, ids=lambda count: f"{count}-process")
def processes(request: pytest.FixtureRequest) -> str:
    """How many HTTP processes."""
    return str(request.param)


@pytest.fixture
def server(processes: str, archive: Path, tmp_path: Path) -> Iterator[FaultyServer]:
    """A healthy server of one slot."""
    variables = {"ROUNDHOUSE_HTTP_PROCESSES": processes, "ROUNDHOUSE_SLOTS": "1"}
    with launched_server(archive, tmp_path, **variables) as one:
        yield one


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_health_is_true_through_kill_9_under_load_and_restart(server, processes, archive, tmp_path):
    # The second server outlives the crowd: one death only comes between a word and its keeping.
    with (
        ExitStack() as after,
        Crowd(server, server.caller().ask(*TEXTS).vectors, size=CROWD) as crowd,
    ):
        until(lambda: crowd.count(OK) > 50, "a crowd that is answered")
        fronts = child_processes(server.process.pid)
        os.kill(server.process.pid, signal.SIGKILL)
        until(lambda: crowd.all_met(GONE), "a crowd that has noticed")
        until(lambda: not any(map(is_alive, fronts)), "no HTTP process that outlives its owner")
        server.process.wait()
        assert server.ping() is None
        server.demand(LOADS)
        variables = {"ROUNDHOUSE_HTTP_PROCESSES": processes, "ROUNDHOUSE_SLOTS": "1"}
        again = after.enter_context(
            launched_server(archive, tmp_path, port=server.port, ready=False, **variables)
        )
        refused, answered = crowd.count(UNAVAILABLE), crowd.count(OK)
        until(
            lambda: crowd.health.met["503"] > 5 and crowd.count(UNAVAILABLE) > refused + 5,
            "a server that says it loads",
        )
        assert crowd.count(OK) == answered
        healthy = crowd.health.met["200"]
        server.end(LOADS)
        until(
            lambda: crowd.health.met["200"] > healthy and crowd.count(OK) > answered + 50,
            "a crowd that is answered again",
        )
        assert again.process.poll() is None
    assert crowd.wrong() == [] and crowd.health.met[TURNED] <= 1
    assert b"Traceback" not in server.log.read_bytes()


@pytest.mark.parametrize("processes", ["2"])
def test_front_that_is_killed_under_load_takes_only_its_own_connections_and_is_replaced(
    processes, server
):
    until(lambda: server.metric("roundhouse_http_processes") == 2, "two processes")
    with Crowd(server, server.caller().ask(*TEXTS).vectors, size=CROWD) as crowd:
        until(lambda: crowd.count(OK) > 50 and crowd.all_met(OK), "a crowd that is answered")
        victim, other = child_processes(server.process.pid)
        theirs = ports_served_by(victim)
        os.kill(victim, signal.SIGKILL)
        until(lambda: server.metric("roundhouse_http_process_deaths_total") == 1, "a death counted")
        until(lambda: server.metric("roundhouse_http_processes") == 2, "another process instead")
        answered = crowd.count(OK)
        until(lambda: crowd.count(OK) > answered + 50, "a crowd that is answered again")
        assert other in child_processes(server.process.pid) and victim not in child_processes(
            server.process.pid
        )
    hit = [outcomes for outcomes in crowd.outcomes if outcomes.ports[0] in theirs]
    spared = [outcomes for outcomes in crowd.outcomes if outcomes not in hit]
    assert hit and all(1 <= outcomes.met[GONE] <= 3 for outcomes in hit)
    assert spared
    assert all(outcomes.met[GONE] == outcomes.met[UNAVAILABLE] == 0 for outcomes in spared)
    assert crowd.wrong() == [] and set(crowd.health.met) == {"200"}
    assert [line["exit_code"] for line in server.lines("http_process_died")] == [-9]


def test_sigterm_answers_all_that_was_taken_and_takes_nothing_more(server):
    body = json.dumps({"inputs": TEXTS}).encode()
    header = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    late, idle = server.caller(), server.caller()
    with ThreadPoolExecutor(13) as pool:
        with server.hold_batches():
            late.send(header + body[:10])
            taken = [pool.submit(server.caller().ask, *TEXTS)]
            server.wait_until_taken()
            taken += [pool.submit(server.caller().ask, *TEXTS) for _ in range(11)]
            until(
                lambda: server.metric("roundhouse_queue_rows") == 22,
                "eleven requests that wait behind the one that runs",
            )
            server.terminate()
            assert idle.read() == b""
            until(lambda: server.ping() is None, "a server that takes nobody more")
            late.send(body[10:])
            turned_away = late.read()
        assert all(len(answer.result().vectors) == len(TEXTS) for answer in taken)
    assert turned_away.startswith(b"HTTP/1.1 503 ") and b"retry-after" in turned_away.lower()
    assert server.exit_code() == 0
    assert b"Traceback" not in server.log.read_bytes()


def test_sigterm_under_load_gives_whole_answers_or_none(server):
    with Crowd(server, server.caller().ask(*TEXTS).vectors, size=CROWD) as crowd:
        until(lambda: crowd.count(OK) > 50, "a crowd that is answered")
        server.terminate()
        assert server.exit_code() == 0
    assert crowd.wrong() == []
    assert b"Traceback" not in server.log.read_bytes()


def test_sigterm_is_obeyed_in_time_though_the_engine_never_ends(processes, archive, tmp_path):
    variables = {"ROUNDHOUSE_HTTP_PROCESSES": processes, "ROUNDHOUSE_DRAIN_SECONDS": "1"}
    with (
        launched_server(archive, tmp_path, **variables) as server,
        ThreadPoolExecutor(1) as pool,
        server.hold_batches(),
    ):
        stuck = pool.submit(server.caller().ask, *TEXTS)
        server.wait_until_taken()
        server.terminate()
        assert isinstance(stuck.exception(LESS_THAN_THE_DEFAULT), Gone)
        assert server.exit_code() == 0


@pytest.mark.parametrize("when", ["runs", "loads"])
def test_sigterm_of_several_models_is_obeyed_in_time_though_an_engine_never_ends(
    when, archive, tmp_path
):
    variables = {"SAGEMAKER_MULTI_MODEL": "true", "ROUNDHOUSE_DRAIN_SECONDS": "1"}
    with launched_server(archive, tmp_path, **variables) as server:
        assert load(server.caller(), "stuck", archive).status == 200
        with ThreadPoolExecutor(1) as pool, server.hold_batches():
            if when == "runs":
                stuck = pool.submit(server.caller().ask, *TEXTS, path="/models/stuck/invoke")
            else:
                server.demand(LOADS)
                stuck = pool.submit(load, server.caller(), "another", archive)
            server.wait_until_taken()
            server.terminate()
            assert isinstance(stuck.exception(LESS_THAN_THE_DEFAULT), Gone)
            assert server.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_signal_while_the_engine_loads_ends_the_server(number, processes, archive, tmp_path):
    variables = {"ROUNDHOUSE_HTTP_PROCESSES": processes}
    with launched_server(archive, tmp_path, faults=[LOADS], ready=False, **variables) as server:
        until(lambda: server.ping() == 503, "a server that loads")
        server.process.send_signal(number)
        assert server.exit_code() == 0
        log = server.log.read_text()
        assert len(log.splitlines()) <= 1 and "Traceback" not in log


def test_ctrl_c_while_the_server_is_still_importing_ends_it_without_a_word(
    processes, archive, tmp_path
):
    variables = {"ROUNDHOUSE_HTTP_PROCESSES": processes}
    with launched_server(archive, tmp_path, module=REAL, ready=False, **variables) as server:
        maps = Path(f"/proc/{server.process.pid}/maps")
        until(lambda: "/numpy/" in maps.read_text(), "numpy imported")
        server.process.send_signal(signal.SIGINT)
        assert server.exit_code() in (0, -signal.SIGINT)
        assert "Traceback" not in server.log.read_text()
