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
    Answer,
    Caller,
    FaultyServer,
    is_refusal,
    launched_server,
    load,
    texts_of,
)
from tests.contract.pressure_exchanges import reply
from tests.contract.server_process import REAL
from tests.fixtures.tiny_embedder.archive import write_archive

STACK_BYTES = 8 << 20
"""Of a thread."""
LOADS_BEFORE_THE_LIMIT = 4
MEMORY_IS_SHORT = reply("the engine says that memory is short", "python-mme").status


def ask(caller: Caller, name: str) -> Answer:
    """One text of one model."""
    return caller.ask("a dog", path=f"/models/{name}/invoke")


@pytest.fixture(scope="module")
def several(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyServer]:
    """A multi-model server that has one model, `first`."""
    folder = tmp_path_factory.mktemp("several")
    with launched_server(archive, folder, SAGEMAKER_MULTI_MODEL="true") as server:
        assert load(server.caller(), "first", archive).status == 200
        yield server


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
        assert (ask(caller, "first").status, several.ping()) == (200, 200)
        assert ask(caller, name).status == 404
    several.end(when)
    assert load(caller, name, archive).status == 200
    assert ask(caller, name).status == 200
    lines = [line for line in several.lines("load_out_of_memory") if line["model"] == name]
    assert [line["status"] for line in lines] == [507] * 3


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


def test_address_space_that_ends_is_507_and_unloading_frees_some(archive, tmp_path):
    """It ends in the middle of a thread's stack, so Python is told.

    Native code that is refused its last bytes would end the process. So malloc has two arenas: one
    of its own for every thread reserves all that is left.
    """
    options = {"module": REAL, "limit": f"prlimit --stack={STACK_BYTES}", "MALLOC_ARENA_MAX": "2"}
    with launched_server(archive, tmp_path, **options, SAGEMAKER_MULTI_MODEL="true") as server:
        caller, names, sizes, refusals = server.caller(), [], [], 0
        while refusals < 2:
            name = f"model-{len(names)}-{refusals}"
            status = load(caller, name, archive).status
            assert status in (200, 507) and len(names) < LOADS_BEFORE_THE_LIMIT + 20, status
            if status == 200:
                names.append(name)
                sizes.append(server.address_space())
            else:
                refusals += 1
            if len(names) == LOADS_BEFORE_THE_LIMIT:
                model_bytes = sizes[-1] - sizes[-2]
                server.limit_address_space(sizes[-1] + 3 * model_bytes + STACK_BYTES // 2)
        assert len(names) > LOADS_BEFORE_THE_LIMIT
        # What is left may be too little even for a request, which is refused so.
        assert {ask(caller, name).status for name in names} <= {200, MEMORY_IS_SHORT}
        assert server.ping() == 200
        assert all(caller.request("DELETE", f"/models/{name}").status == 200 for name in names[:3])
        assert load(caller, "one-more", archive).status == 200
        assert caller.request("DELETE", f"/models/{names[3]}").status == 200
        assert {ask(caller, name).status for name in ("one-more", *names[4:])} == {200}


def test_engine_whose_largest_batch_does_not_fit_is_507_at_load(archive, tmp_path):
    """32 rows of a million tokens are 2 GB in the network's first node.

    Warming up is what finds it out.
    """
    large = tmp_path / "large" / "model"
    profile = ProfileRecord(batch=(1, 8, 32), sequence=(8, 16, 1_000_000))
    write_archive(large, optimization_profiles=(profile,))
    options = {"module": REAL, "limit": "prlimit --as=2000000000"}
    with launched_server(archive, tmp_path, **options, SAGEMAKER_MULTI_MODEL="true") as server:
        caller = server.caller()
        assert load(caller, "first", archive).status == 200
        assert is_refusal(load(caller, "large", large), 507)
        assert (ask(caller, "first").status, server.ping()) == (200, 200)
