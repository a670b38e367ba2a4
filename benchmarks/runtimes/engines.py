"""Runtimes of a batch: PyTorch, ONNX Runtime, and servers by HTTP; and what they measure."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.runtimes.networks import module
from benchmarks.runtimes.workload import Workload
from container.wire import HEADER_SIZE
from engine_build.datasets.dataset import Array, Feed, Shape
from engine_build.evaluation.latency import Engine, Track, measure_latencies, summary
from engine_build.evaluation.runtimes import TorchModule
from engine_build.evaluation.scores import cosines, median_interval
from engine_build.ort import OrtNetwork

Device = Literal["cpu", "cuda"]
HEADER_END = b"\r\n\r\n"


class CompiledModule(TorchModule):
    """The module through torch.compile; on a GPU with CUDA graphs (`reduce-overhead`)."""

    def __init__(self, source: Any, *, device: Device, half: bool) -> None:
        import torch

        super().__init__(source, source.inputs, device=device, half=half)
        mode = "reduce-overhead" if device == "cuda" else "default"
        self._module = torch.compile(self._module, dynamic=False, mode=mode)


class Client:
    """One client of a server, whose connection stays open; it sends each batch's request."""

    def __init__(self, port: int, workloads: Sequence[Workload]) -> None:
        self._requests = {one.shape.batch: one.request.wire() for one in workloads}
        self._port = port
        self._socket = self._connect()

    def rows(self, feed: Feed) -> Array:
        """Return float32 [rows, values]. Raises ValueError for any answer but 200."""
        batch = len(next(iter(feed.values())))
        try:
            data = self._begin(batch)
        except OSError:  # the server closes connections that are idle for long
            self._socket.close()
            self._socket = self._connect()
            data = self._begin(batch)
        while HEADER_END not in data:
            data += self._read()
        head, _, body = data.partition(HEADER_END)
        lines = head.decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        size, parts = int(headers["content-length"]), [body]
        while (missing := size - sum(map(len, parts))) > 0:
            parts.append(self._read(missing))
        body = b"".join(parts)
        if " 200 " not in f"{lines[0]} ":
            raise ValueError(f"the server answers {lines[0]}: {body[:300]!r}")
        begin = int(headers["content-type"].partition(HEADER_SIZE)[2])
        values: Array = np.frombuffer(body[begin:], np.float32)
        return values.reshape(batch, -1)

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=120)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _begin(self, batch: int) -> bytes:
        self._socket.sendall(self._requests[batch])
        return self._read()

    def _read(self, size: int = 1 << 20) -> bytes:
        data = self._socket.recv(min(max(size, 1), 1 << 20))
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return data


Load = Callable[[], Callable[[Feed], object]]


def local_engines(name: str, folder: Path) -> list[tuple[str, str, Load]]:
    """Return runtime, precision and load of each; PyTorch in FP32 first: answers' reference."""
    source, network = module(name, folder), folder / "networks" / f"{name}.onnx"
    eager = partial(TorchModule, source, source.inputs, device="cpu")
    int8 = lambda: OrtNetwork(dynamic_int8(network), as_served=True).rows  # noqa: E731
    return [
        ("PyTorch eager", "fp32", lambda: eager().rows),
        ("torch.compile", "fp32", lambda: CompiledModule(source, device="cpu", half=False).rows),
        ("ONNX Runtime", "fp32", lambda: OrtNetwork(network, as_served=True).rows),
        ("ONNX Runtime", "int8 (dynamic)", int8),
    ]


def latency_rows(
    engines: Sequence[Engine], batches: Sequence[tuple[Shape, Feed]], seconds: float
) -> list[dict[str, Any]]:
    """Return a row for each batch and engine; in-process rates follow from the median.

    Cosines are of the first engine's answers to the same rows.
    """
    tracks = [Track(shape=shape, feed=feed, least=5) for shape, feed in batches]
    rows = []
    for (shape, feed), latencies in zip(
        batches, measure_latencies(engines, tracks, seconds=seconds), strict=True
    ):
        reference: Any = engines[0].run(feed)
        for index, engine in enumerate(engines):
            milliseconds = latencies.of(index)
            record, interval = (
                summary(engine, shape, milliseconds),
                median_interval(milliseconds),
            )
            scores = cosines(np.asarray(engine.run(feed)), reference)
            rate = [1e3 * shape.batch / value for value in (record.p50_ms, *interval[::-1])]
            rows.append(
                {
                    "runtime": engine.runtime,
                    "precision": engine.precision,
                    "batch": shape.batch,
                    "average_ms": record.average_ms,
                    "p50_ms": record.p50_ms,
                    "p50_interval": [round(value, 4) for value in interval],
                    "p95_ms": record.p95_ms,
                    "p99_ms": record.p99_ms,
                    "runs": len(milliseconds),
                    "rounds": len(latencies.milliseconds),
                    "rows_per_second": round(rate[0], 2),
                    "rows_per_second_interval": [round(value, 2) for value in rate[1:]],
                    "cosine_mean": round(float(scores.mean()), 6),
                    "cosine_worst": round(float(scores.min()), 6),
                    "rows_compared": len(scores),
                }
            )
    return rows


def dynamic_int8(network: Path) -> Path:
    """Return the network with its weights in INT8, quantized as it runs; written once."""
    from onnxruntime.quantization import quantize_dynamic

    path = network.with_suffix(".int8.onnx")
    if not path.is_file():
        draft = path.with_suffix(".draft")
        quantize_dynamic(network, draft, op_types_to_quantize=["MatMul", "Gemm"])
        draft.rename(path)
    return path
