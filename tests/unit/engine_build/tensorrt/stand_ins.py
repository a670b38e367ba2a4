"""A stand-in for TensorRT's runtime: ONNX Runtime plays the plans of stand_in_gpu.

It runs in the memory of the recorded CUDA.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from engine_build.ort import OrtNetwork
from tests.fixtures.recorded_gpu.tensorrt import MAGIC, Context, Engine, RecordedTensorRT, Runtime


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
