"""Runtimes of a batch: PyTorch, ONNX Runtime, our server's engine, and servers by HTTP."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.runtimes.networks import module
from benchmarks.runtimes.workload import HEADER_SIZE, Workload
from engine_build.datasets.dataset import Array, Feed
from engine_build.evaluation.runtimes import TorchModule
from engine_build.ort import BoundNetwork, OrtNetwork

Device = Literal["cpu", "cuda"]
HEADER_END = b"\r\n\r\n"


class CompiledModule(TorchModule):
    """The module through torch.compile; on a GPU with CUDA graphs (`reduce-overhead`)."""

    def __init__(self, source: Any, *, device: Device, half: bool) -> None:
        import torch

        super().__init__(source, source.inputs, device=device, half=half)
        mode = "reduce-overhead" if device == "cuda" else "default"
        self._module = torch.compile(self._module, dynamic=False, mode=mode)


class ServedEngine:
    """The engine class of our server on its archive, with no server before it."""

    def __init__(self, archive: Path) -> None:
        # Here, for the environment of builds lacks what servers import.
        from container.archive import verify_archive
        from container.server.engines.loading import load_engine, running
        from container.server.engines.tokens import Tokens

        self._tokens = Tokens
        verified = verify_archive(archive, running=running(), manifest_sha256=None)
        cores = len(os.sched_getaffinity(0))
        self._engine = load_engine(verified, slots=None, threads=None, cores=cores)
        self._engine.warm_up()

    def rows(self, feed: Feed) -> Array:
        """Return float32 [rows, values]."""
        if "pixel_values" in feed:
            rows: Sequence[Any] = [(pixels,) for pixels in feed["pixel_values"]]
        else:
            lengths = feed["attention_mask"].sum(axis=1)
            ids: Array = feed["input_ids"].astype(np.int32)
            rows = [self._tokens(row[:length]) for row, length in zip(ids, lengths, strict=True)]
        answer: Array = self._engine.run(self._engine.prepare(rows), 0)[0]
        return answer


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


def local_engines(
    name: str, folder: Path, archive: Path, device: Device
) -> list[tuple[str, str, Load]]:
    """Return runtime, precision and load of each; PyTorch in FP32 first: answers' reference."""
    source, network = module(name, folder), folder / "networks" / f"{name}.onnx"

    def eager(half: bool = False) -> Callable[[Feed], object]:
        return TorchModule(source, source.inputs, device=device, half=half).rows

    def compiled(half: bool = False) -> Callable[[Feed], object]:
        return CompiledModule(source, device=device, half=half).rows

    if device == "cpu":
        return [
            ("PyTorch eager", "fp32", eager),
            ("torch.compile", "fp32", compiled),
            ("ONNX Runtime", "fp32", lambda: OrtNetwork(network, as_served=True).rows),
            (
                "ONNX Runtime",
                "int8 (dynamic)",
                lambda: OrtNetwork(dynamic_int8(network), as_served=True).rows,
            ),
        ]
    return [
        ("PyTorch eager", "fp32", eager),
        ("PyTorch eager", "fp16", lambda: eager(True)),
        ("torch.compile", "fp16", lambda: compiled(True)),
        ("ONNX Runtime", "fp16", lambda: BoundNetwork(network).rows),
        ("ONNX Runtime, CUDA graph", "fp16", lambda: ServedEngine(archive).rows),
    ]


def dynamic_int8(network: Path) -> Path:
    """Return the network with its weights in INT8, quantized as it runs; written once."""
    from onnxruntime.quantization import quantize_dynamic

    path = network.with_suffix(".int8.onnx")
    if not path.is_file():
        draft = path.with_suffix(".draft")
        quantize_dynamic(network, draft, op_types_to_quantize=["MatMul", "Gemm"])
        draft.rename(path)
    return path
