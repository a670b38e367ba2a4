"""Real Triton behind our server, on archives as a build lays them out: what its rows share.

A `Source` says where Triton and its engines come from: plans of this machine's GPU, or networks
that stand in for them (`tests/contract/test_triton_rows.py`).
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from container.wire import array_request, arrays_of
from engine_build.onnx_graph.onnx_file import with_table_rows
from engine_build.packaging.archive import model_repository
from engine_build.packaging.repository import Repository, repository
from engine_build.packaging.served import Served
from local_cloud.containers.server_client import Response, ServerClient
from onboarding.manifest import Manifest, ProfileRecord, TensorRecord
from onboarding.serving_spec import ServingSpec
from roundhouse.dev.gpu.servers import triton_server
from tests.contract.server_process import descendants, free_port
from tests.fixtures.ensembles.archive import ensemble_spec, write_ensemble_archive
from tests.fixtures.tiny_embedder.archive import EMBEDDER, HERE, SCORER, Tiny, tiny, write_manifest
from tests.unit.engine_build.graphs import node, tensor, write_graph

ROOT = Path(__file__).resolve().parents[2]
STUB, TRITON = "triton_python_backend_stub", "tritonserver"
READY_SECONDS, STOP_SECONDS, POLL_SECONDS = 120.0, 30.0, 0.02
TARGET = "X-Amzn-SageMaker-Target-Model"
VOCABULARY: dict[str, int] = json.loads((HERE / "tokenizer.json").read_text())["model"]["vocab"]
WORDS = sorted(word for word in VOCABULARY if word.isalpha())
LONGEST = 32
LEAST_COSINE = 0.99999


# Where Triton and its engines come from


@dataclass(frozen=True, kw_only=True)
class Source:
    """Triton's program, the Python of the server before it, and how engines are packaged."""

    program: Path
    python: str
    variables: Mapping[str, str]
    has_plans: bool = False

    def lay_out(
        self, served: Served, network: Path, tokenizer: Path | None
    ) -> tuple[Repository, dict[str, Any]]:
        """Return an engine's repository, and what its manifest says of where it runs."""
        raise NotImplementedError

    @property
    def has_cache(self) -> bool:
        return (self.program.resolve().parents[1] / "caches" / "local").is_dir()


class Plans(Source):
    """TensorRT's plans, of a network or as they are; needs the server's packages."""

    def lay_out(
        self, served: Served, network: Path, tokenizer: Path | None
    ) -> tuple[Repository, dict[str, Any]]:
        from tests.gpu.plans import build, plan_fields

        ranges = (_ranges(profile, served.inputs) for profile in served.profiles)
        plan = network if network.suffix == ".plan" else build(network, *ranges, level=0)
        options = {"runtime": "tensorrt", "code_roots": (ROOT,)}
        return repository(served, plan, tokenizer, **options), plan_fields(plan)  # type: ignore[arg-type]


def _ranges(profile: ProfileRecord, inputs: Sequence[TensorRecord]) -> dict[str, Any]:
    """Return (min, opt, max) of each input; its dynamic axes are the batch and the sequence."""
    sequence = profile.sequence or (1, 1, 1)
    return {
        record.name: tuple(
            (rows, *(tokens if size == -1 else size for size in record.shape[1:]))
            for rows, tokens in zip(profile.batch, sequence, strict=True)
        )
        for record in inputs
    }


def write_archive(source: Source, root: Path, model: Tiny, network: Path | None = None) -> Manifest:
    """Write a model's archive; the network is by default the tiny one of its name."""
    served = model.served
    original = HERE / f"{model.network}.onnx" if network is None else network
    copied = root.with_name(f"{root.name}{original.suffix}")
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(original, copied)
    tokenizer = HERE / "tokenizer.json" if served.is_text else None
    laid, fields = source.lay_out(served, copied, tokenizer)
    model_repository(root, laid.files)
    fields |= {"engine_file": laid.engine_file, "tokenizer_file": laid.tokenizer_file}
    fields |= {"activation": served.activation, "image_processor": served.image_processor}
    return write_manifest(root, model, **fields)


# Servers


@dataclass(frozen=True, kw_only=True)
class Triton:
    """A healthy server before Triton, its processes, and the file of their output."""

    process: subprocess.Popen[bytes]
    client: ServerClient
    port: int
    log: Path
    ready_seconds: float

    def send(
        self, body: bytes, content_type: str = "application/json", *, model: str | None = None
    ) -> Response:
        """Send a request to the only model, or to one of several."""
        path, headers = "/invocations", {"Content-Type": content_type}
        if model is not None:
            path, headers[TARGET] = f"/models/{model}/invoke", f"{model}/model.tar.gz"
        return self.client.request("POST", path, body, headers)

    def answers(self, arrays: Mapping[str, Any], *, model: str | None = None) -> dict[str, Any]:
        """Return every output, by the binary extension."""
        answer = self.send(*array_request(arrays), model=model)
        assert answer.status == 200, (answer.status, answer.body[:500], self.words())
        return arrays_of(answer.body, answer.headers["content-type"])

    def vectors(self, texts: Sequence[str]) -> Any:
        return self.answers({"text": column(texts)})["embedding"]

    def load(self, model: str, archive: Path) -> Response:
        body = json.dumps({"model_name": model, "url": str(archive)}).encode()
        headers = {"Content-Type": "application/json", TARGET: f"{model}/model.tar.gz"}
        return self.client.request("POST", "/models", body, headers, READY_SECONDS)

    def unload(self, model: str) -> Response:
        headers = {TARGET: f"{model}/model.tar.gz"}
        return self.client.request("DELETE", f"/models/{model}", b"", headers)

    def is_healthy(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.client.request("GET", "/ping", timeout_seconds=5).status == 200
        return False

    def metrics(self) -> str:
        answer = self.client.request("GET", "/metrics")
        assert answer.status == 200, (answer.status, answer.body)
        return answer.body.decode()

    def count(self, name: str, model: str) -> float:
        """Return a counter of Triton's of one of its models."""
        found = re.search(rf'{name}{{[^}}]*model="{model}"[^}}]*}} ([\d.e+]+)', self.metrics())
        return 0.0 if found is None else float(found[1])

    def processes(self, name: str) -> list[int]:
        return descendants(self.process.pid, name)

    def resident_mib(self) -> float:
        """Return the memory of the server, of Triton and of its Python processes."""
        pids = (self.process.pid, *self.processes(TRITON), *self.processes(STUB))
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def words(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-3000:]


@contextmanager
def running(
    source: Source, root: Path, folder: Path, *, model: str | None = None, **variables: str
) -> Iterator[Triton]:
    """Run a server on an archive, or for several models; it is healthy in the block."""
    folder.mkdir(parents=True, exist_ok=True)
    port, log = free_port(), folder / "log"
    own = {
        **source.variables,
        "HOME": f"{folder}",
        "SM_MODEL_DIR": f"{root}",
        "SAGEMAKER_BIND_TO_PORT": f"{port}",
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        **({} if model else {"SAGEMAKER_MULTI_MODEL": "true"}),
        **variables,
    }
    command, environment = triton_server(source.python, source.program, model, own)
    begin = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=file, stderr=file)
    client = ServerClient(lambda seconds: socket.create_connection(("127.0.0.1", port), seconds))
    server = Triton(process=process, client=client, port=port, log=log, ready_seconds=0.0)
    try:
        while not server.is_healthy():
            is_late = time.monotonic() > begin + READY_SECONDS
            if process.poll() is not None or is_late:
                pytest.fail(f"not healthy, exit status {process.poll()}: {server.words()}")
            time.sleep(POLL_SECONDS)
        yield replace(server, ready_seconds=time.monotonic() - begin)
    finally:
        client.close()
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        process.kill()
        process.wait()
        # Python processes of a Triton that was killed stay.
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if f"{root}/".encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)


@contextmanager
def several(source: Source, folder: Path, **variables: str) -> Iterator[Triton]:
    """Run a server of several models, none of them loaded."""
    (folder / "empty").mkdir(parents=True)
    with running(source, folder / "empty", folder / "run", **variables) as server:
        yield server


# Requests, and what the networks themselves answer


def column(values: Sequence[Any]) -> Any:
    return np.array(values, object).reshape(-1, 1)


def texts(seed: int, count: int, words: int | None = None) -> list[str]:
    """Return texts of so many words; None: of one to more than the longest sequence."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, LONGEST + 8, count) if words is None else [words] * count
    return [" ".join(draw.choice(WORDS, length)) for length in lengths]


def token_ids(text: str, *others: str) -> tuple[list[int], list[int]]:
    """Return ids and types of a text, or of a pair, which has no special tokens here."""
    parts = [[VOCABULARY[word] for word in part.split()] for part in (text, *others)]
    if not others:
        parts = [[VOCABULARY["[CLS]"], *parts[0][: LONGEST - 2], VOCABULARY["[SEP]"]]]
    types = [kind for kind, part in enumerate(parts) for _ in part]
    return [number for part in parts for number in part][:LONGEST], types[:LONGEST]


@cache
def evaluator(network: Path) -> ReferenceEvaluator:
    """Return ONNX's own slow execution of a network."""
    return ReferenceEvaluator(onnx.load(network))


def network_rows(network: Path, rows: Sequence[tuple[str, ...]]) -> list[Any]:
    """Return a text network's first output for each text or pair alone, without padding."""
    reference, found = evaluator(network), []
    for parts in rows:
        ids, types = token_ids(*parts)
        feed = {"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": types}
        known = {name: np.array([feed[name]]) for name in reference.input_names}
        found.append(reference.run(None, known)[0][0])
    return found


def softmax(logits: Any) -> Any:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def cosines(found: Any, expected: Any) -> Any:
    one, two = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return (one * two).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1))


def png(pixels: Any) -> bytes:
    """Return the file of an RGB picture [height, width, 3] of uint8."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        size, check = struct.pack(">I", len(data)), struct.pack(">I", zlib.crc32(kind + data))
        return size + kind + data + check

    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def milliseconds(
    server: Triton, request: tuple[bytes, str], count: int, pause: float = 0.0
) -> list[float]:
    """Return the time of each of some requests, one after the other, each after a pause."""
    spans = []
    for _ in range(count):
        time.sleep(pause)
        begin = time.perf_counter()
        answer = server.send(*request)
        spans.append(1e3 * (time.perf_counter() - begin))
        assert answer.status == 200, (answer.status, answer.body[:500], server.words())
    return spans


# Models of their own


def layers(folder: Path, width: int) -> tuple[Tiny, Path, Any]:
    """Return a model y = W' Relu(W x) of `width`, its network, and what it answers."""
    draw, shape = np.random.default_rng(width), (2, width, width)
    one, two = draw.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / width))
    nodes = [
        node("MatMul", "x one", "m"),
        node("Relu", "m", "r"),
        node("MatMul", "r two", "y"),
    ]
    values = [[tensor(name, "batch", width)] for name in "xy"]
    path = write_graph(folder / f"layers-{width}.onnx", nodes, *values, one=one, two=two)
    model = tensor_model(f"layers-{width}", width, width)
    return model, path, lambda x: np.maximum(x @ one, 0) @ two


def tensor_model(
    name: str, inputs: int, outputs: int, batch: tuple[int, int, int] = (1, 8, 16)
) -> Tiny:
    """Return a model of one input x and one output y, both FP32."""
    return tiny(
        name,
        name,
        "tensors",
        (TensorRecord(name="y", datatype="FP32", shape=(-1, outputs)),),
        inputs=(TensorRecord(name="x", datatype="FP32", shape=(-1, inputs)),),
        profiles=(ProfileRecord(batch=batch),),
        max_batch_size=batch[2],
    )


TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def lookup(folder: Path) -> tuple[Tiny, Path]:
    """Return a model that looks its input up in TABLE, and its network."""
    record = TensorRecord(name="category", datatype="INT64", shape=(-1, 1))
    inputs = [tensor("category", "batch", 1, kind=TensorProto.INT64)]
    nodes = [node("Gather", "table category", "rows"), node("Flatten", "rows", "y")]
    outputs = [tensor("y", "batch", 3)]
    path = write_graph(folder / "lookup.onnx", nodes, inputs, outputs, table=TABLE)
    model = tensor_model("lookup", 1, 3)
    inputs_known = with_table_rows(onnx.load(path), [record])
    return replace(model, served=replace(model.served, inputs=inputs_known)), path


def ranker(folder: Path) -> tuple[Tiny, Path]:
    """Return a model that scores pairs by one class of the tiny classifier, and its network."""
    model = onnx.load(HERE / "classifier.onnx")
    (head,) = (item for item in model.graph.initializer if item.name == "head")
    first = onnx.numpy_helper.to_array(head)[:, :1]
    head.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(first), "head"))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 1
    path = folder / "ranker.onnx"
    onnx.save(model, path)
    served = replace(
        EMBEDDER.served,
        model="ranker",
        task="text-ranking",
        outputs=(TensorRecord(name="logits", datatype="FP32", shape=(-1, 1)),),
        activation="sigmoid",
    )
    return Tiny(network="ranker", served=served, labels=("relevant",)), path


def write_chain(source: Source, root: Path) -> None:
    """Write the ensemble of two models: texts to vectors, and vectors to scores."""
    steps = (EMBEDDER, SCORER)
    wired = {"steps": [{"model": step.model} for step in steps], "outputs": ["scores"]}
    write_ensemble_archive(
        root,
        ensemble_spec("chain", **wired),
        steps,
        lambda folder, step: write_archive(source, folder, step),
    )


def embedder(serving: ServingSpec, *profiles: ProfileRecord) -> Tiny:
    """Return the tiny embedder with another serving and other profiles."""
    changes = {"serving": serving} | ({"profiles": profiles} if profiles else {})
    return replace(EMBEDDER, served=replace(EMBEDDER.served, **changes))
