"""What the engine, the archive and memory do wrong, and what clients of one model see of it.

Real server processes, a faulty engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.engine_faults import FAILS, LARGE, NO_MEMORY_TO_RUN, NO_MEMORY_TO_WARM, POISON
from tests.contract.faulty_server import (
    REAL,
    FaultyServer,
    is_refusal,
    launched_server,
    same,
    texts_of,
)
from tests.contract.server_process import until
from tests.fixtures.tiny_embedder.archive import MODEL, write_archive

QUEUE = {"ROUNDHOUSE_SLOTS": "1", "ROUNDHOUSE_QUEUE_ROWS": "8", "ROUNDHOUSE_MAX_REQUEST_ROWS": "8"}


@pytest.fixture(scope="module")
def server(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyServer]:
    """A server whose queue holds eight rows, before an engine of one slot."""
    with launched_server(archive, tmp_path_factory.mktemp("faulty"), **QUEUE) as one:
        yield one


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for answers."""
    with ThreadPoolExecutor(16) as threads:
        yield threads


def waits(server: FaultyServer, rows: int) -> None:
    """Until so many rows are in the queue."""
    until(lambda: server.metric("roundhouse_queue_rows") == rows, f"{rows} rows in the queue")


def test_engine_that_raises_mid_batch_refuses_the_request_to_blame_and_answers_its_mates(
    server, pool
):
    right = {text: server.caller().ask(text).vectors for text in ("a dog", "the cat", "a mat")}
    with server.hold_batches():
        first = pool.submit(server.caller().ask, "a dog")
        server.wait_until_taken()
        mates = {text: pool.submit(server.caller().ask, text) for text in right}
        poison = pool.submit(server.caller().ask, texts_of(POISON))
        waits(server, 4)
    assert same(first.result().vectors, right["a dog"])
    assert is_refusal(poison.result(), 422)
    assert all(same(answer.result().vectors, right[text]) for text, answer in mates.items())
    assert server.ping() == 200
    assert "Traceback" not in poison.result().sentence
    until(lambda: server.lines("engine_failed"), "the rest in the log")


def test_client_that_leaves_takes_its_rows_with_it(server, pool):
    dropped = server.metric("roundhouse_dropped_rows_total")
    with server.hold_batches():
        first = pool.submit(server.caller().ask, "a dog")
        server.wait_until_taken()
        leaver = server.caller()
        header = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 27\r\n\r\n"
        leaver.send(header + b'{"inputs": ["a", "b", "c"]}')
        waits(server, 3)
        leaver.close()
        waits(server, 0)
    assert first.result().status == 200
    until(lambda: server.metric("roundhouse_dropped_rows_total") == dropped + 3, "three drops")


def test_broken_engine_makes_health_503_for_good(archive, tmp_path):
    with launched_server(archive, tmp_path) as server:
        server.demand(FAILS)
        assert is_refusal(server.caller().ask("a dog"))
        server.end(FAILS)
        until(lambda: server.ping() == 503, "an unhealthy server")
        callers = [server.caller() for _ in range(4)]
        assert all(is_refusal(caller.request("GET", "/ping")) for caller in callers)
        assert all("fails on every request" in caller.ask("a dog").sentence for caller in callers)
        assert server.process.poll() is None and b"Traceback" not in server.log.read_bytes()
        server.terminate()
        assert server.exit_code() == 0


def _truncated(name: str):
    def spoil(root: Path) -> None:
        file = root / name
        file.write_bytes(file.read_bytes()[:-200])

    return spoil


def _foreign(root: Path) -> None:
    root.rename(root.with_name("first"))
    write_archive(root, compute_capability="9.0")


def _rename(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))


def _unlink(name: str):
    return lambda root: (root / name).unlink()


ENGINE, TOKENIZER = f"{MODEL}/1/model.onnx", f"{MODEL}/1/tokenizer.json"
ARCHIVES = {
    "no folder": (_rename, "manifest.json is missing"),
    "no manifest": (_unlink("manifest.json"), "manifest.json is missing"),
    "truncated manifest": (_truncated("manifest.json"), "manifest.json cannot be read"),
    "truncated engine": (_truncated(ENGINE), "model.onnx has sha256"),
    "truncated tokenizer": (_truncated(TOKENIZER), "tokenizer.json has sha256"),
    "missing engine": (_unlink(ENGINE), "is not in the archive"),
    "foreign": (_foreign, "the engine was made for compute capability 9.0"),
}


def test_refuses_an_archive_with_exit_code_3_and_one_sentence(tmp_path):
    with ExitStack() as servers:
        running = {}
        for name, (spoil, _) in ARCHIVES.items():
            root = tmp_path / name / "model"
            write_archive(root)
            spoil(root)
            server = launched_server(root, root.parent, module=REAL, ready=False)
            running[name] = servers.enter_context(server)
        for name, (_, sentence) in ARCHIVES.items():
            assert running[name].exit_code() == 3, name
            (line,) = running[name].log.read_text().splitlines()
            assert line.startswith("Refused: ") and sentence in line, line


def test_refuses_an_engine_that_does_not_fit_with_exit_code_4(archive, tmp_path):
    with launched_server(archive, tmp_path, faults=[NO_MEMORY_TO_WARM], ready=False) as server:
        assert server.exit_code() == 4
        (line,) = server.log.read_text().splitlines()
        assert "cannot be loaded: Failed to allocate memory" in line


def test_memory_that_is_short_for_a_request_is_503_and_the_same_request_succeeds_later(server):
    caller, large = server.caller(), texts_of(LARGE)
    right = caller.ask(large).vectors
    server.demand(NO_MEMORY_TO_RUN)
    answer = caller.ask(large)
    assert is_refusal(answer, 503)
    assert "Memory is too short for this request" in answer.sentence
    assert (caller.ask("a dog").status, server.ping()) == (200, 200)
    server.end(NO_MEMORY_TO_RUN)
    assert same(caller.ask(large).vectors, right)
