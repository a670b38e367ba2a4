"""A plan as TensorRT describes it, the choice of its profiles, and the bindings."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from container.tensorrt.bindings import KEPT_ERRORS, bindings, error_logger
from container.tensorrt.faults import (
    DeviceOutOfMemory,
    NoBindings,
    PlanRefused,
    mentions_memory_shortage,
)
from container.tensorrt.plan import Plan, Range, nearest, taking
from tests.fixtures.recorded_gpu.cuda import RecordedCuda
from tests.fixtures.recorded_gpu.tensorrt import RecordedTensorRT, embedder, write_plan


@pytest.fixture
def trt():
    return RecordedTensorRT(RecordedCuda())


def load(tmp_path, trt, **more):
    plan = embedder([((1, 2, 4), (4, 8, 16))], **more)
    return Plan(write_plan(tmp_path / "model.plan", plan), trt=trt)


WIDE = dict.fromkeys(("ids", "mask"), Range(smallest=(1, 4), opt=(8, 64), largest=(16, 128)))
TIGHT = dict.fromkeys(("ids", "mask"), Range(smallest=(1, 8), opt=(1, 16), largest=(2, 32)))


@pytest.mark.parametrize(
    ("ids", "mask", "profiles", "best"),
    [
        ((1, 16), (1, 16), [0, 1], 1),
        ((2, 32), (2, 32), [0, 1], 1),
        ((1, 4), (1, 4), [0], 0),
        ((4, 32), (4, 32), [0], 0),
        ((16, 128), (16, 128), [0], 0),
        ((2, 32), (17, 32), [], None),
        ((17, 4), (17, 4), [], None),
        ((4, 8, 1), (4, 8, 1), [], None),
    ],
)
def test_profile_tuned_nearest_is_chosen_of_those_that_take_every_input(ids, mask, profiles, best):
    shapes = {"ids": ids, "mask": mask}
    assert taking(shapes, (WIDE, TIGHT)) == profiles
    assert nearest(shapes, (WIDE, TIGHT)) == best


def test_profile_tuned_nearest_may_be_the_larger():
    shapes = dict.fromkeys(("ids", "mask"), (2, 32))
    tuned = dict.fromkeys(shapes, Range(smallest=(1, 4), opt=(2, 32), largest=(16, 128)))
    assert nearest(shapes, (TIGHT, tuned)) == 1


def test_logger_keeps_the_latest_errors(trt):
    logger = error_logger(trt)
    for number in range(KEPT_ERRORS + 5):
        logger.log(1, f"fault  {number}")
        logger.log(2, "a warning")
    assert len(logger.errors) == KEPT_ERRORS and logger.errors[-1] == f"fault {KEPT_ERRORS + 4}"


def test_plans_of_a_process_have_one_logger(tmp_path, trt):
    """TensorRT keeps the first one, so the words of every later plan arrive there."""
    load(tmp_path, trt)
    first = load(tmp_path, trt)
    second = load(tmp_path, trt)
    assert {id(runtime.logger) for runtime in trt.runtimes} == {id(error_logger(trt))}
    del first
    second._engine.logger.log(1, "odd")
    with pytest.raises(PlanRefused, match=r"\(odd\)"):
        second.fail("it cannot be queued")


def test_bindings_are_the_full_installations_or_the_wheels(monkeypatch):
    cuda, wheel = SimpleNamespace(), SimpleNamespace()
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", cuda)
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setitem(sys.modules, "tensorrt_bindings", wheel)
    assert bindings() == (wheel, cuda)
    monkeypatch.setitem(sys.modules, "tensorrt", full := SimpleNamespace())
    assert bindings() == (full, cuda)


@pytest.mark.parametrize("absent", ["tensorrt_bindings", "cuda.bindings.runtime"])
def test_refuses_a_python_without_bindings(monkeypatch, absent):
    for name in ("tensorrt_bindings", "cuda", "cuda.bindings", "cuda.bindings.runtime"):
        monkeypatch.setitem(sys.modules, name, None if name == absent else SimpleNamespace())
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(NoBindings, match=f"this Python has no {absent}"):
        bindings()


def test_words_belong_to_their_own_failure(tmp_path, trt):
    plan = load(tmp_path, trt)
    trt.short_of_memory = "context"
    with pytest.raises(DeviceOutOfMemory):
        plan.context_without_memory()
    with pytest.raises(PlanRefused, match=r"it cannot be queued \(TensorRT says no more\)"):
        plan.fail("it cannot be queued")
    trt.engines[0].logger.log(1, "out of memory")
    with pytest.raises(PlanRefused, match=r"the plan does not run: its rows are odd\.$"):
        plan.refuse("its rows are odd")


def test_refuses_profiles_and_shapes_for_which_the_binding_raises(tmp_path, trt):
    plan = load(tmp_path, trt, shapes_fail=True)
    context = plan.context_without_memory()
    with pytest.raises(PlanRefused, match="it takes no such profile 7 "):
        plan.select_profile(context, 7, stream=1)
    with pytest.raises(PlanRefused, match="its outputs' shapes cannot be computed "):
        plan.infer_shapes(context)


def test_lack_of_memory_is_found_before_what_follows_from_it(tmp_path, trt):
    plan = load(tmp_path, trt)
    for words in ("Cuda Runtime (out of memory)", "Assertion engine failed."):
        trt.engines[0].logger.log(1, words)
    with pytest.raises(DeviceOutOfMemory, match=r"\(Cuda Runtime \(out of memory\)\)"):
        plan.fail("model.plan does not load")


@pytest.mark.parametrize(
    "words",
    [
        "IExecutionContext creation failed: OutOfMemory (no further information)",
        "[defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)",
        "Error Code 10: insufficient memory for a tactic",
        "CUDNN_STATUS_ALLOC_FAILED: cudaErrorMemoryAllocation: OUT_OF_MEMORY",
        "Failed to allocate memory for requested buffer of size 1073741824",
        "std::bad_alloc",
        "PosixThread pthread_create failed, error code: 12 error msg: Cannot allocate memory",
        "PosixThread pthread_create failed, error code: 11 error msg: Resource temporarily "
        "unavailable",
        "can't start new thread",
        "can't allocate lock",
        'ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock, message: "" }) }',
    ],
)
def test_words_about_memory_are_distinguished(words):
    assert mentions_memory_shortage(words)
    others = "Non-zero status code returned while running Gather node", "memory format is wrong"
    assert not any(map(mentions_memory_shortage, ("", *others)))
