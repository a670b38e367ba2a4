"""Small networks of fixed sizes as plans of the TensorRT that is here."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path

import onnx

from engine_build.datasets.dataset import Array, Feed
from engine_build.log import Log
from engine_build.runner import ProcessRunner
from engine_build.tensorrt.host import trtexec_version
from engine_build.tensorrt.network import load_plan
from engine_build.tensorrt.trtexec import CompileOptions, compile_command


def plan_rows(model: onnx.ModelProto, feed: Feed, folder: Path, name: str) -> Array:
    """The rows of a network compiled strongly typed."""
    network, plan = folder / f"{name}.onnx", folder / f"{name}.plan"
    onnx.save(model, network)
    runner = ProcessRunner(Log(io.StringIO()))
    dialect = 11 if int(trtexec_version(runner).split(".")[0]) >= 11 else 10
    options = CompileOptions(network=network, plan=plan, precision="int8", profiles=())
    ended = runner.run(compile_command(options, dialect))
    assert ended.code == 0, ended.errors
    with closing(load_plan(plan)) as loaded:
        return loaded.rows(feed)
