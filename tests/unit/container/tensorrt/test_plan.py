"""A plan as TensorRT describes it; the bindings, present and absent."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from container.tensorrt.bindings import KEPT_ERRORS, bindings, error_logger
from container.tensorrt.faults import DeviceOutOfMemory, NoBindings, PlanRefused
from container.tensorrt.plan import Plan
from tests.fixtures.recorded_gpu.cuda import RecordedCuda
from tests.fixtures.recorded_gpu.tensorrt import SCRATCH, RecordedTensorRT, embedder, written


@pytest.fixture
def trt():
    return RecordedTensorRT(RecordedCuda())


def loaded(tmp_path, trt, **more):
    return Plan(
        written(tmp_path / "model.plan", embedder([((1, 2, 4), (4, 8, 16))], **more)), trt=trt
    )


def test_plan_tells_its_tensors_types_and_profiles(tmp_path, trt):
    plan = loaded(tmp_path, trt, ids="int32")
    assert plan.inputs == ("input_ids", "attention_mask", "token_type_ids") and plan.outputs == (
        "embedding",
    )
    assert (plan.types["input_ids"], plan.types["embedding"]) == (np.int32, np.float32)
    (profile,) = plan.profiles
    assert (
        profile["input_ids"].smallest,
        profile["input_ids"].opt,
        profile["input_ids"].largest,
    ) == ((1, 4), (2, 8), (4, 16))
    assert plan.scratch_bytes == SCRATCH


def test_context_without_memory_is_one(tmp_path, trt):
    plan = loaded(tmp_path, trt)
    plan.context_without_memory()
    plan.context()
    assert [context.strategy for context in trt.engines[0].contexts] == [2, 0]


def test_logger_keeps_the_latest_errors(trt):
    logger = error_logger(trt)
    for number in range(KEPT_ERRORS + 5):
        logger.log(1, f"fault  {number}")
        logger.log(2, "a warning")
    assert len(logger.errors) == KEPT_ERRORS and logger.errors[-1] == f"fault {KEPT_ERRORS + 4}"


def test_bindings_are_the_full_installations_or_the_wheels(monkeypatch):
    cuda, wheel = SimpleNamespace(), SimpleNamespace()
    for name, module in {
        "cuda": SimpleNamespace(),
        "cuda.bindings": SimpleNamespace(),
        "cuda.bindings.runtime": cuda,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
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


@pytest.mark.parametrize("fault", ["ImportError", "OSError"])
def test_refuses_bindings_whose_library_is_missing(monkeypatch, tmp_path, fault):
    (tmp_path / "tensorrt_bindings.py").write_text(
        f"raise {fault}('libnvinfer.so.10: cannot open shared object file')"
    )
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NoBindings, match=r"this Python has no libnvinfer\.so\.10: cannot open"):
        bindings()


def test_refuses_a_plan_in_tensorrts_words(tmp_path, trt):
    (tmp_path / "model.plan").write_bytes(b"other")
    with pytest.raises(
        PlanRefused, match=r"model\.plan does not load \(The engine plan file is not compatible"
    ):
        Plan(tmp_path / "model.plan", trt=trt)


def test_refuses_types_that_numpy_lacks(tmp_path, trt):
    with pytest.raises(
        PlanRefused, match="tensor embedding of the plan has a type that numpy lacks"
    ):
        _ = loaded(tmp_path, trt, answer="bf16").types


def test_refuses_tensors_on_the_host(tmp_path, trt):
    with pytest.raises(
        PlanRefused,
        match=r"the plan does not run: it reads or writes attention_mask on the host, as values",
    ):
        loaded(tmp_path, trt, on_host=["attention_mask"])


def test_words_are_of_the_failure_that_they_are_told_with(tmp_path, trt):
    plan = loaded(tmp_path, trt)
    trt.short_of_memory = "context"
    with pytest.raises(DeviceOutOfMemory):
        plan.context()
    with pytest.raises(PlanRefused, match=r"it cannot be queued \(TensorRT says no more\)"):
        plan.fail("it cannot be queued")
    plan_logger = trt.engines[0].logger
    plan_logger.log(1, "out of memory")
    with pytest.raises(PlanRefused, match=r"the plan does not run: its rows are odd\.$"):
        plan.refuse("its rows are odd")


def test_refuses_for_lack_of_memory_by_that_name(tmp_path, trt):
    trt.short_of_memory = "plan"
    with pytest.raises(DeviceOutOfMemory, match=r"does not load \(.*out of memory"):
        loaded(tmp_path, trt)
