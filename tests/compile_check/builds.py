"""What these tests share: networks given to TensorRT-RTX, and builds in processes of their own."""

from __future__ import annotations

import io
import os
import subprocess
import sys

from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.runner import Runner
from engine_build.steps.check import compile_check
from onboarding.model_spec import OptimizationProfileSpec
from tests.unit.engine_build.stand_ins import ROOT

TEXTS = OptimizationProfileSpec(batch=(1, 2, 4), sequence=(4, 8, 16))
ROWS = OptimizationProfileSpec(batch=(1, 2, 4))
OFFLINE = {"ROUNDHOUSE_BENCHMARK_SECONDS": "0.1", "PIP_NO_INDEX": "1", "PYTHONPATH": str(ROOT)}


def check_network(path, profile=TEXTS, stream=None):
    """The record of a network."""
    log = Log(io.StringIO() if stream is None else stream)
    network = Network(precision="float", path=path, inputs=(), outputs=(), facts={})
    return compile_check(network, (profile,), Runner(log), log)


def assert_compiles(path, profile=TEXTS):
    """One network passes."""
    record = check_network(path, profile)
    assert record.verdict == "pass" and record.version.startswith("1.")


def run_build(root, out, store, *options, program=("-m", "engine_build"), **environment):
    """A build of the model `tiny` into a store, in a process of its own."""
    names = ("--root", root, "--environment", "desk", "--model", "tiny")
    places = ("--out", out, "--publish", store)
    argv = (sys.executable, "-W", "error", *program, *names, *places, *options)
    return subprocess.run(
        list(map(str, argv)),
        cwd=ROOT,
        env={**os.environ, **OFFLINE, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
