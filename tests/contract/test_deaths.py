"""Servers that are told to end: what was taken is answered, and in time."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.engine_faults import LOADS
from tests.contract.faulty_server import REAL, FaultyServer, Gone, launched_server
from tests.contract.server_process import until

TEXTS = ("the cat sat on the mat", "a dog")
LESS_THAN_THE_DEFAULT = 20
"""Seconds, of ROUNDHOUSE_DRAIN_SECONDS: who ends so soon has read what it was given."""


@pytest.fixture
def server(archive: Path, tmp_path: Path) -> Iterator[FaultyServer]:
    """A healthy server of one slot."""
    with launched_server(archive, tmp_path, ROUNDHOUSE_SLOTS="1") as one:
        yield one


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


def test_sigterm_is_obeyed_in_time_though_the_engine_never_ends(archive, tmp_path):
    with (
        launched_server(archive, tmp_path, ROUNDHOUSE_DRAIN_SECONDS="1") as server,
        ThreadPoolExecutor(1) as pool,
        server.hold_batches(),
    ):
        stuck = pool.submit(server.caller().ask, *TEXTS)
        server.wait_until_taken()
        server.terminate()
        assert isinstance(stuck.exception(LESS_THAN_THE_DEFAULT), Gone)
        assert server.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_signal_while_the_engine_loads_ends_the_server(number, archive, tmp_path):
    with launched_server(archive, tmp_path, faults=[LOADS], ready=False) as server:
        until(lambda: server.ping() == 503, "a server that loads")
        server.process.send_signal(number)
        assert server.exit_code() == 0
        log = server.log.read_text()
        assert len(log.splitlines()) <= 1 and "Traceback" not in log


def test_ctrl_c_while_the_server_is_still_importing_ends_it_without_a_word(archive, tmp_path):
    with launched_server(archive, tmp_path, module=REAL, ready=False) as server:
        maps = Path(f"/proc/{server.process.pid}/maps")
        until(lambda: "/numpy/" in maps.read_text(), "numpy imported")
        server.process.send_signal(signal.SIGINT)
        assert server.exit_code() in (0, -signal.SIGINT)
        assert "Traceback" not in server.log.read_text()
