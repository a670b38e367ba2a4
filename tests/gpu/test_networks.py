"""The shapes that teams serve: finite in every precision, and FP16 as fast as trtexec's own.

Random networks, built whole with `precision: auto`: the engines in FP16, INT8 and FP8 answer the
validation samples, and every answer is held against the source network's in ONNX Runtime. Which
layers are faster in eight bits is not searched here (`test_precision.py` does).
"""

from __future__ import annotations

import io
import json
import math
import os
import random

import numpy as np
import pytest

from engine_build.__main__ import main
from engine_build.log import Log
from engine_build.packaging.archive import known_engine
from engine_build.runner import Runner
from engine_build.steps import placement
from engine_build.store import FolderStore
from engine_build.tensorrt.half_precision import write_half_precision
from engine_build.tensorrt.trtexec import CompileOptions, InputRange, compile_command, run_command
from tests.gpu.networks import FEW_TOKENS, NAMES, SEQUENCE, write_source
from tests.gpu.test_trtexec import pytestmark  # noqa: F401

LEAST_MEAN = {"fp16": 0.95, "int8": 0.9, "fp8": 0.9}
"""One less the relative error of random weights, whose errors add up."""
TIMED = {"cross-encoder": 32, "bert-large": 32, "vit-base": 8}
ROUNDS, MOST_SLOWER = 5, 1.02
BENCHMARK_SECONDS = "2"


@pytest.mark.parametrize("name", NAMES)
def test_every_precision_answers_as_the_source(name, tmp_path, monkeypatch, record_property):
    monkeypatch.setattr(placement, "LONGEST_SECONDS", 0.0)
    monkeypatch.setenv("ROUNDHOUSE_BENCHMARK_SECONDS", BENCHMARK_SECONDS)
    tokens = FEW_TOKENS if name == "bert-large" else SEQUENCE
    root = write_source(name, tmp_path / "root", engine={"precision": "auto"}, tokens=tokens)
    out, log = io.StringIO(), io.StringIO()
    argv = ["--root", str(root), "--environment", "local-gpu", "--model", name]
    argv += ["--out", str(tmp_path / "out"), "--format", "json"]
    assert main(argv, os.environ, out, log) == 0, log.getvalue()[-4000:]
    entry = known_engine(FolderStore(tmp_path / "out"), json.loads(out.getvalue())["engine_key"])
    assert entry is not None
    manifest = entry.manifest
    record_property("precision", manifest.precision)
    record_property("decision", manifest.decision)
    for precision, reason in manifest.left_out.items():
        record_property(f"left_out_{precision}", reason)
    for item in manifest.benchmark:
        if item.runtime == "tensorrt":
            record_property(f"{item.precision}_{item.batch}_p50_ms", item.p50_ms)
    found = {item.subject: item for item in manifest.accuracy}
    for subject, item in found.items():
        record_property(f"{subject} mean, worst", [item.mean, item.worst])
    for precision, least in LEAST_MEAN.items():
        # Random weights may miss the budget in eight bits, on the CPU as well.
        if precision != "fp16" and "budget" in manifest.left_out.get(precision, ""):
            continue
        engine = found[f"{precision} engine"]
        assert math.isfinite(engine.worst) and engine.mean >= least


@pytest.mark.parametrize("name", TIMED)
def test_fp16_is_as_fast_as_trtexecs_own(name, tmp_path, record_property):
    """Both plans for one shape, timed in turn in random order, ours twice as a control."""
    root, batch = write_source(name, tmp_path / "root"), TIMED[name]
    source, half = root / f"networks/{name}.onnx", tmp_path / "half.onnx"
    write_half_precision(source, half, (), ())
    with np.load(root / "models/data/validation.npz") as arrays:
        feed = {key: np.ascontiguousarray(arrays[key][:batch]) for key in arrays.files}
    files = {key: tmp_path / f"{key}.bin" for key in feed}
    for key, values in feed.items():
        values.tofile(files[key])
    profile = tuple(
        InputRange(name=key, smallest=values.shape, opt=values.shape, largest=values.shape)
        for key, values in feed.items()
    )
    runner = Runner(Log(io.StringIO()))
    ours, theirs = tmp_path / "ours.plan", tmp_path / "theirs.plan"
    written = compile_command(
        CompileOptions(network=half, plan=ours, precision="fp16", profiles=(profile,)), 10
    )
    plain = compile_command(
        CompileOptions(network=source, plan=theirs, precision="fp16", profiles=(profile,)), 10
    )
    own = tuple("--fp16" if flag == "--stronglyTyped" else flag for flag in plain.argv)
    assert "--fp16" in own
    for command in (written, type(plain)(argv=own, timeout_seconds=plain.timeout_seconds)):
        ended = runner.run(command)
        assert ended.code == 0, ended.errors
    plans = {"ours": ours, "ours again": ours, "theirs": theirs}
    times: dict[str, list[float]] = {key: [] for key in plans}
    order = random.Random(SEQUENCE)
    for _ in range(ROUNDS):
        for key in order.sample(list(plans), len(plans)):
            times[key].append(_median_ms(runner, plans[key], feed, files, tmp_path))
    for key, values in times.items():
        record_property(f"{key}_ms", [round(value, 4) for value in sorted(values)])
    middle = {key: float(np.median(values)) for key, values in times.items()}
    record_property("ours_by_theirs", round(middle["ours"] / middle["theirs"], 4))
    record_property("ours_by_ours_again", round(middle["ours"] / middle["ours again"], 4))
    assert min(middle["ours"], middle["ours again"]) <= MOST_SLOWER * middle["theirs"]


def _median_ms(runner, plan, feed, files, folder):
    command = run_command(
        plan,
        10,
        shapes=[(key, values.shape) for key, values in feed.items()],
        inputs=list(files.items()),
        times=folder / "times.json",
        layers=folder / "layers.json",
        version_compatible=False,
    )
    ended = runner.run(command)
    assert ended.code == 0, ended.errors
    times = [row["latencyMs"] for row in json.loads((folder / "times.json").read_text())]
    return float(np.median(times))
