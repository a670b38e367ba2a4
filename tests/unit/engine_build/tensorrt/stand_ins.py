"""A stand-in for TensorRT's runtime: ONNX Runtime plays the plans of stand_in_gpu.

It runs in the memory of the recorded CUDA.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np

from engine_build.ort import OrtNetwork
from tests.fixtures.recorded_gpu.tensorrt import MAGIC, Engine, RecordedTensorRT, Runtime


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

    def create_execution_context(self):
        return StandInContext(self)


class StandInContext:
    """Runs the plan's network in ONNX Runtime, from and to the addresses it was given."""

    def __init__(self, engine):
        self.engine = engine
        self.network = OrtNetwork(Path(engine.plan["network"]))
        self.profile = 0
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}

    def set_optimization_profile_async(self, profile_index, stream_handle):
        self.profile = profile_index
        return True

    def set_input_shape(self, name, shape):
        low, _, high = self.engine.get_tensor_profile_shape(name, self.profile)
        self.shapes[name] = shape
        return len(low) == len(shape) and all(
            least <= size <= most for least, size, most in zip(low, shape, high, strict=True)
        )

    def infer_shapes(self):
        return [name for name in self.engine.plan["inputs"] if name not in self.shapes]

    def get_tensor_shape(self, name):
        zeros = {key: np.zeros(shape, dtype=np.int64) for key, shape in self.shapes.items()}
        return list(self.network.values([name], zeros)[name].shape)

    def set_tensor_address(self, name, memory):
        self.addresses[name] = memory
        return True

    def execute_async_v3(self, stream_handle):
        self.engine.runs.append((self.profile, dict(self.shapes)))
        self.engine.trt.cuda.queue(stream_handle, self._write)
        return True

    def _write(self):
        feed = {}
        for name in self.engine.plan["inputs"]:
            feed[name] = np.empty(self.shapes[name], dtype=np.int64)
            ctypes.memmove(feed[name].ctypes.data, self.addresses[name], feed[name].nbytes)
        for name, values in self.network.values(list(self.engine.plan["outputs"]), feed).items():
            answer = np.ascontiguousarray(values, dtype=np.float32)
            ctypes.memmove(self.addresses[name], answer.ctypes.data, answer.nbytes)
