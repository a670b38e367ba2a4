"""What one run of the experiment does: model, folders, HTTP processes, cores, rounds."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_TOKENS = 128
LOAD_THREADS = 6


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The HTTP processes of each of our servers, and the seconds and rounds of every load.

    `variables` are those of our servers and of the engine.
    """

    model: str
    folder: Path
    out: Path
    tiny: bool
    processes: tuple[int, ...]
    rounds: int
    seconds: float
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def archive(self) -> Path:
        """The engine's archive."""
        return self.folder / "archives" / self.model

    def cores(self, processes: int) -> int:
        """Return the cores that a server gets.

        One for each HTTP process before an owner, one for the owner, one for its engine thread.
        """
        return 2 if processes == 1 else processes + 2

    def pinned_cores(self, processes: int) -> str | None:
        """Return taskset's list for such a server; the tiny run shares the few cores there are."""
        return None if self.tiny else f"0-{self.cores(processes) - 1}"

    @property
    def load_cores(self) -> str | None:
        """Taskset's list for the load generator: the upper half."""
        count = os.cpu_count() or 16
        return None if self.tiny else f"{count // 2}-{count - 1}"


def plan_request(arguments: list[str]) -> Plan:
    """Return the plan of a command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.h200.experiment")
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", choices=("bert-large", "minilm", "tiny"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="on the CPU, without pinned cores")
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
    options = parser.parse_args(arguments)
    usual = "1,2,4,6" if options.model == "minilm" else "1,2,4"
    processes = usual if options.processes is None else options.processes
    return Plan(
        model=options.model,
        folder=options.folder.resolve(),
        out=options.out.resolve(),
        tiny=options.tiny,
        processes=tuple(int(number) for number in processes.split(",")),
        rounds=options.rounds,
        seconds=options.seconds,
        variables=dict(setting.split("=", 1) for setting in options.set),
    )
