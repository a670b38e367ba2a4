"""An endpoint of many plans in one Triton: loaded and unloaded by SageMaker's requests."""

from __future__ import annotations

import io
import os
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from container.wire import array_request
from engine_build.log import Log
from engine_build.runner import Runner
from tests.fixtures.tiny_embedder.archive import EMBEDDER, HERE
from tests.gpu.triton import (
    LEAST_COSINE,
    Triton,
    column,
    cosines,
    layers,
    network_rows,
    several,
    texts,
    write_archive,
)

pytestmark = pytest.mark.gpu
COUNT, WIDTHS = 50, (2032, 2880, 4064)
"""Two FP32 matrices of a width take 31.5, 63.3 and 126 MiB: little less than whole parts of CUDA's
memory pool, which grows by 32 MiB, so that what it has in reserve is not counted for theirs.
"""
STAND_IN_COUNT, STAND_IN_WIDTHS = 6, (64, 96)
FEWER_MIB, MOST_MORE = 24, 4
"""Less than a plan takes; and the plans that room within the pool may still take."""
SLACK_MIB = 256
"""Of a full GPU, for what unloaded models do not leave to the next ones."""
MEMORY_BAR, LOAD_BAR = 0.05, 0.3
MANAGED = r"TensorRT-managed allocation in (.*?): .*?now: CPU \d+, GPU (\d+)"
"""What TensorRT says that it holds for all plans of a process, in MiB."""


@dataclass(kw_only=True)
class Base:
    """An engine that several models of the endpoint are copies of."""

    folder: Path
    answer: Callable[[Any], Any]
    width: int
    tolerance: float
    models: list[str] = field(default_factory=list)
    load_seconds: list[float] = field(default_factory=list)

    @property
    def plan(self) -> Path:
        return next(self.folder.rglob("model.plan"))


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A server, its models by name, and the GPU's memory before it and after so many loads."""

    server: Triton
    bases: list[Base]
    folder: Path
    idle_mib: float
    mib: list[float]

    @property
    def base_mib(self) -> float:
        """The GPU's memory once a model of each base is loaded."""
        return self.mib[len(self.bases)]

    def base_of(self, name: str) -> Base:
        return next(base for base in self.bases if name in base.models)

    @property
    def names(self) -> list[str]:
        return sorted(name for base in self.bases for name in base.models)

    def check(self, name: str) -> None:
        """Fail where a model does not answer as its network."""
        base, draw = self.base_of(name), np.random.default_rng(len(name))
        x = draw.standard_normal((3, base.width)).astype(np.float32)
        found, expected = self.server.answers({"x": x}, model=name)["y"], base.answer(x)
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert error <= base.tolerance, (name, error)


def copy_archive(archive, target):
    shutil.copytree(archive, target, copy_function=os.link)
    return target


@pytest.fixture(scope="module")
def endpoint(source, tmp_path_factory, device_mib):
    """Every model loaded, one after the other."""
    folder, widths = tmp_path_factory.mktemp("endpoint"), STAND_IN_WIDTHS
    widths, count = (WIDTHS, COUNT) if source.has_plans else (widths, STAND_IN_COUNT)
    bases = []
    for width in widths:
        model, network, answer = layers(folder, width)
        write_archive(source, folder / f"fp32-{width}", model, network)
        known = {"answer": answer, "width": width}
        bases.append(Base(folder=folder / f"fp32-{width}", tolerance=1e-3, **known))
    if source.has_plans:
        from engine_build.tensorrt.half_precision import write_half_precision

        write_half_precision(network, folder / "half.onnx")
        write_archive(source, folder / "fp16", model, folder / "half.onnx")
        bases.append(Base(folder=folder / "fp16", tolerance=1e-2, **known))
    idle_mib = device_mib()
    with several(source, folder / "server") as server:
        mib = [device_mib()]
        for number in range(count):
            base, name = bases[number % len(bases)], f"m{number:02}"
            archive = copy_archive(base.folder, folder / name)
            begin = time.monotonic()
            answer = server.load(name, archive)
            base.load_seconds.append(time.monotonic() - begin)
            assert answer.status == 200, (name, answer.body, server.words())
            base.models.append(name)
            mib.append(device_mib())
        sizes = {"idle_mib": idle_mib, "mib": mib}
        yield Endpoint(server=server, bases=bases, folder=folder, **sizes)


class Listening(Runner):
    """Keeps what its processes print."""

    def __init__(self):
        super().__init__(Log(io.StringIO()))
        self.outputs = []

    def run(self, command):
        ended = super().run(command)
        self.outputs.append(ended.output)
        return ended


@pytest.fixture(scope="module")
def footprints(plans, endpoint, tmp_path_factory):
    """What a build writes into the lock of each engine, of a process of its own."""
    from engine_build.evaluation.footprint import measure_in_child

    scratch, runner = tmp_path_factory.mktemp("footprints"), Listening()
    found = [
        measure_in_child(base.plan, {"x": np.zeros((8, base.width), np.float32)}, scratch, runner)
        for base in endpoint.bases
    ]
    return found, runner.outputs


def test_every_model_answers_by_its_target_name(endpoint, record_property):
    with ThreadPoolExecutor(8) as clients:
        list(clients.map(endpoint.check, endpoint.names * 2))
    record_property("models", len(endpoint.names))
    for base in endpoint.bases:
        record_property(f"{base.folder.name}_load_seconds", float(np.median(base.load_seconds)))


def test_models_take_the_memory_that_their_locks_say(endpoint, footprints, record_property):
    """Beside a first one of each kind, which takes also what a process takes once."""
    pairs, mib = list(zip(endpoint.bases, footprints[0], strict=True)), endpoint.mib
    expected = sum((len(base.models) - 1) * one.device_memory_mib for base, one in pairs)
    found, first = mib[-1] - endpoint.base_mib, sum(one.device_memory_mib for _, one in pairs)
    record_property("mib_of_each", {base.folder.name: one.device_memory_mib for base, one in pairs})
    record_property("plan_mib", [base.plan.stat().st_size / 2**20 for base in endpoint.bases])
    record_property("expected_and_found_mib", [expected, found])
    record_property("mib_of_triton_alone", mib[0] - endpoint.idle_mib)
    record_property("mib_taken_once", endpoint.base_mib - mib[0] - first)
    record_property("mib_after_each_load", [round(one - mib[0]) for one in mib])
    record_property("first_and_second_load", footprints[1])
    tally = re.findall(MANAGED, endpoint.server.log.read_text(errors="replace"))
    record_property("managed_mib", {"first": tally[:8], "last": tally[-2:]})
    assert abs(found - expected) <= MEMORY_BAR * expected


def test_cold_load_takes_the_time_that_its_lock_says(endpoint, footprints, record_property):
    """Of the largest engine; the first load of each kind starts what its process shares."""
    pairs = {
        base.folder.name: [one.load_seconds, float(np.median(base.load_seconds[1:]))]
        for base, one in zip(endpoint.bases, footprints[0], strict=True)
    }
    largest = max(endpoint.bases, key=lambda base: base.plan.stat().st_size)
    begin = time.monotonic()
    largest.plan.read_bytes()
    record_property("seconds_to_read_the_largest_plan", time.monotonic() - begin)
    record_property("first_loads", [base.load_seconds[0] for base in endpoint.bases])
    record_property("spread", [float(np.ptp(base.load_seconds[1:])) for base in endpoint.bases])
    record_property("expected_and_found_seconds", pairs)
    expected, found = pairs[largest.folder.name]
    assert abs(found - expected) <= LOAD_BAR * expected


def test_ensemble_of_a_text_model_joins_the_others(endpoint, source, tmp_path):
    write_archive(source, tmp_path / "model", EMBEDDER)
    answer = endpoint.server.load("texts", tmp_path / "model")
    assert answer.status == 200, (answer.body, endpoint.server.words())
    rows = texts(1, 8)
    found = endpoint.server.answers({"text": column(rows)}, model="texts")["embedding"]
    expected = network_rows(HERE / "model.onnx", [(text,) for text in rows])
    assert cosines(found, expected).min() >= LEAST_COSINE
    endpoint.check(endpoint.names[0])
    assert endpoint.server.unload("texts").status == 200


def fill_gpu(source, leave_mib):
    """Take the GPU's memory but for `leave_mib`; nothing where there is no GPU."""
    if not source.has_plans:
        return nullcontext()
    from tests.gpu.plans import full_gpu

    return full_gpu(leave_mib=leave_mib)


def test_memory_of_unloaded_models_serves_the_next_loads(
    endpoint, source, device_mib, record_property
):
    """On a full GPU: CUDA's memory pool keeps a part, so the GPU's free memory alone says less."""
    server, names = endpoint.server, endpoint.names
    left, kept = names[::2], names[1::2]
    loaded = device_mib()
    with fill_gpu(source, SLACK_MIB):
        full = device_mib()
        for name in left:
            assert server.unload(name).status == 200
            request = array_request({"x": np.zeros((1, endpoint.base_of(name).width), np.float32)})
            assert server.send(*request, model=name).status == 404
        record_property("freed_mib", full - device_mib())
        with ThreadPoolExecutor(8) as clients:
            list(clients.map(endpoint.check, kept))
        for count, name in enumerate(left):
            answer = server.load(name, endpoint.folder / name)
            left_mib = full + SLACK_MIB - device_mib()
            assert answer.status == 200, (count, left_mib, answer, server.words())
            endpoint.check(name)
        record_property("left_of_the_full_gpu_mib", full + SLACK_MIB - device_mib())
    record_property("taken_by_all_mib", endpoint.mib[-1] - endpoint.mib[0])
    record_property("grown_mib", device_mib() - loaded)
    assert device_mib() - loaded <= 0.02 * loaded


def test_model_too_many_gets_507_and_nothing_else_falls(
    plans, endpoint, source, device_mib, record_property
):
    """The pool may still have room for a few."""
    server, largest = endpoint.server, max(endpoint.bases, key=lambda base: base.width)
    loaded, more = device_mib(), []
    with fill_gpu(source, FEWER_MIB):
        for number in range(MOST_MORE):
            more.append(f"more{number}")
            archive = copy_archive(largest.folder, endpoint.folder / more[-1])
            refused = server.load(more[-1], archive)
            if refused.status != 200:
                break
        record_property("loaded_before_the_refusal", len(more) - 1)
        record_property("refusal", [refused.status, refused.body.decode(errors="replace")[:400]])
        for name in endpoint.names[::5]:
            endpoint.check(name)
        assert server.is_healthy()
    record_property("grown_by_the_refusal_mib", device_mib() - loaded)
    assert refused.status == 507, (refused.status, refused.body, server.words())
    assert server.load(more[-1], archive).status == 200
    assert [server.unload(name).status for name in more] == [200] * len(more)
    record_property("grown_mib", device_mib() - loaded)
