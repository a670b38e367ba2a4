"""The Python server before an FP16 plan of BERT-large, and PyTorch behind the same server.

Every text has 128 tokens. The engine alone runs in this process, by the class that serves it; each
round measures every point once, in an order of its own. Clients have the upper half of the cores.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import subprocess
import time
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("orjson", reason="needs what the server needs")

from prometheus_client.parser import text_string_to_metric_families

from container.server.engines.tokens import TextEncoder
from container.tensorrt.bindings import bindings
from container.tensorrt.plan import Plan
from container.wire import rows_of, text_request
from engine_build.tensorrt.half_precision import write_half_precision
from onboarding.manifest import ProfileRecord
from tests.gpu.engine_alone import EngineAlone
from tests.gpu.load import cores, drive, text
from tests.gpu.networks import make, write_float
from tests.gpu.plans import (
    GPU,
    Layers,
    archive,
    ask,
    build,
    launch,
    open_plan,
    used_mib,
)
from tests.unit.engine_build.tiny import word_tokenizer

pytestmark = GPU
MODEL, WIDTH = "bert-large", 1024
INPUTS = ("input_ids", "attention_mask")
SIZES = ((1, 16), (8, 128), (32, 128))
PROFILE = ProfileRecord(batch=(1, 8, 32), sequence=(16, 128, 128))
ROUNDS, SECONDS = 5, 1.5
READY_SECONDS, POLL_SECONDS = 240.0, 0.05
"""torch.compile makes two variants of the module."""
ABOVE_ENGINE_MS = 0.4
GROUP = 16
CONTEXTS = [
    (rows, tokens) for rows in (1, 2, 4, 8, 12, 16, 24, 32) for tokens in range(16, 129, 16)
]
PYTORCH = {"PyTorch eager": "false", "torch.compile": "true"}
OURS = "TensorRT"
PARTS = ("request", "decode", "tokenize", "wait", "engine", "encode")
"""Of a request, as the server's metrics name them: parsing and writing HTTP are not in them."""


def texts_archive(root, plan, tokenizer):
    texts, vectors = {"text": ("BYTES", (-1, 1))}, {"embedding": ("FP32", (-1, WIDTH))}
    return archive(root, plan, texts, vectors, PROFILE, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    word_tokenizer().save(str(path))
    assert {len(row) for row in TextEncoder(path, max_tokens=None).encode([text(7)]).rows} == {128}
    return path


@pytest.fixture(scope="module")
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def start(stack, tmp_path_factory):
    """Start a server on an archive, which ends with the module."""

    def start(root, **options):
        log = tmp_path_factory.mktemp("server") / "log"
        server = launch(root, log, prefix=cores(0, 3 / 8), **options)

        def end():
            server.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(10)
            server.process.kill()

        stack.callback(end)
        return server

    return start


@pytest.fixture(scope="module")
def pytorch(start, tokenizer, tmp_path_factory):
    """PyTorch behind our server; its archive holds some plan, which is not read."""
    folder = tmp_path_factory.mktemp("pytorch")
    layers = Layers(folder, width=64)
    root = texts_archive(
        folder / "archive", build(layers.path, layers.ranges(1, 8, 16), level=0), tokenizer
    )
    module = "tests.gpu.torch_server"
    shared = {"TORCH_MODEL": MODEL, "TORCH_DEVICE": "cuda", "TORCH_PRECISION": "fp16"}
    return {
        name: start(root, module=module, TORCH_COMPILED=compiled, **shared)
        for name, compiled in PYTORCH.items()
    }


@pytest.fixture(scope="module")
def plan(pytorch, tmp_path_factory):
    """The plan; PyTorch's servers start meanwhile."""
    folder = tmp_path_factory.mktemp("plan")
    begin = time.monotonic()
    write_float(make(MODEL, {}), np.random.default_rng(0), folder / "float.onnx")
    write_half_precision(folder / "float.onnx", folder / "half.onnx")
    seconds = {"network": time.monotonic() - begin}
    path = build(folder / "half.onnx", dict.fromkeys(INPUTS, SIZES), level=3)
    return path, seconds | {"plan": time.monotonic() - begin}


@pytest.fixture(scope="module")
def root(plan, tokenizer, tmp_path_factory):
    return texts_archive(tmp_path_factory.mktemp("archive") / "model", plan[0], tokenizer)


@pytest.fixture(scope="module")
def servers(root, start, pytorch):
    """All that became healthy."""
    started, ready = {OURS: start(root)} | pytorch, {}
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and len(ready) < len(started):
        alive = {name: one for name, one in started.items() if one.process.poll() is None}
        ready = {name: one for name, one in alive.items() if one.is_healthy()}
        if len(alive) == len(ready):
            break
        time.sleep(POLL_SECONDS)
    return ready


def load(server, rows, processes, connections):
    """Return texts a second and the clients' median milliseconds."""
    measured = drive(server.port, rows, processes, connections, SECONDS)
    del measured["spans"]
    return measured


def load_alone(server):
    """Return a load of one client, and the server's own mean microseconds of a request's parts.

    `engine` is a part of `wait`, and all of them are parts of `request`.
    """
    before = seconds_and_counts(server)
    result = load(server, 1, 1, 1)
    sums = {key: value - before.get(key, 0.0) for key, value in seconds_and_counts(server).items()}
    requests = sums["request", "count"]
    assert requests == sums["engine", "count"], "a request was not one batch"
    parts = {name: 1e6 * sums[name, "sum"] / requests for name in PARTS}
    return result | {"parts_us": parts}


def seconds_and_counts(server):
    """Return the sum and the count of each histogram of a server's seconds, by its part."""
    _, body = server.get("/metrics")
    return {
        (sample.labels.get("stage", sample.name.split("_")[1]), sample.name.split("_")[-1]): (
            sample.value
        )
        for family in text_string_to_metric_families(body.decode())
        if family.name.endswith("_seconds")
        for sample in family.samples
        if sample.name.endswith(("_sum", "_count"))
    }


@pytest.fixture(scope="module")
def rounds(root, servers):
    engine = EngineAlone(root, [text(seed) for seed in range(1024)])
    points = {
        "engine, one text": lambda: engine.lone(SECONDS),
        "engine, saturated": lambda: engine.rate(SECONDS),
    }
    for name, server in servers.items():
        points[f"{name}, one client"] = lambda server=server: load_alone(server)
        points[f"{name}, saturated"] = lambda server=server: load(server, GROUP, 8, 4)
    if OURS in servers:
        points[f"{OURS}, single texts"] = lambda: load(servers[OURS], 1, 8, 32)
    results = []
    for number in range(ROUNDS):
        names = sorted(points)
        random.Random(number).shuffle(names)
        results.append({name: points[name]() for name in names})
    return results


def spread(rounds, value):
    values = sorted(map(value, rounds))
    return {"median": statistics.median(values), "low": values[0], "high": values[-1]}


def of(name, field):
    return lambda result: result[name][field]


def test_one_client_waits_for_little_more_than_the_engine(rounds, plan, record_property):
    record_property("seconds", plan[1])
    record_property("engine_p50_ms", spread(rounds, of("engine, one text", "p50_ms")))
    record_property("p50_ms", spread(rounds, of(f"{OURS}, one client", "p50_ms")))
    above = spread(
        rounds,
        lambda result: (
            result[f"{OURS}, one client"]["p50_ms"] - result["engine, one text"]["p50_ms"]
        ),
    )
    record_property("above_engine_ms", above)
    record_property("bar", f"at most {ABOVE_ENGINE_MS} ms above the engine")
    record_property("polling_p50_ms", spread(rounds, of(f"{OURS}, one client", "polling_p50_ms")))
    for part in PARTS:
        means = spread(rounds, lambda r, part=part: r[f"{OURS}, one client"]["parts_us"][part])
        record_property(f"{part}_mean_us", means)
    assert above["median"] <= ABOVE_ENGINE_MS


def test_saturated_server_is_measured_beside_its_engine_alone(rounds, record_property):
    record_property("engine_texts_per_second", spread(rounds, of("engine, saturated", "rate")))
    for name, words in (("saturated", "requests_of_16"), ("single texts", "single_texts")):
        point = f"{OURS}, {name}"
        record_property(f"{words}_per_second", spread(rounds, of(point, "rate")))
        share = spread(rounds, lambda r, p=point: r[p]["rate"] / r["engine, saturated"]["rate"])
        record_property(f"{words}_of_engine", share)


@pytest.mark.parametrize("name", PYTORCH)
def test_pytorch_behind_the_same_server(name, rounds, servers, pytorch, record_property):
    assert name in servers, pytorch[name].log.read_text()[-2000:]
    record_property("p50_ms", spread(rounds, of(f"{name}, one client", "p50_ms")))
    record_property("texts_per_second", spread(rounds, of(f"{name}, saturated", "rate")))
    times = spread(
        rounds,
        lambda result: result[f"{OURS}, saturated"]["rate"] / result[f"{name}, saturated"]["rate"],
    )
    record_property("tensorrt_times_as_fast_saturated", times)
    assert times["median"] > 1


def test_servers_give_the_same_answers(servers, record_property):
    texts = [text(seed) for seed in range(GROUP)]
    vectors = {}
    for name, server in servers.items():
        status, body, kind = server.request(*text_request(texts, binary=True))
        assert status == 200, body
        vectors[name] = np.asarray(rows_of(body, kind))
    first = vectors[OURS]
    for name, other in vectors.items():
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(other, axis=1)
        worst = float(((first * other).sum(1) / norms).min())
        record_property(f"worst cosine with {name}", worst)
        assert worst > 0.999


def test_64_contexts_of_a_slot_cost_little(plan, record_property):
    path, _ = plan
    shapes = [dict.fromkeys(INPUTS, size) for size in CONTEXTS]
    with closing(Plan(path, trt=bindings()[0])) as bare:
        contexts = [bare.context_without_memory()]
        begin = host_mib()
        contexts += [bare.context_without_memory() for _ in range(8)]
        record_property("host_mib_a_context_of_tensorrt", (host_mib() - begin) / 8)
        del contexts
    with open_plan(path, *shapes) as runner:
        device, host, begin = used_mib(), host_mib(), time.monotonic()
        for shape in reversed(shapes):
            feed = {name: np.ones(size, np.int64) for name, size in shape.items()}
            for _ in range(2):
                ask(runner, feed)
        seconds = time.monotonic() - begin
        each = {
            "device_mib": (used_mib() - device) / len(shapes),
            "host_mib": (host_mib() - host) / len(shapes),
            "ms": 1e3 * seconds / len(shapes),
        }
    for name, value in each.items():
        record_property(f"{name}_a_context", value)
    assert len(shapes) == 64
    assert each["device_mib"] < 32 and each["host_mib"] < 64 and seconds < 30


def host_mib() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
