"""Which models can answer: by their own answers, by health requests, by their Python processes.

A model that answered a request a short while ago is healthy, and is asked nothing. Another gets a
health request through Triton, so that its tokenizer, its engine and their queues all take part.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from container.server.codecs.envelope import DATATYPES
from container.server.codecs.tensors import shortest_sequence, zeros
from container.server.triton.kserve_request import Tables
from container.server.types import BINARY_TYPE, Response, Unavailable, first_line
from container.server.upstream import UpstreamRequest
from onboarding.example_row import row_bytes, row_shape
from onboarding.manifest import MANIFEST_NAME, Manifest, TensorRecord
from onboarding.values import NOT_MEASURED

PROOF_SECONDS = 10.0
"""An answer proves a model's health for so long; then it gets a health request."""
ANSWER_SECONDS = 30.0
"""Longest that a health request waits for its answer behind others."""
FAILURES = 2
"""Health requests in a row that fail before a model counts as unable to answer."""
BUSY = (429, 503, 507)
"""Statuses of a server that has no room now, which says nothing about a model's health."""

STUB = "triton_python_backend_stub"
"""The program of the python backend: Triton starts one for each instance of a Python model, and
never replaces nor waits for one that died.
"""
STUB_FAULT = re.compile(rb"Stub process '[^']*' is not healthy")
"""Triton's words where a Python process does not say within a second that it lives, as on a busy
machine; as every fault while it infers, its answer has status 400.
"""
PROC = Path("/proc")
Ask = Callable[[UpstreamRequest], Awaitable[Response]]


class Stub(NamedTuple):
    """A stub process; `model` is the path of the Python file that it runs, "" once it is dead."""

    pid: int
    model: str
    alive: bool


@dataclass(kw_only=True)
class ModelHealth:
    """What is known of one model; `request` is None where no health request can be made."""

    name: str
    archive: Path
    request: UpstreamRequest | None
    tables: Tables = field(default_factory=dict)
    """What its requests are held against before Triton reads them."""
    confirmed: bool = False
    """Whether it has once answered its health request."""
    proven: float | None = None
    """When it last answered."""
    failures: int = 0
    broken: str = ""
    """Why it cannot answer; empty while it can."""

    @property
    def is_ready(self) -> bool:
        """True when it has answered and is not broken, or cannot be asked."""
        return not self.broken and (self.proven is not None or self.request is None)


class Health:
    """The models of one Triton; used on one event loop."""

    def __init__(
        self, ask: Ask, stubs: Callable[[], tuple[Stub, ...]], clock: Callable[[], float]
    ) -> None:
        self.models: dict[str, ModelHealth] = {}
        self._ask, self._stubs, self._clock = ask, stubs, clock
        self._asking = asyncio.Lock()
        """Held while a health request is under way."""
        self._known: dict[int, str] = {}
        """The Python file of each stub that was seen alive."""
        self._dead: set[int] = set()
        """Stubs that were dead, and still there, at the last inspection."""

    def add(self, model: ModelHealth) -> None:
        """Watch a model that Triton has just loaded, and its processes from now on."""
        self.models[model.name] = model
        self._inspect_stubs()

    async def remove(self, name: str) -> ModelHealth | None:
        """Watch a model no longer, before Triton unloads it.

        Returns once no health request is under way: Triton may hang at unloading then.
        """
        async with self._asking:
            return self.models.pop(name, None)

    def refuse(self, name: str) -> None:
        """Raise Unavailable for a model that cannot answer."""
        model = self.models.get(name)
        if model is not None and model.broken:
            raise Unavailable(f"The model cannot answer: {model.broken}. It is being replaced.")

    def observe(self, name: str, status: int) -> None:
        """Take a request's answer as proof, or a server's fault as doubt."""
        model = self.models.get(name)
        if model is None:
            return
        if status == 200:
            model.proven, model.failures = self._clock(), 0
        elif status >= 500 and status not in BUSY and model.proven is not None:
            model.proven = min(model.proven, self._clock() - PROOF_SECONDS)

    @property
    def fault(self) -> str:
        """Why a model cannot answer; empty while all can."""
        return next((model.broken for model in self.models.values() if model.broken), "")

    async def inspect(self) -> None:
        """Look after the stubs, and send a health request to the model that is unproven longest."""
        self._inspect_stubs()
        now = self._clock()
        due = [
            model
            for model in self.models.values()
            if model.request is not None
            and not model.broken
            and (model.proven is None or now - model.proven >= PROOF_SECONDS)
        ]
        if due:
            await self._probe(min(due, key=lambda model: model.proven or 0.0))

    async def _probe(self, model: ModelHealth) -> None:
        assert model.request is not None
        sent, failure = self._clock(), ""
        try:
            async with self._asking:
                answer = await asyncio.wait_for(self._ask(model.request), ANSWER_SECONDS)
            status = status_of(answer)
            if status == 200:
                model.proven, model.failures, model.confirmed = self._clock(), 0, True
            elif not model.confirmed and 400 <= status < 500:
                # What it is fed by others is not what its archive says: its processes are watched.
                model.request = None
            elif status not in BUSY:
                excerpt = answer.body[:200].decode(errors="replace")
                failure = f"its health request was answered {answer.status} {excerpt}"
        except TimeoutError:
            failure = f"its health request had no answer within {ANSWER_SECONDS:g} s"
        except Unavailable as fault:
            failure = f"its health request had no answer ({first_line(fault)})"
        if failure and not (model.proven is not None and model.proven > sent):
            model.failures += 1
            model.proven = None if model.proven is None else sent - PROOF_SECONDS
            if model.failures >= FAILURES:
                model.broken = failure

    def _inspect_stubs(self) -> None:
        """Find stubs that ended by themselves: Triton waits only for those that it ends.

        A stub that is dead twice in a row is none that Triton is just waiting for.
        """
        stubs = self._stubs()
        known = self._known | {stub.pid: stub.model for stub in stubs if stub.alive}
        dead = {stub.pid for stub in stubs if not stub.alive}
        for pid in dead & self._dead:
            for model in self.models.values():
                if not model.broken and (len(self.models) == 1 or _is_of(known.get(pid), model)):
                    model.broken = f"its Python process {pid} ended"
        self._dead = dead
        self._known = {stub.pid: known[stub.pid] for stub in stubs if stub.pid in known}


def _is_of(path: str | None, model: ModelHealth) -> bool:
    """Return True for a file of a model's archive."""
    return path is not None and Path(path).is_relative_to(model.archive)


def status_of(answer: Response) -> int:
    """Return Triton's status; 500 where it blames the request for its own Python process."""
    is_own = answer.status == 400 and STUB_FAULT.search(answer.body) is not None
    return 500 if is_own else answer.status


def stub_processes(triton: int, proc: Path = PROC) -> tuple[Stub, ...]:
    """Return the stubs of a Triton process, dead ones that it has not waited for included."""
    children: set[int] = set()
    for path in proc.glob(f"{triton}/task/*/children"):
        try:
            children.update(map(int, path.read_text().split()))
        except OSError:  # a thread that has just ended
            continue
    return tuple(stub for pid in sorted(children) if (stub := _stub(pid, proc)) is not None)


def _stub(pid: int, proc: Path) -> Stub | None:
    try:
        name, _, fields = (proc / f"{pid}/stat").read_text().partition("(")[2].rpartition(")")
        arguments = (proc / f"{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if not name or not STUB.startswith(name):
        return None
    alive = fields.split()[0] not in ("Z", "X")
    model = arguments[1].decode(errors="replace") if len(arguments) > 1 else ""
    return Stub(pid, model, alive)


PROBE = b"health"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c6360606000"
    "0000040001f61738550000000049454e44ae426082"
)
"""A PNG file of one black pixel."""
HealthRequest = tuple[bytes, str]
"""Body and content type of one row."""


def input_tables(archive: Path) -> dict[str, int]:
    """Return the rows of the table of each input that the network looks up, by its name."""
    manifest = _manifest(archive)
    inputs = () if manifest is None else manifest.inputs
    return {record.name: record.table_rows for record in inputs if record.table_rows is not None}


def health_request(archive: Path) -> HealthRequest | None:
    """Return a request of one row; None where nobody said what the model takes.

    A text model gets one word, an image model one black pixel, another zeros. A user's
    preprocessing and an ensemble get their example; without one, and without a manifest of ours or
    measured accuracy, there is none.
    """
    manifest = _manifest(archive)
    if manifest is None or manifest.accuracy == NOT_MEASURED:
        return None
    users = manifest.preprocessing if manifest.ensemble is None else manifest.ensemble
    if users is not None:
        return None if users.example is None else _example_request(manifest.inputs, users.example)
    if manifest.tokenizer_file is not None or manifest.image_processor is not None:
        # A ranker has two inputs of texts.
        count, value = len(manifest.inputs), PROBE if manifest.image_processor is None else PIXEL
        tails = [len(value).to_bytes(4, "little") + value] * count
        return _binary_request(manifest.inputs, [[1, 1]] * count, tails)
    if any(record.datatype not in DATATYPES for record in manifest.inputs):
        return None
    arrays = zeros(manifest.inputs, 1, shortest_sequence(manifest.optimization_profiles))
    shapes, tails = [list(array.shape) for array in arrays], [array.tobytes() for array in arrays]
    return _binary_request(manifest.inputs, shapes, tails)


def _manifest(archive: Path) -> Manifest | None:
    try:
        return Manifest.from_bytes((archive / MANIFEST_NAME).read_bytes())
    except (OSError, ValueError, KeyError):
        return None


def _example_request(records: Sequence[TensorRecord], example: Mapping[str, Any]) -> HealthRequest:
    values = [example[record.name] for record in records]
    shapes = [[1, *row_shape(value)] for value in values]
    pairs = zip(values, records, strict=True)
    return _binary_request(
        records, shapes, [row_bytes(value, record.datatype) for value, record in pairs]
    )


def _binary_request(
    records: Sequence[TensorRecord], shapes: Sequence[list[int]], tails: Sequence[bytes]
) -> HealthRequest:
    inputs = [
        {
            "name": record.name,
            "shape": shape,
            "datatype": record.datatype,
            "parameters": {"binary_data_size": len(tail)},
        }
        for record, shape, tail in zip(records, shapes, tails, strict=True)
    ]
    header = orjson.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})
    content_type = f"{BINARY_TYPE};json-header-size={len(header)}"
    return b"".join((header, *tails)), content_type
