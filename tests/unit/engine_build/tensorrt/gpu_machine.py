"""A machine whose PATH has the stand-in trtexec and nvidia-smi, and builds for it.

TensorRT's runtime is stood in for too: ONNX Runtime plays the plans of stand_in_gpu, in the memory
of the recorded CUDA.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.runner import Ended, Runner
from onboarding.manifest import TensorRecord
from tests.fixtures.recorded_gpu.cuda import RecordedCuda
from tests.fixtures.recorded_gpu.tensorrt import MAGIC, Context, Engine, RecordedTensorRT, Runtime
from tests.unit.engine_build import stand_ins
from tests.unit.engine_build.tensorrt import stand_in_gpu
from tests.unit.engine_build.tiny import model, write_tree

TINY = Path(__file__).resolve().parents[3] / "fixtures/tiny_embedder/model.onnx"
PROGRAMS = ("trtexec", "nvidia-smi")
PROGRAM = Path(__file__).with_name("stand_in_gpu.py")
TEXT = tuple(
    TensorRecord(name=name, datatype="INT64", shape=(-1, -1))
    for name in ("input_ids", "attention_mask", "token_type_ids")
)
WRAPPER = """#!{python}
import runpy, sys
sys.argv = [sys.argv[0], {machine!r}, {name!r}, *sys.argv[1:]]
runpy.run_path({program!r}, run_name="__main__")
"""


class InProcess(Runner):
    """Runs the stand-ins' programs in this process, where no test asks for their own."""

    def __init__(self, log, machine):
        super().__init__(log)
        self._machine = machine

    def _wait_for_end(self, command, path):
        name = Path(command.argv[0]).name
        if name not in PROGRAMS:
            return super()._wait_for_end(command, path)
        streams = io.StringIO(), io.StringIO()
        machine = {**stand_in_gpu.DEFAULTS, **json.loads(self._machine.read_text())}
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            code = stand_in_gpu.main(name, list(command.argv[1:]), machine)
        output, errors = (stream.getvalue() for stream in streams)
        path.write_text(output + errors)
        return Ended(code=code, output=output, errors=errors)


class GpuMachine:
    """Programs in a folder that the test puts on PATH; `describe` changes what they find.

    `processes`: they run as processes, which takes seconds.
    """

    def __init__(self, folder, monkeypatch, *, processes=False):
        self.folder, self._processes = folder, processes
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.describe()
        for name in PROGRAMS:
            path = self.bin / name
            paths = {"machine": str(self._machine), "program": str(PROGRAM)}
            path.write_text(WRAPPER.format(python=sys.executable, name=name, **paths))
            path.chmod(0o755)
        monkeypatch.setenv("PATH", str(self.bin), prepend=":")

    @property
    def _machine(self):
        return self.folder / "machine.json"

    def describe(self, **changes):
        """Changes of stand_in_gpu.DEFAULTS."""
        self._machine.write_text(json.dumps(changes))

    def context(
        self,
        precision="auto",
        *,
        store=None,
        platform="triton-26.05",
        instance="ml.g5.xlarge",
        out="out",
        changes=None,
        **engine,
    ):
        """A build's tools with real processes, its work folder not yet entered.

        `changes` replace whole keys of the model file, but `engine`.
        """
        changes = {"endpoint": {"instance_type": instance}} | (changes or {})
        spec = model("tiny", precision, **changes)
        spec["engine"] = {**spec["engine"], **engine}
        root = write_tree(self.folder / "root", spec, platform=platform)
        tools = stand_ins.context(root, self.folder / out, store=store, runner=None)
        runner = Runner(tools.log)
        if not self._processes:
            runner = InProcess(tools.log, self._machine)
        self.folder.joinpath(out).mkdir(exist_ok=True)
        runner.record(self.folder / out / "reproduce.sh")
        return dataclasses.replace(tools, runner=runner)

    def networks(self):
        """The tiny network, and one with a Q/DQ pair."""
        return {
            name: self.network(name, write(self.folder))
            for name, write in (("float", lambda _: TINY), ("int8", quantized))
        }

    def network(self, precision, path):
        """A network of the tiny one's inputs and outputs."""
        output = TensorRecord(name="sentence_embedding", datatype="FP32", shape=(-1, 16))
        return Network(precision=precision, path=path, inputs=TEXT, outputs=(output,), facts={})


def install_runtime(monkeypatch):
    """TensorRT's and CUDA's bindings as this Python's own; the stand-in for CUDA."""
    cuda = RecordedCuda()
    modules = {
        "tensorrt": StandInTensorRT(cuda),
        "cuda": SimpleNamespace(),
        "cuda.bindings": SimpleNamespace(),
        "cuda.bindings.runtime": cuda,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return cuda


def feed(rows, tokens):
    """Whole rows of tokens that the tiny network knows."""
    ids = np.random.default_rng(rows * tokens).integers(1, 20, (rows, tokens))
    masks = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return {"input_ids": ids, **masks}


def quantized(folder):
    """The tiny network with a Q/DQ pair behind its first Add."""
    network = onnx.load(TINY)
    graph = network.graph
    index = next(index for index, node in enumerate(graph.node) if node.op_type == "Add")
    output, graph.node[index].output[0] = graph.node[index].output[0], "before"
    constants = {"scale": np.array(0.02, dtype=np.float32), "zero": np.array(0, dtype=np.int8)}
    graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    pair = (("QuantizeLinear", "before", "q"), ("DequantizeLinear", "q", output))
    for position, (operator, source, target) in enumerate(pair, index + 1):
        node = helper.make_node(operator, [source, "scale", "zero"], [target])
        graph.node.insert(position, node)
    path = folder / "quantized.onnx"
    onnx.save(network, path)
    return path


class StandInTensorRT(RecordedTensorRT):
    """The module."""

    def Runtime(self, logger):
        self.runtimes.append(StandInRuntime(self, logger))
        return self.runtimes[-1]


class StandInRuntime(Runtime):
    """Loads plans."""

    def deserialize_cuda_engine(self, serialized_engine):
        if serialized_engine[:4] != MAGIC:
            self.logger.log(1, "The engine plan file is not compatible with this TensorRT")
            return None
        plan = json.loads(serialized_engine[28:])
        self.trt.engines.append(StandInEngine(self.trt, self.logger, plan))
        return self.trt.engines[-1]


def parsed_shapes(text):
    """Sizes by input, as in "a:1x4,b:1x4"."""
    pairs = [pair.rsplit(":", 1) for pair in text.split(",")]
    return {name: tuple(map(int, sizes.split("x"))) for name, sizes in pairs}


class StandInEngine(Engine):
    """One optimization profile a "|" in the plan's shapes; `runs` are (profile, input shapes)."""

    def __init__(self, trt, logger, plan):
        kinds = (plan["shapes"][kind].split("|") for kind in ("min", "opt", "max"))
        shapes = (list(map(parsed_shapes, texts)) for texts in zip(*kinds, strict=True))
        profiles = [{name: [kind[name] for kind in three] for name in three[0]} for three in shapes]
        tensors = {
            "inputs": dict.fromkeys(plan["inputs"], "int64"),
            "outputs": dict.fromkeys(plan["outputs"], plan.get("output_type", "float")),
        }
        super().__init__(trt, logger, {**plan, **tensors, "profiles": profiles})

    def create_execution_context(self, strategy=0):
        return StandInContext(self, strategy)


class StandInContext(Context):
    """Runs the plan's network in ONNX Runtime, from and to the addresses it was given."""

    def __init__(self, engine, strategy):
        super().__init__(engine, strategy)
        self.network = OrtNetwork(Path(engine.plan["network"]))

    def get_tensor_shape(self, name):
        zeros = {key: np.zeros(shape, dtype=np.int64) for key, shape in self.shapes.items()}
        return list(self.network.values([name], zeros)[name].shape)

    def _run(self, stream, made):
        assert made == self.changes, "the context changed after it was queued or recorded"
        self.engine.runs.append((self.profile, dict(self.shapes)))
        feed = {name: self._read(name) for name in self.engine.plan["inputs"]}
        for name, values in self.network.values(list(self.engine.plan["outputs"]), feed).items():
            answer = np.ascontiguousarray(values, dtype=np.float32).reshape(-1).view(np.uint8)
            self.cuda.memory(self.addresses[name], answer.nbytes)[:] = answer
