"""What one run of the experiment does: model, places, HTTP processes, cores, rounds."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE = re.compile(
    r"^roundhouse_(stage|engine|queue|request)_seconds_(sum|count)"
    r'(?:\{(?:stage="(\w+)")?[^}]*\})? (\S+)$',
    re.M,
)
ROWS = re.compile(r"^roundhouse_batch_rows_(sum|count)(?:\{[^}]*\})? (\S+)$", re.M)
Sums = Mapping[str, float]


def sums(exposition: str) -> Sums:
    """Sums and counts by name, of Prometheus's text."""
    found = {
        f"{stage or kind}_{what}": float(value)
        for kind, what, stage, value in SAMPLE.findall(exposition)
    }
    return {**found, **{f"rows_{what}": float(value) for what, value in ROWS.findall(exposition)}}


def means(before: Sums, after: Sums) -> dict[str, float]:
    """Mean milliseconds of a request's stages, a request and a batch (`engine`), and its rows."""
    names = {name.rpartition("_")[0] for name in after}
    counts = {
        name: after.get(f"{name}_count", 0.0) - before.get(f"{name}_count", 0.0) for name in names
    }
    totals = {name: after[f"{name}_sum"] - before.get(f"{name}_sum", 0.0) for name in names}
    units = {name: 1.0 if name == "rows" else 1e3 for name in names}
    return {
        name: round(units[name] * totals[name] / counts[name], 4)
        for name in sorted(names)
        if counts[name]
    }


REPOSITORY = Path(__file__).resolve().parents[2]
MAX_TOKENS = 128


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is run: the HTTP processes of each of our servers, cores, seconds and rounds."""

    model: str
    folder: Path
    out: Path
    tiny: bool = False
    processes: tuple[int, ...] = (1, 2, 4, 6)
    rounds: int = 3
    seconds: float = 2.0
    load_threads: int = 6
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def archive(self) -> Path:
        """The engine's archive."""
        return self.folder / "archives" / self.model

    def cores(self, processes: int) -> int:
        """Cores that a server gets.

        One for each HTTP process before an owner, one for the owner, one for its engine thread.
        """
        return 2 if processes == 1 else processes + 2

    def pinned(self, processes: int) -> str | None:
        """Taskset's list for such a server; the tiny run shares the few cores there are."""
        return None if self.tiny else f"0-{self.cores(processes) - 1}"

    @property
    def load_cores(self) -> str | None:
        """Taskset's list for the load generator: the upper half."""
        return None if self.tiny else f"{(os.cpu_count() or 16) // 2}-{(os.cpu_count() or 16) - 1}"


def plan_request(arguments: list[str]) -> Plan:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.h200.experiment", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", choices=("bert-large", "minilm", "tiny"))
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--tiny", action="store_true", help="on the CPU, shared cores, short rounds"
    )
    parser.add_argument(
        "--processes",
        help="HTTP processes of each of our servers; default: 1,2,4 and, for minilm, 6",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of our servers and the engine",
    )
    given = parser.parse_args(arguments)
    more = dict(setting.split("=", 1) for setting in given.set)
    usual = "1,2,4,6" if given.model == "minilm" else "1,2,4"
    numbers = tuple(
        int(name) for name in (usual if given.processes is None else given.processes).split(",")
    )
    return Plan(
        model=given.model, folder=given.folder.resolve(), out=given.out.resolve(),
        tiny=given.tiny, processes=numbers,
        rounds=given.rounds, seconds=given.seconds, more=more,
    )  # fmt: skip
