"""What engines and memory do wrong in a server of several models, and what clients see of it.

Real server processes, a faulty engine.
"""

from __future__ import annotations

from collections.abc import Iterator
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
)
from tests.contract.faulty_server import (
    FAULTY,
    REAL,
    Answer,
    Caller,
    Faulty,
    Gone,
    is_refusal,
    load,
    start,
    texts_of,
)
from tests.contract.pressure_exchanges import reply
from tests.fixtures.tiny_embedder.archive import write_archive

LAST_WORDS = ("std::bad_alloc", "cannot allocate memory for thread-local data")
MEMORY_IS_SHORT = reply("the engine says that memory is short", "python-mme").status


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


@pytest.mark.parametrize("fault", [NO_MEMORY_TO_RUN, NO_MEMORY_AT_ALL])
def test_memory_that_is_short_for_a_request_of_several_models_asks_sagemaker_to_unload_others(
    several, fault
):
    caller, large = several.caller(), texts_of(LARGE)
    several.demand(fault)
    answer = caller.ask(large, path="/models/first/invoke")
    assert is_refusal(answer, MEMORY_IS_SHORT) and several.ping() == 200
    several.end(fault)
    assert caller.ask(large, path="/models/first/invoke").status == 200


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


def test_engine_that_breaks_in_a_server_of_several_models_leaves_the_others(several, archive):
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
        # What is left may be too little even for a request, which is refused so.
        assert {ask(caller, name).status for name in held} <= {
            200,
            MEMORY_IS_SHORT,
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
