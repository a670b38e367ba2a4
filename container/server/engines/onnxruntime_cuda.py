"""ONNX networks in ONNX Runtime's CUDA and TensorRT providers.

Arrays stay where they are on the device, every bucket is a CUDA graph. Sources: onnxruntime.ai,
CUDA execution provider, "Using CUDA Graphs"; onnxruntime_run_options_config_keys.h, `gpu_graph_id`;
cuda_execution_provider.h, PerThreadContext: a graph belongs to the thread that recorded it, so
there is one slot, and warming up belongs in its thread; elsewhere the slot would record everything
again, at its first requests. Further slots are sessions of their own, which do so.
TensorRT's provider compiles when the session opens, for the shapes that it is told; options:
onnxruntime.ai, TensorRT execution provider.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime

from container.server.engines.engine import memory_of
from container.server.engines.shaping import Part, Shapes, Tensor
from container.server.types import Array
from onboarding.manifest import Manifest

DeviceName = Literal["cuda", "cpu"]
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
LIBRARIES = {CUDA: "its CUDA or cuDNN libraries", TENSORRT: "TensorRT's libraries"}
ENGINE_CACHE = "tensorrt-engines"
"""A folder beside other temporary files: a second session loads what the first compiled."""
UNRECORDABLE = ("have not been partitioned", "graph capture feature", "CUDA Graph feature")
"""What ONNX Runtime says of a network whose nodes are not all on the GPU, or that branches."""
TYPES = {"float": "float32", "float16": "float16", "double": "float64", "bool": "bool"} | {
    name: name for bits in (8, 16, 32, 64) for name in (f"int{bits}", f"uint{bits}")
}
"""Numpy's types by ONNX Runtime's."""
GRAPH = "gpu_graph_id"
"""A run option: runs of one number are one CUDA graph."""
UNRECORDED = -1


class OnnxRunner:
    """Sessions of one network on a device, one a slot; each has weights and graphs of its own.

    On the CPU the same lines run without graphs, which is how they are tested.
    """

    def __init__(
        self,
        path: Path,
        *,
        slots: int = 1,
        device: DeviceName = "cuda",
        warn: Callable[[str], None] = print,
        tensorrt: Mapping[str, str] | None = None,
        open_session: Callable[[str, Any, list[Any]], Any] = onnxruntime.InferenceSession,
    ) -> None:
        """`tensorrt`: options of TensorRT's provider; None: CUDA's runs the network.

        Raises EngineOutOfMemory, ValueError, and what ONNX Runtime raises.
        """
        self.slots, self._path, self._device = slots, path, device
        self._open_session = open_session
        with self._memory():
            self._sessions = [self._open(warn, tensorrt) for _ in range(slots)]
        session = self._sessions[0]
        self.inputs = input_tensors(session)
        self._types = {tensor.name: numpy_type(tensor) for tensor in session.get_outputs()}
        self.outputs = tuple(self._types)
        self._graph_numbers: dict[tuple[tuple[int, ...], ...], int] = {}
        self._graph_runners: list[dict[int, GraphRunner]] = [{} for _ in range(slots)]

    def declare(self, shapes: Iterable[Shapes], *, outputs: tuple[str, ...]) -> None:
        """Give these shapes arrays and a graph of their own when they first run.

        Only these outputs are computed.
        """
        self._types = {name: self._types[name] for name in outputs}
        self._graph_numbers = {
            tuple(shape.values()): number for number, shape in enumerate(shapes, start=1)
        }

    def run(self, part: Part, slot: int) -> Mapping[str, Array]:
        """Return the part's own rows of the outputs.

        Raises EngineOutOfMemory, and what ONNX Runtime raises.
        """
        number = self._graph_numbers.get(tuple(part.shapes.values()))
        session, runners = self._sessions[slot], self._graph_runners[slot]
        with self._memory():
            if number is None:
                graph = UNRECORDED if self._records else None
                return run_unbound(session, part, tuple(self._types), self._device, graph)
            if number not in runners:
                runners[number] = GraphRunner(
                    session,
                    part,
                    inputs={name: tensor.dtype for name, tensor in self.inputs.items()},
                    outputs=self._types,
                    device=self._device,
                    graph=number if self._records else None,
                )
            return runners[number].run(part)

    def close(self) -> None:
        """Forget the sessions, and with them all device memory."""
        del self._graph_runners, self._sessions

    def _memory(self) -> memory_of:
        return memory_of(self._path.name, "GPU memory")

    def _open(self, warn: Callable[[str], None], tensorrt: Mapping[str, str] | None) -> Any:
        """Return a session, and keep whether its runs are recorded."""
        self._records = False
        cuda = (CUDA, {"device_id": "0"})
        if self._device == "cpu":
            return self._session_on(CPU)
        if tensorrt is not None:
            return self._session_on((TENSORRT, {"device_id": "0", **tensorrt}), cuda, CPU)
        try:
            session = self._session_on((CUDA, {"device_id": "0", "enable_cuda_graph": "1"}), CPU)
            self._records = True
            return session
        except Exception as fault:
            if not any(words in str(fault) for words in UNRECORDABLE):
                raise
        warn(
            f"{self._path.name} cannot be recorded as CUDA graphs, for some of its nodes run on "
            "the CPU or branch; it runs "
            "node by node, which is slower for small batches. Fused networks can be recorded."
        )
        return self._session_on(cuda, CPU)

    def _session_on(self, *providers: Any) -> Any:
        """Return a session whose first provider, CPU or a name with options, is there."""
        options = onnxruntime.SessionOptions()
        # The GPU does the work: threads of the CPU's pool would only spin beside it.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = self._open_session(str(self._path), options, list(providers))
        name = providers[0] if isinstance(providers[0], str) else providers[0][0]
        if name not in session.get_providers():
            raise ValueError(f"ONNX Runtime has no {name} here, or {LIBRARIES[name]} do not load")
        return session


def tensorrt_options(manifest: Manifest, shapes: Sequence[Shapes]) -> dict[str, str]:
    """Return the options of TensorRT's provider for a network that runs at these shapes.

    One optimization profile spans them all; it is tuned for the smallest that takes the manifest's
    first opt shape.
    """
    profile = manifest.optimization_profiles[0]
    opt = (profile.batch[1], 1 if profile.sequence is None else profile.sequence[1])
    rising = sorted(shapes, key=lambda shape: [math.prod(sizes) for sizes in shape.values()])

    def takes(shape: Shapes) -> bool:
        rows, *sizes = next(iter(shape.values()))
        return rows >= opt[0] and (profile.sequence is None or sizes[:1] >= [opt[1]])

    tuned = next(filter(takes, rising), rising[-1])
    sizes_of = {name: list(zip(*(shape[name] for shape in shapes), strict=True)) for name in tuned}
    ends = {
        "min": {name: tuple(map(min, axes)) for name, axes in sizes_of.items()},
        "opt": tuned,
        "max": {name: tuple(map(max, axes)) for name, axes in sizes_of.items()},
    }
    is_half, is_int8 = manifest.precision == "fp16", manifest.precision == "int8"
    return {
        "trt_fp16_enable": str(is_half or is_int8),
        "trt_int8_enable": str(is_int8),
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": str(Path(tempfile.gettempdir()) / ENGINE_CACHE),
        **{f"trt_profile_{end}_shapes": _shapes_text(shape) for end, shape in ends.items()},
    }


def _shapes_text(shapes: Shapes) -> str:
    return ",".join(f"{name}:{'x'.join(map(str, sizes))}" for name, sizes in shapes.items())


def input_tensors(session: Any) -> dict[str, Tensor]:
    """Return a session's inputs. Raises ValueError for a type that numpy lacks."""
    return {
        tensor.name: Tensor(dtype=numpy_type(tensor), rank=len(tensor.shape))
        for tensor in session.get_inputs()
    }


def numpy_type(tensor: Any) -> Any:
    """Return numpy's type of a network's tensor. Raises ValueError where numpy has none."""
    name = tensor.type.removeprefix("tensor(").removesuffix(")")
    if name not in TYPES:
        raise ValueError(
            f"tensor {tensor.name} of the network is a {tensor.type}; allowed are "
            f"{', '.join(f'tensor({allowed})' for allowed in TYPES)}"
        )
    return np.dtype(TYPES[name]).type


class GraphRunner:
    """Runs at one shape: inputs and outputs keep their addresses on the device."""

    def __init__(
        self,
        session: Any,
        part: Part,
        *,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        device: str,
        graph: int | None,
    ) -> None:
        """Runs `part` once to see its outputs' shapes.

        `graph` numbers the CUDA graph; `None`: there is none.
        """
        self._session, self._on_cpu = session, device == "cpu"
        allocate = onnxruntime.OrtValue.ortvalue_from_shape_and_type
        self._inputs = {
            name: allocate(list(shape), inputs[name], device, 0)
            for name, shape in part.shapes.items()
        }
        self._zeros = {name: np.zeros(shape, inputs[name]) for name, shape in part.shapes.items()}
        self._blank: set[str] = set()
        """Inputs that hold zeros on the device."""
        self._binding = session.io_binding()
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        self._send(part.feed)
        shapes = self._output_shapes(part, tuple(outputs), device, graph)
        self._outputs = {
            name: allocate(list(shapes[name]), dtype, device, 0) for name, dtype in outputs.items()
        }
        for name, value in self._outputs.items():
            self._binding.bind_ortvalue_output(name, value)
        self._options = run_options(graph)

    def run(self, part: Part) -> dict[str, Array]:
        """Return the part's own rows of every output."""
        self._send(part.feed)
        self._session.run_with_iobinding(self._binding, self._options)
        outputs = {name: value.numpy()[: part.rows] for name, value in self._outputs.items()}
        # From a GPU these are copies; on the CPU they are the very memory that the next run writes
        # to.
        return {name: array.copy() for name, array in outputs.items()} if self._on_cpu else outputs

    def _send(self, feed: Mapping[str, Array | None]) -> None:
        for name, target in self._inputs.items():
            values = feed[name]
            if values is not None:
                target.update_inplace(values)
                self._blank.discard(name)
            elif name not in self._blank:
                target.update_inplace(self._zeros[name])
                self._blank.add(name)

    def _output_shapes(
        self, part: Part, names: Sequence[str], device: str, graph: int | None
    ) -> dict[str, Sequence[int]]:
        for name in names:
            self._binding.bind_output(name, device, 0)
        options = run_options(None if graph is None else UNRECORDED)
        self._session.run_with_iobinding(self._binding, options)
        values = self._binding.get_outputs()
        shapes = {name: value.shape() for name, value in zip(names, values, strict=True)}
        check_rows(shapes, part)
        self._binding.clear_binding_outputs()
        return shapes


def run_unbound(
    session: Any, part: Part, names: Sequence[str], device: str, graph: int | None
) -> dict[str, Array]:
    """Run a part at an undeclared shape, which only tensors have, and keep nothing of it."""
    binding = session.io_binding()
    for name in part.shapes:
        value = onnxruntime.OrtValue.ortvalue_from_numpy(part.feed[name], device, 0)
        binding.bind_ortvalue_input(name, value)
    for name in names:
        binding.bind_output(name, device, 0)
    session.run_with_iobinding(binding, run_options(graph))
    arrays = dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))
    check_rows({name: array.shape for name, array in arrays.items()}, part)
    return {name: array[: part.rows] for name, array in arrays.items()}


def run_options(graph: int | None) -> Any:
    """Return the options of a run; `None` where graphs are off."""
    if graph is None:
        return None
    options = onnxruntime.RunOptions()
    options.add_run_config_entry(GRAPH, str(graph))
    return options


def check_rows(shapes: Mapping[str, Sequence[int]], part: Part) -> None:
    """Raises ValueError when an output's first axis is not the batch."""
    rows = next(iter(part.shapes.values()))[0]
    for name, shape in shapes.items():
        if not len(shape) or shape[0] != rows:
            raise ValueError(
                f"output {name} has shape {list(shape)} for {rows} rows; its first axis must be "
                "the batch"
            )
