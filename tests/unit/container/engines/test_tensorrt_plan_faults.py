"""Plans that do not fit, do not run, or get foreign rows; nothing is left behind."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.batching.failures import BROKEN
from container.server.engines.engine import EngineOutOfMemory
from container.server.types import Unavailable
from container.tensorrt.faults import DeviceFault, PlanRefused
from tests.fixtures.recorded_gpu.cuda import Error
from tests.fixtures.recorded_gpu.tensorrt import arithmetic, embedder
from tests.unit.container.engines.plan_archives import (
    LONG,
    SMALL,
    GpuMachine,
    run_rows,
    tensor_archive,
    text_archive,
    texts,
)


@pytest.fixture
def machine():
    return GpuMachine()


def test_refuses_a_plan_that_the_gpu_has_no_memory_for(machine, tmp_path):
    machine.trt.short_of_memory = "plan"
    sentence = r"model\.plan does not fit the GPU memory that is left: .*out of memory"
    with pytest.raises(EngineOutOfMemory, match=sentence):
        machine.open_text(tmp_path, SMALL)


def test_refuses_a_gpu_that_is_full_before_cuda_starts(machine, tmp_path):
    machine.cuda.fails["cudaSetDevice"] = Error.cudaErrorMemoryAllocation
    machine.trt.starts = False
    with pytest.raises(
        EngineOutOfMemory, match=r"model\.plan does not .* CUDA fails with out of me"
    ):
        machine.open_text(tmp_path, SMALL)


@pytest.mark.parametrize("contexts", [0, 1])
def test_refuses_contexts_that_the_gpu_has_no_memory_for(machine, tmp_path, contexts):
    machine.trt.short_of_memory, machine.trt.short_after = "context", contexts
    with pytest.raises(EngineOutOfMemory, match=r"gets no execution context .*OutOfMemory"):
        machine.open_text(tmp_path, SMALL, slots=2)
    assert machine.is_empty()


def test_refuses_graph_contexts_that_the_gpu_has_no_memory_for(machine, tmp_path):
    engine = machine.open_text(tmp_path, SMALL)
    machine.trt.short_of_memory = "context"
    with pytest.raises(EngineOutOfMemory):
        engine.warm_up()
    engine.close()
    assert machine.is_empty()


@pytest.mark.parametrize("slots_that_fit", [0, 1])
def test_refuses_buffers_that_the_gpu_has_no_memory_for(tmp_path, slots_that_fit):
    machine = GpuMachine(total=(8 << 20) + slots_that_fit * (4 << 20) + 1000)
    with pytest.raises(EngineOutOfMemory, match=r"CUDA fails with out of memory \(2\)"):
        machine.open_text(tmp_path, SMALL, slots=2)
    assert machine.is_empty()


def test_refuses_page_locked_memory_that_the_host_lacks(machine, tmp_path):
    machine.cuda.fails["cudaMallocHost"] = Error.cudaErrorMemoryAllocation
    with pytest.raises(EngineOutOfMemory, match="out of memory"):
        machine.open_text(tmp_path, SMALL)
    assert machine.is_empty()


def test_closing_gives_back_what_a_broken_gpu_still_takes(machine, tmp_path):
    engine = machine.open_text(tmp_path, SMALL, slots=2)
    engine.warm_up()
    machine.cuda.fails["cudaGraphExecDestroy"] = Error.cudaErrorIllegalAddress
    with pytest.raises(DeviceFault, match="illegal memory access"):
        engine.close()
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


def test_refuses_rows_longer_than_any_profile(machine, tmp_path):
    engine = machine.open_text(tmp_path, SMALL)
    with pytest.raises(ValueError, match="takes 17 tokens; allowed: 4 to 16"):
        engine.prepare(texts(17))


def test_refuses_tensors_of_a_length_that_no_profile_takes(machine, tmp_path):
    batch, sequence = (1, 4, 8), (2, 16, 64)
    archive = tensor_archive(tmp_path, arithmetic(batch, sequence), batch, sequence=sequence)
    with pytest.raises(ValueError, match="takes a length of 65; allowed: 2 to 64"):
        machine.open(archive).prepare([(np.zeros(65, np.float32), np.array([1]))])


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


def test_refuses_in_cudas_words_what_fails_on_the_gpu(machine, tmp_path):
    engine = machine.open_text(tmp_path, SMALL)
    engine.warm_up()
    machine.cuda.fails["cudaStreamSynchronize"] = Error.cudaErrorIllegalAddress
    with pytest.raises(DeviceFault, match=r"an illegal memory access \(700\)"):
        run_rows(engine, texts(4))
