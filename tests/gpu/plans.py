"""Small networks, their plans, a full GPU, archives of plans and servers: what the rows share.

Plans are made by TensorRT's own builder in this process, which starts once, or by trtexec where a
row is about its options.
"""

from __future__ import annotations

import http.client
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from container.server.engines.shaping import Part
from container.server.engines.tensorrt_plan import PlanRunner
from container.tensorrt.bindings import bindings, error_logger
from container.tensorrt.faults import NoBindings
from container.triton.manifest_check import running_compute_capability
from container.wire import array_request, arrays_of
from engine_build.log import Log
from engine_build.runner import Runner
from engine_build.tensorrt.trtexec import CompileOptions, InputRange, compile_command
from onboarding.manifest import PlanRecord, ProfileRecord, RuntimeIdentity, TensorRecord
from tests.contract.server_process import free_port, until
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, EMBEDDER, write_manifest
from tests.gpu.load import IMAGE_VARIABLES

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20
FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
Shape = tuple[int, ...]
Ranges = Mapping[str, tuple[Shape, Shape, Shape]]
"""(min, opt, max) of each input, in one profile."""


def _lack() -> str | None:
    try:
        bindings()
    except NoBindings as fault:
        return str(fault)
    return None if running_compute_capability() else "there is no NVIDIA GPU"


GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        (lack := _lack()) is not None or shutil.which("trtexec") is None,
        reason=f"needs an NVIDIA GPU with TensorRT and trtexec ({lack or 'there is no trtexec'})",
    ),
]
"""Marks of a module whose rows run plans."""


# Networks


def write_network(
    path: Path,
    nodes: Sequence[tuple[str, str, str, dict[str, Any]]],
    inputs: Mapping[str, tuple[int, Sequence[Any]]],
    outputs: Mapping[str, tuple[int, Sequence[Any]]],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 19,
) -> Path:
    """Write a network of (operator, "inputs", "outputs", attributes) nodes."""
    values = [
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in side.items()]
        for side in (inputs, outputs)
    ]
    graph = helper.make_graph(
        [
            helper.make_node(operator, read.split(), written.split(), **attributes)
            for operator, read, written, attributes in nodes
        ],
        path.stem,
        *values,
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


class Layers:
    """y = (Relu of x W) W ... in FP32: `layers` square matrices of `width`, from one seed."""

    def __init__(self, folder: Path, *, width: int, layers: int = 2, sparse: bool = False) -> None:
        draw = np.random.default_rng(width)
        shape, scale = (width, width), np.sqrt(2 / width)
        self.weights = [
            (scale * draw.standard_normal(shape)).astype(np.float32) for _ in range(layers)
        ]
        if sparse:  # in each four weights of a sum two are zero
            for weight in self.weights:
                weight.reshape(-1, 4, width)[:, ::2] = 0
        self.width = width
        nodes, last = [], "x"
        for index in range(layers):
            out = "y" if index == layers - 1 else f"r{index}"
            nodes += [
                ("MatMul", f"{last} w{index}", f"m{index}", {}),
                ("Relu", f"m{index}", out, {}),
            ]
            last = out
        constants = {f"w{index}": weight for index, weight in enumerate(self.weights)}
        tensor = (FLOAT, ["batch", width])
        self.path = write_network(
            folder / f"layers-{width}.onnx", nodes, {"x": tensor}, {"y": tensor}, constants
        )

    def ranges(self, *batch: int) -> Ranges:
        """One profile of these (min, opt, max) rows."""
        low, opt, high = ((rows, self.width) for rows in batch)
        return {"x": (low, opt, high)}

    def feed(self, rows: int, seed: int = 1) -> dict[str, Any]:
        draw = np.random.default_rng(seed)
        return {"x": draw.standard_normal((rows, self.width)).astype(np.float32)}

    def answer(self, feed: Mapping[str, Any]) -> Any:
        y = feed["x"]
        for weight in self.weights:
            y = np.maximum(y @ weight, 0)
        return y

    def check(self, runner: PlanRunner, rows: int, *, seed: int = 1, slot: int = 0) -> None:
        """Fail where a plan's answer is not the network's."""
        feed = self.feed(rows, seed)
        expected, answer = self.answer(feed), ask(runner, feed, slot)["y"]
        assert answer.shape == expected.shape
        assert np.abs(answer - expected).max() < 1e-3 * np.abs(expected).max()


# Plans


@cache
def builder() -> tuple[Any, Any, Any]:
    """TensorRT, its logger and one builder, which takes seconds to start."""
    trt, _ = bindings()
    logger = error_logger(trt)
    trt.init_libnvinfer_plugins(logger, "")
    return trt, logger, trt.Builder(logger)


def build(
    network: Path,
    *profiles: Ranges,
    shape_values: Mapping[str, tuple[Shape, Shape, Shape]] | None = None,
    level: int = 1,
) -> Path:
    """Compile a network, strongly typed and without TF32, into a plan beside it."""
    trt, logger, maker = builder()
    definition = maker.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(definition, logger)
    is_read = parser.parse_from_file(str(network))
    assert is_read, [parser.get_error(index).desc() for index in range(parser.num_errors)]
    config = maker.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)
    config.builder_optimization_level = level
    for ranges in profiles:
        profile = maker.create_optimization_profile()
        for name, sizes in ranges.items():
            profile.set_shape(name, *sizes)
        for name, sizes in (shape_values or {}).items():
            profile.set_shape_input(name, *sizes)
        config.add_optimization_profile(profile)
    logger.errors.clear()
    plan = maker.build_serialized_network(definition, config)
    assert plan is not None, logger.errors
    path = network.with_suffix(".plan")
    path.write_bytes(bytes(plan))
    return path


def compile_by_trtexec(network: Path, ranges: Ranges, **options: Any) -> tuple[Path, Any]:
    """Return the plan that the pipeline's own command makes, and how trtexec ended."""
    path = network.with_suffix(".plan")
    limits = tuple(
        InputRange(name=name, smallest=low, opt=opt, largest=high)
        for name, (low, opt, high) in ranges.items()
    )
    wanted = {"precision": "fp32", "profiles": (limits,)} | options
    trt, _ = bindings()
    dialect = 11 if int(trt.__version__.split(".")[0]) >= 11 else 10
    command = compile_command(CompileOptions(network=network, plan=path, **wanted), dialect)
    return path, Runner(Log(io.StringIO())).run(command)


def plan_version(plan: Path) -> str:
    """Return the TensorRT that wrote a plan, from the bytes that --getPlanVersionOnly reads."""
    return ".".join(map(str, plan.read_bytes()[24:28]))


class CountedCuda:
    """CUDA's runtime, its calls counted by name."""

    def __init__(self) -> None:
        _, self._cuda = bindings()
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cuda"):
            self.calls[name] = self.calls.get(name, 0) + 1
        return getattr(self._cuda, name)


@contextmanager
def open_plan(
    plan: Path, *declared: Mapping[str, Shape], cuda: Any = None, **options: Any
) -> Iterator[PlanRunner]:
    """Run a plan as the server does, with graphs for the declared shapes."""
    trt, real = bindings()
    used = {"slots": 1, "warn": pytest.fail} | options
    with closing(PlanRunner(plan, trt=trt, cuda=real if cuda is None else cuda, **used)) as runner:
        runner.open([dict(shapes) for shapes in declared])
        yield runner


def ask(runner: PlanRunner, feed: Mapping[str, Any], slot: int = 0) -> Mapping[str, Any]:
    """Return every output for a feed whose rows are all its own."""
    shapes = {name: feed[name].shape for name in runner.inputs}
    rows = next(iter(shapes.values()))[0]
    return runner.run(Part(rows=rows, shapes=shapes, feed=dict(feed)), slot)


def used_mib() -> float:
    """Memory taken on the GPU, by whomever."""
    _, cuda = bindings()
    cuda.cudaSetDevice(0)
    _, free, total = cuda.cudaMemGetInfo()
    return (total - free) / MIB


@contextmanager
def full_gpu(leave_mib: int = 0) -> Iterator[None]:
    """Take the GPU's memory but for `leave_mib`, for a while."""
    _, cuda = bindings()
    cuda.cudaSetDevice(0)
    taken = []
    try:
        for size in (1024 * MIB, 64 * MIB, 2 * MIB):
            while cuda.cudaMemGetInfo()[1] - size >= leave_mib * MIB:
                error, address = cuda.cudaMalloc(size)
                if error != cuda.cudaError_t.cudaSuccess:
                    cuda.cudaGetLastError()
                    break
                taken.append(address)
        yield
    finally:
        for address in taken:
            cuda.cudaFree(address)


# Archives and servers


def plan_fields(file: Path) -> dict[str, Any]:
    """Return what the manifest says of a plan of this machine."""
    version = plan_version(file)
    return {
        "runtime": RuntimeIdentity(name="tensorrt", version=version),
        "compute_capability": running_compute_capability(),
        "plan": PlanRecord(tensorrt=version, layers=1, int8_layers=0, command="trtexec"),
    }


def archive(
    root: Path,
    file: Path,
    inputs: Mapping[str, tuple[str, Shape]],
    outputs: Mapping[str, tuple[str, Shape]],
    *profiles: ProfileRecord,
    tokenizer: Path | None = None,
    **changes: Any,
) -> Path:
    """Write the archive of a plan of this machine: KServe types and shapes by name."""
    root.mkdir(parents=True)
    shutil.copy(file, root / "model.plan")
    if tokenizer is not None:
        shutil.copy(tokenizer, root / "tokenizer.json")
    records = {
        side: tuple(
            TensorRecord(name=name, datatype=kind, shape=shape)
            for name, (kind, shape) in tensors.items()
        )
        for side, tensors in (("inputs", inputs), ("outputs", outputs))
    }
    fields: dict[str, Any] = {
        "engine_file": "model.plan",
        "tokenizer_file": None if tokenizer is None else "tokenizer.json",
        "optimization_profiles": profiles,
        "max_batch_size": max(profile.batch[2] for profile in profiles),
        **records,
        **plan_fields(file),
    }
    write_manifest(root, ARITHMETIC if tokenizer is None else EMBEDDER, **fields | changes)
    return root


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server's process, its port, and the file of its output."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def request(self, body: bytes, content_type: str) -> tuple[int, bytes, str]:
        """Return status, body and content type."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("POST", "/invocations", body, {"Content-Type": content_type})
            response = connection.getresponse()
            return response.status, response.read(), response.headers["Content-Type"]

    def ask(self, feed: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the status, and the arrays or the fault's bytes."""
        status, body, kind = self.request(*array_request(feed))
        return status, arrays_of(body, kind) if status == 200 else body

    def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()

    def is_healthy(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with suppress(OSError, http.client.HTTPException):
            return self.get("/ping")[0] == 200
        return False


def launch(
    root: Path,
    log: Path,
    *,
    module: str = "container.server",
    prefix: Sequence[str] = (),
    **variables: str,
) -> Server:
    """Start a server on an archive; it is not ready when this returns."""
    port = free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        "PYTHONUNBUFFERED": "1",
        **IMAGE_VARIABLES,
        "SM_MODEL_DIR": str(root),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        **variables,
    }
    argv = (*prefix, sys.executable, "-m", module, "serve")
    with log.open("wb") as file:
        process = subprocess.Popen(argv, env=environment, cwd=log.parent, stdout=file, stderr=file)
    return Server(process=process, port=port, log=log)


@contextmanager
def serving(
    root: Path, log: Path, *, wait: Callable[..., Any] = until, **options: Any
) -> Iterator[Server]:
    """Run a server until the block ends; it is healthy in it."""
    server = launch(root, log, **options)
    try:
        wait(server.is_healthy, "a healthy server")
        yield server
    finally:
        server.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(30)
        server.process.kill()


def end_of(root: Path, log: Path, **variables: str) -> tuple[int, str]:
    """Return exit code and output of a server that must end by itself."""
    server = launch(root, log, **variables)
    try:
        return server.process.wait(120), log.read_text()
    finally:
        server.process.kill()


def in_a_process(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process that may crash alone."""
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        (sys.executable, "-c", code, *map(str, arguments)),
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
