"""What the engine, the archive and memory do wrong, and what clients see of it.

Real server processes, a faulty engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onboarding.manifest import ProfileRecord
from tests.contract.engine_faults import (
    FAILS,
    LARGE,
    NO_MEMORY,
    NO_MEMORY_AT_ALL,
    NO_MEMORY_TO_RUN,
    NO_MEMORY_TO_WARM,
    POISON,
)
from tests.contract.faulty_server import (
    FAULTY,
    REAL,
    Answer,
    Caller,
    Faulty,
    Gone,
    load,
    same,
    start,
    terminate,
    texts_of,
    until,
)
from tests.contract.test_pressure import reply
from tests.fixtures.tiny_embedder.archive import MODEL, write_archive

PROCESSES = (1, 2)
LAST_WORDS = ("std::bad_alloc", "cannot allocate memory for thread-local data")
QUEUE = {"ROUNDHOUSE_SLOTS": "1", "ROUNDHOUSE_QUEUE_ROWS": "8", "ROUNDHOUSE_MAX_REQUEST_ROWS": "8"}


@pytest.fixture(scope="module", params=PROCESSES, ids=lambda count: f"{count}-process")
def server(
    request: pytest.FixtureRequest, archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Faulty]:
    """A server whose queue holds eight rows, before an engine of one slot."""
    one = start(
        archive,
        tmp_path_factory.mktemp("faulty"),
        ROUNDHOUSE_HTTP_PROCESSES=str(request.param),
        **QUEUE,
    )
    try:
        one.wait_until_ready()
        yield one
    finally:
        one.stop()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for answers."""
    with ThreadPoolExecutor(16) as threads:
        yield threads


def is_refusal(answer: Answer, status: int = 503) -> bool:
    """A sentence, with a time to come back where it says 503."""
    return (
        answer.status == status
        and bool(answer.sentence)
        and (status != 503 or int(answer.headers["retry-after"]) > 0)
    )


def waits(server: Faulty, rows: int) -> None:
    """Until so many rows are in the queue."""
    until(lambda: server.metric("roundhouse_queue_rows") == rows, f"{rows} rows in the queue")


def test_engine_that_raises_mid_batch_refuses_the_request_to_blame_and_answers_its_mates(
    server, pool
):
    right = {text: server.caller().ask(text).vectors for text in ("a dog", "the cat", "a mat")}
    with server.held():
        first = pool.submit(server.caller().ask, "a dog")
        server.wait_until_taken()
        mates = {text: pool.submit(server.caller().ask, text) for text in right}
        poison = pool.submit(server.caller().ask, texts_of(POISON))
        waits(server, 4)
    assert same(first.result().vectors, right["a dog"])
    assert is_refusal(poison.result(), 422)
    assert all(same(answer.result().vectors, right[text]) for text, answer in mates.items())
    assert server.ping() == 200
    assert all("Traceback" not in answer.result().sentence for answer in (poison,))
    until(lambda: server.lines("engine_failed"), "the rest in the log")


def test_full_queue_is_said_with_a_time_to_come_back_and_costs_those_who_wait_nothing(server, pool):
    with server.held():
        first = pool.submit(server.caller().ask, "a dog")
        server.wait_until_taken()
        waiting = pool.submit(server.caller().ask, *["the cat"] * 8)
        waits(server, 8)
        turned_away = [server.caller().ask("a mat") for _ in range(20)]
        assert server.ping() == 200
    assert all(is_refusal(answer) and "8 rows wait" in answer.sentence for answer in turned_away)
    assert len(first.result().vectors) == 1 and len(waiting.result().vectors) == 8


def test_deadline_ends_one_request_and_no_other(server, pool):
    with server.held():
        first = pool.submit(server.caller().ask, "a dog")
        server.wait_until_taken()
        waiting = pool.submit(server.caller().ask, "the cat")
        waits(server, 1)
        late = server.caller().ask("a mat", parameters={"timeout": 30_000})
        waits(server, 1)
    (waited,) = re.findall(r"waited ([\d.]+) s", late.sentence)
    assert is_refusal(late) and 0.02 < float(waited) < 10
    assert (first.result().status, waiting.result().status) == (200, 200)


def test_client_that_leaves_takes_its_rows_with_it(server, pool):
    dropped = server.metric("roundhouse_dropped_rows_total")
    with server.held():
        first = pool.submit(server.caller().ask, "a dog")
        server.wait_until_taken()
        leaver = server.caller()
        leaver.send(
            b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 27\r\n\r\n"
            + b'{"inputs": ["a", "b", "c"]}'
        )
        waits(server, 3)
        leaver.close()
        waits(server, 0)
    assert first.result().status == 200
    until(
        lambda: server.metric("roundhouse_dropped_rows_total") == dropped + 3,
        "three rows counted as dropped",
    )


@pytest.mark.parametrize("processes", PROCESSES)
def test_broken_engine_makes_health_503_for_good(processes, archive, tmp_path):
    server = start(archive, tmp_path, ROUNDHOUSE_HTTP_PROCESSES=str(processes))
    try:
        server.wait_until_ready()
        server.demand(FAILS)
        assert is_refusal(server.caller().ask("a dog"))
        server.end(FAILS)
        until(lambda: server.ping() == 503, "an unhealthy server")
        callers = [server.caller() for _ in range(4)]
        assert all(is_refusal(caller.request("GET", "/ping")) for caller in callers)
        assert all("fails on every request" in caller.ask("a dog").sentence for caller in callers)
        assert server.process.poll() is None and b"Traceback" not in server.log.read_bytes()
        terminate(server.process)
        assert server.ended() == 0
    finally:
        server.stop()


def _truncated(name: str):
    def spoil(root: Path) -> None:
        file = root / name
        file.write_bytes(file.read_bytes()[:-200])

    return spoil


def _foreign(root: Path) -> None:
    root.rename(root.with_name("first"))
    write_archive(root, compute_capability="9.0")


ARCHIVES = {
    "no folder": (
        lambda root: root.rename(root.with_name("elsewhere")),
        "manifest.json is missing",
    ),
    "no manifest": (lambda root: (root / "manifest.json").unlink(), "manifest.json is missing"),
    "truncated manifest": (_truncated("manifest.json"), "manifest.json cannot be read"),
    "truncated engine": (_truncated(f"{MODEL}/1/model.onnx"), "model.onnx has sha256"),
    "truncated tokenizer": (_truncated(f"{MODEL}/1/tokenizer.json"), "tokenizer.json has sha256"),
    "missing engine": (
        lambda root: (root / MODEL / "1" / "model.onnx").unlink(),
        "is not in the archive",
    ),
    "foreign": (_foreign, "the engine was made for compute capability 9.0"),
}


@pytest.mark.parametrize("processes", PROCESSES)
def test_refuses_an_archive_with_exit_code_3_and_one_sentence(processes, tmp_path):
    servers = {}
    try:
        for name, (spoil, _) in ARCHIVES.items():
            root = tmp_path / name / "model"
            write_archive(root)
            spoil(root)
            servers[name] = start(
                root, tmp_path / name, module=REAL, ROUNDHOUSE_HTTP_PROCESSES=str(processes)
            )
        for name, (_, sentence) in ARCHIVES.items():
            assert servers[name].ended() == 3, name
            (line,) = servers[name].log.read_text().splitlines()
            assert line.startswith("Refused: ") and sentence in line, line
    finally:
        for server in servers.values():
            server.stop()


@pytest.mark.parametrize("processes", PROCESSES)
def test_refuses_an_engine_that_does_not_fit_with_exit_code_4(processes, archive, tmp_path):
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults" / NO_MEMORY_TO_WARM).touch()
    server = start(archive, tmp_path, ROUNDHOUSE_HTTP_PROCESSES=str(processes))
    try:
        assert server.ended() == 4
        (line,) = server.log.read_text().splitlines()
        assert "cannot be loaded: Failed to allocate memory" in line
    finally:
        server.stop()


def ask(caller: Caller, name: str) -> Answer:
    """One text of one model."""
    return caller.ask("a dog", path=f"/models/{name}/invoke")


@pytest.fixture(scope="module")
def several(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """A multi-model server that has one model, `first`."""
    server = start(
        archive, tmp_path_factory.mktemp("several"), module=FAULTY, SAGEMAKER_MULTI_MODEL="true"
    )
    try:
        server.wait_until_ready()
        assert load(server.caller(), "first", archive).status == 200
        yield server
    finally:
        server.stop()


def test_memory_that_is_short_for_a_request_is_503_and_the_same_request_succeeds_later(server):
    caller, large = server.caller(), texts_of(LARGE)
    right = caller.ask(large).vectors
    server.demand(NO_MEMORY_TO_RUN)
    answer = caller.ask(large)
    assert (
        is_refusal(answer, listed("python-server"))
        and "Memory is too short for this request" in answer.sentence
    )
    assert (caller.ask("a dog").status, server.ping()) == (200, 200)
    server.end(NO_MEMORY_TO_RUN)
    assert same(caller.ask(large).vectors, right)


@pytest.mark.parametrize("fault", [NO_MEMORY_TO_RUN, NO_MEMORY_AT_ALL])
def test_memory_that_is_short_for_a_request_of_several_models_asks_sagemaker_to_unload_others(
    several, fault
):
    caller, large = several.caller(), texts_of(LARGE)
    several.demand(fault)
    answer = caller.ask(large, path="/models/first/invoke")
    assert is_refusal(answer, listed("python-mme")) and several.ping() == 200
    several.end(fault)
    assert caller.ask(large, path="/models/first/invoke").status == 200


def listed(kind: str) -> int:
    """What the list says of memory that is short."""
    return reply("the engine says that memory is short", kind).status


@pytest.mark.parametrize("when", [NO_MEMORY, NO_MEMORY_TO_WARM])
def test_gpu_without_memory_at_load_is_507_and_the_same_load_succeeds_once_there_is_some(
    several, archive, when
):
    caller, name = several.caller(), f"large-{when}"
    several.demand(when)
    for _ in range(3):
        answer = load(caller, name, archive)
        assert is_refusal(answer, 507) and "unload others first" in answer.sentence
        assert (ask(caller, "first").status, ask(caller, name).status, several.ping()) == (
            200,
            404,
            200,
        )
    several.end(when)
    assert load(caller, name, archive).status == 200
    assert ask(caller, name).status == 200
    assert [
        line["status"] for line in several.lines("load_out_of_memory") if line["model"] == name
    ] == [507] * 3


def test_engine_that_breaks_in_a_server_of_several_models_leaves_the_others(several, archive, pool):
    caller = several.caller()
    assert load(caller, "breaks", archive).status == 200
    several.demand(FAILS)
    assert is_refusal(ask(caller, "breaks"))
    several.end(FAILS)
    assert is_refusal(ask(caller, "breaks")) and ask(caller, "first").status == 200
    assert caller.request("DELETE", "/models/breaks").status == 200
    assert load(caller, "breaks", archive).status == 200
    assert ask(caller, "breaks").status == 200
    assert b"Traceback" not in several.log.read_bytes()


def test_address_space_that_ends_is_507_and_unloading_makes_room(archive, tmp_path):
    assert any(makes_room(archive, tmp_path / str(number)) for number in range(6)), (
        "every server died"
    )


def makes_room(archive: Path, folder: Path) -> bool:
    """Whether a server lived through it.

    A native thread that finds no address space ends the process.
    """
    server = start(
        archive, folder, module=REAL, limit="prlimit --as=1200000000", SAGEMAKER_MULTI_MODEL="true"
    )
    try:
        server.wait_until_ready()
        caller, held, refused = server.caller(), [], 0
        while refused < 2:
            name = f"model-{len(held)}-{refused}"
            status = load(caller, name, archive).status
            assert status in (200, 507) and len(held) < 200, status
            held, refused = ([*held, name], refused) if status == 200 else (held, refused + 1)
        assert len(held) > 3
        # What is left may be too little even for a request, which is told so.
        assert {ask(caller, name).status for name in held} <= {
            200,
            listed("python-mme"),
        } and server.ping() == 200
        assert all(caller.request("DELETE", f"/models/{name}").status == 200 for name in held[:3])
        assert load(caller, "one-more", archive).status == 200
        assert caller.request("DELETE", f"/models/{held[3]}").status == 200
        assert {ask(caller, name).status for name in ("one-more", *held[4:])} == {200}
        return True
    except Gone:
        assert server.ended() and any(word in server.log.read_text() for word in LAST_WORDS), (
            server.log.read_text()[-3000:]
        )
        return False
    finally:
        server.stop()


def test_engine_whose_largest_batch_does_not_fit_is_507_at_load(archive, tmp_path):
    """32 rows of a million tokens are 2 GB in the network's first node.

    Warming up is what finds it out.
    """
    large = tmp_path / "large" / "model"
    write_archive(
        large, optimization_profiles=(ProfileRecord(batch=(1, 8, 32), sequence=(8, 16, 1_000_000)),)
    )
    server = start(
        archive,
        tmp_path,
        module=REAL,
        limit="prlimit --as=2000000000",
        SAGEMAKER_MULTI_MODEL="true",
    )
    try:
        server.wait_until_ready()
        caller = server.caller()
        assert load(caller, "first", archive).status == 200
        assert is_refusal(load(caller, "large", large), 507)
        assert (ask(caller, "first").status, server.ping()) == (200, 200)
    finally:
        server.stop()
