"""Small networks of fixed sizes as plans of the TensorRT that is here."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path

import onnx

from engine_build.datasets.dataset import Array, Feed
from engine_build.log import Log
from engine_build.runner import Runner
from engine_build.tensorrt.network import load_plan
from engine_build.tensorrt.trtexec import CompileOptions, Profile, compile_command, trtexec_version


def plan_rows(
    model: onnx.ModelProto, feed: Feed, folder: Path, name: str, profile: Profile = ()
) -> Array:
    """The rows of a network compiled strongly typed; `profile` is that of dynamic axes."""
    network, plan = folder / f"{name}.onnx", folder / f"{name}.plan"
    onnx.save(model, network)
    runner = Runner(Log(io.StringIO()))
    dialect = 11 if int(trtexec_version(runner).split(".")[0]) >= 11 else 10
    profiles = (profile,) if profile else ()
    options = CompileOptions(network=network, plan=plan, precision="int8", profiles=profiles)
    ended = runner.run(compile_command(options, dialect))
    assert ended.code == 0, ended.errors
    with closing(load_plan(plan)) as loaded:
        return loaded.rows(feed)
