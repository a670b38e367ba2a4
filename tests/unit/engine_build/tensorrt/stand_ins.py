"""A stand-in for TensorRT's runtime.

ONNX Runtime plays the plan, in the memory of the recorded CUDA.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np

from engine_build.ort import OrtNetwork
from tests.fixtures.recorded_gpu.cuda import RecordedCuda
from tests.fixtures.recorded_gpu.tensorrt_names import TensorRTNames


class StandInTensorRT(TensorRTNames):
    """The module; plans are those of stand_in_gpu."""

    def __init__(self, cuda: RecordedCuda) -> None:
        self.engines: list[StandInEngine] = []
        self._cuda = cuda

    def Runtime(self, logger):
        trt = self

        class Runtime:
            """Loads plans."""

            engine_host_code_allowed = False

            def deserialize_cuda_engine(self, serialized_engine):
                if serialized_engine[:4] != b"ftrt":
                    logger.log(1, "The engine plan file is not compatible with this TensorRT")
                    return None
                trt.engines.append(StandInEngine(json.loads(serialized_engine[28:]), trt._cuda))
                return trt.engines[-1]

        return Runtime()

    @staticmethod
    def nptype(trt_type):
        if trt_type == "bf16":
            raise TypeError("numpy has none")
        return {"int64": np.int64, "float": np.float32}[trt_type]


def parsed_shapes(text):
    """Sizes by input, as in "a:1x4,b:1x4"."""
    pairs = [pair.rsplit(":", 1) for pair in text.split(",")]
    return {name: tuple(map(int, sizes.split("x"))) for name, sizes in pairs}


class StandInEngine:
    """One optimization profile a "|" in the plan's shapes."""

    device_memory_size_v2 = 3 << 20

    def __init__(self, plan, cuda):
        self.plan = plan
        self.cuda = cuda
        cuda.base += 8 << 20
        self.names = [*plan["inputs"], *plan["outputs"]]
        self.num_io_tensors = len(self.names)
        texts = (plan["shapes"][kind].split("|") for kind in ("min", "opt", "max"))
        self.profiles = [list(map(parsed_shapes, kinds)) for kinds in zip(*texts, strict=True)]
        self.num_optimization_profiles = len(self.profiles)
        self.runs: list[tuple[int, dict[str, tuple[int, ...]]]] = []

    def get_tensor_name(self, index):
        return self.names[index]

    def get_tensor_mode(self, name):
        return "in" if name in self.plan["inputs"] else "out"

    def get_tensor_location(self, name):
        return "device"

    def get_tensor_dtype(self, name):
        return "int64" if name in self.plan["inputs"] else self.plan.get("output_type", "float")

    def get_tensor_profile_shape(self, name, profile_index):
        return [shapes[name] for shapes in self.profiles[profile_index]]

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
            a <= b <= c for a, b, c in zip(low, shape, high, strict=True)
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
        self.engine.cuda.queue(stream_handle, self._write)
        return True

    def _write(self):
        feed = {}
        for name in self.engine.plan["inputs"]:
            feed[name] = np.empty(self.shapes[name], dtype=np.int64)
            ctypes.memmove(feed[name].ctypes.data, self.addresses[name], feed[name].nbytes)
        for name, values in self.network.values(self.engine.plan["outputs"], feed).items():
            answer = np.ascontiguousarray(values, dtype=np.float32)
            ctypes.memmove(self.addresses[name], answer.ctypes.data, answer.nbytes)
