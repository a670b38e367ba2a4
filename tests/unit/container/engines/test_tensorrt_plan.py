"""Plans as the server runs and refuses them, on stand-ins that answer wrong for wrong addresses."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.batching.failures import BROKEN
from container.server.types import Unavailable
from container.tensorrt.faults import DeviceFault, PlanRefused
from tests.fixtures.recorded_gpu.cuda import Error
from tests.fixtures.recorded_gpu.tensorrt import arithmetic, embedder
from tests.unit.container.engines.plan_archives import (
    LONG,
    SMALL,
    GpuMachine,
    expected,
    plan_record,
    run_rows,
    tensor_archive,
    text_archive,
    texts,
)


@pytest.fixture
def machine():
    return GpuMachine()


def test_plan_answers_each_row_as_alone(machine, tmp_path):
    engine = machine.open_text(tmp_path, SMALL, LONG)
    engine.warm_up()
    for lengths in ((4,), (1,), (3, 9), (16, 2, 7), (5, 5, 5, 5), (20,), (32, 17)):
        rows = texts(*lengths, seed=sum(lengths))
        assert np.array_equal(run_rows(engine, rows), expected(rows))


def test_batch_that_no_profile_takes_whole_runs_in_parts(machine, tmp_path):
    engine = machine.open_text(tmp_path, SMALL, LONG)
    rows = texts(30, 3, 31, 5)
    assert np.array_equal(run_rows(engine, rows), expected(rows))
    assert [shape for _, _, shape in machine.plan.runs] == [(2, 32), (2, 32)]
    assert engine.warm_up().seconds(4, 30) > 0


def test_each_bucket_is_one_graph_of_a_context_that_never_changes(machine, tmp_path):
    engine = machine.open_text(tmp_path, SMALL)
    engine.warm_up()
    graphs, launches = len(machine.cuda.graphs), machine.cuda.launches
    assert graphs == 3 * 3
    for rows in (texts(4), texts(16, 16, 16), texts(4, seed=7), texts(9, 2)):
        assert np.array_equal(run_rows(engine, rows), expected(rows))
    assert (len(machine.cuda.graphs), machine.cuda.launches) == (graphs, launches + 4)
    assert machine.warnings == []


def test_plan_that_cannot_be_recorded_warns_once_and_answers(machine, tmp_path):
    engine = machine.open_text(tmp_path, SMALL, LONG, slots=2, cannot_be_recorded=True)
    engine.warm_up()
    for slot in (0, 1):
        assert np.array_equal(run_rows(engine, texts(9, 3), slot), expected(texts(9, 3)))
    assert len(machine.warnings) == 1 and "cannot be recorded as CUDA graphs" in machine.warnings[0]
    assert machine.cuda.launches == 0


def tensors(gains, *values):
    """Rows of x, the values times a gain, and of the gain."""
    x = np.array(values, np.float32)
    return [(x * gain, np.array([gain], np.int64)) for gain in gains]


def scaled_rows(rows):
    return np.stack([x * gain for x, gain in rows])


def test_tensors_are_filled_up_and_every_output_is_answered(machine, tmp_path):
    engine = machine.open(tensor_archive(tmp_path, arithmetic((1, 4, 8)), (1, 4, 8)))
    engine.warm_up()
    assert engine.sequence_buckets is None
    rows = tensors((1, 2, 3), 1, -2, 3)
    answer, count = engine.run(engine.prepare(rows), 0)
    assert np.array_equal(answer, scaled_rows(rows))
    assert np.array_equal(count, [[3], [4], [5]])
    assert machine.plan.runs[-1][2] == (4, 3)


def test_tensors_keep_their_length_even_where_no_graph_has_it(machine, tmp_path):
    plan = arithmetic((1, 4, 8), (2, 16, 64))
    engine = machine.open(tensor_archive(tmp_path, plan, (1, 4, 8), sequence=(2, 16, 64)))
    engine.warm_up()
    graphs = len(machine.cuda.graphs)
    for width in (16, 5, 64, 7, 63):
        rows = tensors((2, 5, 7), *range(-2, width - 2))
        assert np.array_equal(run_rows(engine, rows), scaled_rows(rows))
        assert machine.plan.runs[-1][2] == (4, width)
    assert len(machine.cuda.graphs) == graphs
    engine._runner.close()
    assert machine.is_empty()


def test_plan_runs_its_own_code_only_where_the_manifest_says_so(machine, tmp_path):
    plan = embedder([SMALL], has_code=True)
    machine.open(text_archive(tmp_path, plan, SMALL, plan=plan_record("--versionCompatible")))
    assert machine.trt.runtimes[0].engine_host_code_allowed
    with pytest.raises(PlanRefused, match=r"model\.plan does not load"):
        machine.open(text_archive(tmp_path, plan, SMALL))
    assert not machine.trt.runtimes[1].engine_host_code_allowed


def test_closing_gives_back_what_a_broken_gpu_still_takes(machine, tmp_path):
    engine = machine.open_text(tmp_path, SMALL, slots=2)
    engine.warm_up()
    machine.cuda.fails["cudaGraphExecDestroy"] = Error.cudaErrorIllegalAddress
    with pytest.raises(DeviceFault, match="illegal memory access"):
        engine._runner.close()
    assert (machine.cuda.blocks, machine.cuda.host, machine.cuda.queues) == ({}, {}, {})


def test_refuses_a_plan_that_takes_none_of_its_manifests_sizes(machine, tmp_path):
    with pytest.raises(ValueError, match="has no size at which a batch could run"):
        machine.open(text_archive(tmp_path, embedder([LONG]), ((4, 4, 4), (4, 8, 8))))


@pytest.mark.parametrize(
    ("plan", "fault", "sentence"),
    [
        (
            {"inputs": ("input_ids", "attention_mask", "pixels")},
            ValueError,
            "inputs are input_ids, attention_mask, pixels; a text model's are input_ids",
        ),
        (
            {"data_dependent": ["embedding"]},
            PlanRefused,
            "the shape of output embedding follows from values",
        ),
    ],
)
def test_refuses_a_plan_with_foreign_tensors(machine, tmp_path, plan, fault, sentence):
    with pytest.raises(fault, match=sentence):
        machine.open_text(tmp_path, SMALL, **plan)
    assert machine.is_empty()


def test_refuses_a_manifest_that_describes_another_plan(machine, tmp_path):
    with pytest.raises(ValueError, match="no optimization profile of the text model has a seq"):
        machine.open(text_archive(tmp_path, embedder([SMALL]), ((1, 2, 4), None)))
    with pytest.raises(ValueError, match=r"inputs are .*; its manifest says x, gain"):
        machine.open(tensor_archive(tmp_path, embedder([SMALL]), (1, 2, 4)))
    assert machine.is_empty()


def test_refuses_a_run_that_cannot_be_queued(machine, tmp_path):
    engine = machine.open_text(tmp_path, SMALL, refuses_to_run=True)
    with pytest.raises(PlanRefused, match="it cannot be queued"):
        run_rows(engine, texts(4))


def test_lost_cuda_context_makes_the_server_unhealthy(machine, tmp_path):
    async def scenario():
        engine = machine.open_text(tmp_path, SMALL, slots=2)
        costs = engine.warm_up()
        limits = Limits(max_tokens=64, queue_rows=100)
        batcher = Batcher(engine=engine, probe=texts(4), limits=limits, costs=costs)
        (answer,) = await batcher.submit(texts(4, 5))
        assert len(answer) == 2 and not batcher.is_broken
        machine.cuda.sticky = Error.cudaErrorIllegalAddress
        ends = await asyncio.gather(
            *(batcher.submit(texts(length)) for length in (4, 5, 6)), return_exceptions=True
        )
        assert [type(end) for end in ends] == [Unavailable] * 3
        assert batcher.is_broken
        with pytest.raises(Unavailable, match=BROKEN):
            batcher.submit(texts(4))
        batcher.close()

    asyncio.run(scenario())
