"""The rounds of the experiment: servers that are up, checked, and loaded one at a time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.h200.plan import REPOSITORY, Plan
from benchmarks.h200.stages import Sums, means, sums
from benchmarks.servers.answers import least_cosine, vectors
from benchmarks.servers.mix import Asked, binary, kserve, plain, sentences
from benchmarks.servers.running import Running
from benchmarks.servers.wrk import Load, Wrk

CHECKED = 8
LEAST_COSINE = 0.999
"""FP16 against FP32."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Servers that are up, and their load."""

    plan: Plan
    servers: Mapping[str, Running]
    wrk: Wrk

    def check(self) -> None:
        """Refuses to measure servers whose answers are not PyTorch's. Raises ValueError."""
        texts = sentences(REPOSITORY)[:CHECKED]
        wanted = self._rows(self.servers["naive"], plain(texts))
        for name, server in self.servers.items():
            if name.startswith("ours"):
                for asked in (kserve(texts), binary(texts)):
                    self._compare(name, self._rows(server, asked), wanted)

    def round(self, number: int) -> dict[str, Any]:
        """Every point once, in an order of this round's own."""
        points = self._points()
        names = sorted(points)
        random.Random(number).shuffle(names)
        return {name: points[name]() for name in names}

    def _points(self) -> dict[str, Callable[[], Any]]:
        points: dict[str, Callable[[], Any]] = {
            "engine rate": lambda: self._engine("/rate"),
            "engine lone": lambda: self._engine("/lone"),
            "naive c=1": self._load("naive", "plain", 1),
            "naive c=64": self._load("naive", "plain", 64),
        }
        for name in self.servers:
            if name.startswith("ours"):
                clients = 64 * max(1, int(name.split()[1]))
                points |= {
                    f"{name} c=1": self._load(name, "kserve", 1),
                    f"{name} c=64": self._load(name, "kserve", 64),
                    f"{name} saturated": self._load(name, "kserve", max(128, clients)),
                    f"{name} sixteen": self._load(name, "sixteen", max(32, clients // 2)),
                }
        return points

    def _load(self, name: str, kind: str, clients: int) -> Callable[[], dict[str, Any]]:
        file, server = self.plan.folder / "requests" / kind, self.servers[name]

        def load() -> dict[str, Any]:
            self.wrk.load(file, port=server.contender.port, connections=clients, seconds=1)
            server.settle()
            before = _sums(server)
            found = self.wrk.load(
                file, port=server.contender.port, connections=clients, seconds=self.plan.seconds
            )
            _refuse_faults(f"{name}, {kind}, {clients} clients", found)
            told = {
                "rate": found.rate,
                "clients": clients,
                "memory_mb": server.memory_mb(),
                **asdict(found),
            }
            return {**told, "means": means(before, _sums(server))}

        return load

    def _engine(self, path: str) -> dict[str, Any]:
        body = json.dumps({"seconds": self.plan.seconds}).encode()
        found: dict[str, Any] = json.loads(
            self.servers["engine alone"].ask(Asked(body=body, path=path))[1]
        )
        return found

    def _rows(self, server: Running, asked: Asked) -> list[list[float]]:
        status, body, content_type = server.ask(asked)
        if status != 200:
            raise ValueError(f"{server.contender.name} answers {status}: {body[:300]!r}")
        return vectors(body, content_type, CHECKED)

    def _compare(self, name: str, found: list[list[float]], wanted: list[list[float]]) -> None:
        worst = least_cosine(found, wanted)
        mixed_up = least_cosine(found, [*wanted[1:], wanted[0]])
        print(
            f"{name}: worst cosine with PyTorch {worst:.6f}, with another text's answer {mixed_up:.6f}",
            flush=True,
        )
        if worst < LEAST_COSINE or mixed_up >= worst:
            raise ValueError(
                f"{name} does not answer what PyTorch answers: worst cosine {worst:.6f}, at least {LEAST_COSINE} wanted"
            )


def _sums(server: Running) -> Sums:
    """Of our servers; the naive one has no metrics."""
    status, body, _ = server.ask(Asked(body=b"", method="GET", path="/metrics"))
    return sums(body.decode()) if status == 200 else {}


def _refuse_faults(what: str, found: Load) -> None:
    if not found.clean:
        raise ValueError(f"{what}: not every request was answered: {found}")
