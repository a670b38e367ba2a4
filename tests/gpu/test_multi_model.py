"""An endpoint of many plans in one Triton: loaded and unloaded by SageMaker's requests."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from container.wire import array_request
from engine_build.log import Log
from engine_build.runner import ProcessRunner
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
COUNT, WIDTHS = 50, (1024, 1536, 2048)
STAND_IN_COUNT, STAND_IN_WIDTHS = 6, (64, 96)
FEWER_MIB = 24
"""Less than the largest plan takes."""
MEMORY_BAR, LOAD_BAR = 0.05, 0.3


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
    """A server, its models by name, and the GPU's memory without and with them."""

    server: Triton
    bases: list[Base]
    folder: Path
    empty_mib: float
    loaded_mib: float

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
    with several(source, folder / "server") as server:
        empty_mib = device_mib()
        for number in range(count):
            base, name = bases[number % len(bases)], f"m{number:02}"
            archive = copy_archive(base.folder, folder / name)
            begin = time.monotonic()
            answer = server.load(name, archive)
            base.load_seconds.append(time.monotonic() - begin)
            assert answer.status == 200, (name, answer.body, server.words())
            base.models.append(name)
        sizes = {"empty_mib": empty_mib, "loaded_mib": device_mib()}
        yield Endpoint(server=server, bases=bases, folder=folder, **sizes)


@pytest.fixture(scope="module")
def footprints(plans, endpoint, tmp_path_factory):
    """What a build writes into the lock of each engine, of a process of its own."""
    from engine_build.evaluation.footprint import measure_in_child

    scratch, runner = tmp_path_factory.mktemp("footprints"), ProcessRunner(Log(io.StringIO()))
    return [
        measure_in_child(base.plan, {"x": np.zeros((8, base.width), np.float32)}, scratch, runner)
        for base in endpoint.bases
    ]


def test_every_model_answers_by_its_target_name(endpoint, record_property):
    with ThreadPoolExecutor(8) as clients:
        list(clients.map(endpoint.check, endpoint.names * 2))
    record_property("models", len(endpoint.names))
    for base in endpoint.bases:
        record_property(f"{base.folder.name}_load_seconds", float(np.median(base.load_seconds)))


def test_models_take_the_memory_that_their_locks_say(endpoint, footprints, record_property):
    pairs = list(zip(endpoint.bases, footprints, strict=True))
    expected = sum(len(base.models) * one.device_memory_mib for base, one in pairs)
    found = endpoint.loaded_mib - endpoint.empty_mib
    record_property("mib_of_each", {base.folder.name: one.device_memory_mib for base, one in pairs})
    record_property("expected_and_found_mib", [expected, found])
    assert abs(found - expected) <= MEMORY_BAR * expected


def test_cold_load_takes_the_time_that_its_lock_says(endpoint, footprints, record_property):
    """Of the largest engine; the first load of a server starts the backend."""
    base, footprint = max(
        zip(endpoint.bases, footprints, strict=True), key=lambda pair: pair[0].plan.stat().st_size
    )
    found = float(np.median(base.load_seconds[1:]))
    record_property("expected_and_found_seconds", [footprint.load_seconds, found])
    assert abs(found - footprint.load_seconds) <= LOAD_BAR * footprint.load_seconds


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


def test_unloaded_models_give_their_memory_back_and_load_again(
    endpoint, source, device_mib, record_property
):
    server, names = endpoint.server, endpoint.names
    left, kept = names[::2], names[1::2]
    loaded = device_mib()
    for name in left:
        assert server.unload(name).status == 200
        request = array_request({"x": np.zeros((1, endpoint.base_of(name).width), np.float32)})
        assert server.send(*request, model=name).status == 404
    freed = loaded - device_mib()
    with ThreadPoolExecutor(8) as clients:
        list(clients.map(endpoint.check, kept))
    for name in left:
        assert server.load(name, endpoint.folder / name).status == 200
        endpoint.check(name)
    record_property("freed_mib", freed)
    record_property("grown_mib", device_mib() - loaded)
    if source.has_plans:
        taken = endpoint.loaded_mib - endpoint.empty_mib
        assert freed >= 0.9 * taken * len(left) / len(names)
        assert device_mib() - loaded <= 0.02 * loaded


def test_model_too_many_gets_507_and_nothing_else_falls(plans, endpoint, record_property):
    from tests.gpu.plans import full_gpu

    server, largest = endpoint.server, max(endpoint.bases, key=lambda base: base.width)
    copy_archive(largest.folder, endpoint.folder / "much")
    with full_gpu(leave_mib=FEWER_MIB):
        refused = server.load("much", endpoint.folder / "much")
        record_property("refusal", refused.body.decode(errors="replace")[:300])
        for name in endpoint.names[::5]:
            endpoint.check(name)
        assert server.is_healthy()
    assert refused.status == 507, (refused.status, refused.body, server.words())
    assert server.load("much", endpoint.folder / "much").status == 200
    assert server.unload("much").status == 200
