"""Our networks beside those of NVIDIA's Model Optimizer, on one GPU: accuracy and latency.

`python -m tests.gpu.model_optimizer PYTHON` writes them on a CPU, with what each answers in ONNX
Runtime, into build/model-optimizer/NAME.xz. Here each is compiled by trtexec with one timing cache,
answers the validation samples, and is timed host to host, in random order with a second copy of our
FP16 as a control. Networks of Model Optimizer that TensorRT refuses are figures, and no failure.
"""

from __future__ import annotations

import io
import json
import time
from contextlib import ExitStack, closing

import numpy as np
import onnx
import pytest

from engine_build.datasets.dataset import Shape
from engine_build.evaluation.accuracy import BrokenAnswers
from engine_build.evaluation.latency import CONTROL, Engine, Track, measure_latencies, summaries
from engine_build.log import Log
from engine_build.runner import ProcessRunner
from engine_build.tensorrt.network import load_plan
from engine_build.tensorrt.trtexec import CompileOptions, InputRange, compile_command
from tests.gpu.model_optimizer import EVERY, RESULTS, carried, score
from tests.gpu.networks import SEQUENCE
from tests.gpu.test_trtexec import pytestmark  # noqa: F401

BATCHES = {"vit-base": 8, "resnet-50": 8}
BATCH = 32
SECONDS = 5.0
FROM_THE_CPU = 0.02
"""How far an engine's mean may lie below its network's in ONNX Runtime."""


@pytest.mark.parametrize("name", EVERY)
def test_networks_of_both_tools_are_compared_and_timed(name, tmp_path, record_property):
    try:
        kept, samples, standard = carried(name)
    except FileNotFoundError as error:
        pytest.skip(f"needs {error.filename}, which tests.gpu.model_optimizer or .minilm writes")
    batch = BATCHES.get(name, BATCH)
    feed = {key: _padded(values) for key, values in samples.items()}
    profile = tuple(
        InputRange(
            name=key,
            smallest=(1, *values.shape[1:]),
            opt=(batch, *values.shape[1:]),
            largest=(batch, *values.shape[1:]),
        )
        for key, values in feed.items()
    )
    runner, scores = ProcessRunner(Log(io.StringIO())), {}
    with ExitStack() as stack:
        engines = []
        for network in kept.names:
            path, plan = tmp_path / f"{network}.onnx", tmp_path / network / "model.plan"
            plan.parent.mkdir()
            onnx.save(kept.network(network), path)
            options = CompileOptions(
                network=path,
                plan=plan,
                precision="fp16",
                profiles=(profile,),
                timing_cache=tmp_path / "timing.cache",
            )
            begin = time.monotonic()
            ended = runner.run(compile_command(options, 10))
            record_property(f"{network} compile_seconds", round(time.monotonic() - begin, 1))
            if ended.code != 0:
                record_property(f"{network} refused", ended.errors[-500:])
                assert network.startswith("theirs"), ended.errors
                continue
            for label in (network, network + CONTROL)[: 2 if network == "ours-fp16" else 1]:
                loaded = stack.enter_context(closing(load_plan(plan)))
                engines.append(Engine(runtime="tensorrt", precision=label, run=loaded.rows))
                scores[label] = _score(loaded, feed, batch, standard)
                record_property(f"{label} scores", scores[label])
        for rows in (1, batch):
            shape = Shape(batch=rows, sequence=SEQUENCE if "input_ids" in feed else 1)
            track = Track(shape=shape, feed={key: values[:rows] for key, values in feed.items()})
            measured = measure_latencies(engines, [track], seconds=SECONDS)
            for item in summaries(engines, measured):
                record_property(f"{item.precision} {rows} p50_ms", item.p50_ms)
            for index, engine in enumerate(engines):
                ratios = measured[0].ratios(0, index)
                spread = [round(float(value), 4) for value in np.percentile(ratios, (50, 5, 95))]
                record_property(f"{engine.precision} {rows} times {engines[0].precision}", spread)
    cpu = json.loads(RESULTS.read_text())[name]["scores"]
    for label in (label for label in cpu if label.startswith("ours")):
        assert scores[label]["mean"] >= cpu[label]["mean"] - FROM_THE_CPU


def _padded(values):
    """Return tokens of the length that plans are compiled for."""
    missing = SEQUENCE - values.shape[1] if values.ndim == 2 else 0
    return np.ascontiguousarray(np.pad(values, ((0, 0), (0, missing)))) if missing else values


def _score(plan, feed, batch, standard):
    parts = [
        plan.rows({key: values[begin : begin + batch] for key, values in feed.items()})
        for begin in range(0, len(standard.reference), batch)
    ]
    try:
        return score(np.concatenate(parts), standard)
    except BrokenAnswers as error:
        return {"mean": 0.0, "fault": str(error)}
