"""`python -m workbench.bench.child RESULT PROGRAM ARGUMENT…`: runs a program and writes what it took, as JSON.

A process of its own, so that the peak memory is that of this program's process tree (its largest process) and of no other.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench.processes import Command, Processes


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a program took."""

    code: int
    seconds: float
    peak_mib: float


def measured(command: Command, result: Path, run: Processes) -> Taken:
    """Runs a program through this module in a fresh process. Raises ValueError when it left no result."""
    child = Command(
        argv=(sys.executable, "-m", "workbench.bench.child", str(result), *command.argv),
        folder=command.folder,
        environment=command.environment,
    )
    result.parent.mkdir(parents=True, exist_ok=True)
    result.unlink(missing_ok=True)
    outcome = run(child, lambda line: print(f"    {line}", flush=True))
    if not result.is_file():
        raise ValueError(f"{command} left no result: {outcome.last_lines()}")
    return Taken(**json.loads(result.read_text(encoding="utf-8")))


def main(arguments: list[str]) -> int:
    """The child."""
    begin = time.monotonic()
    outcome = Processes()(Command(argv=tuple(arguments[1:])), print)
    seconds = time.monotonic() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    taken = Taken(code=outcome.code, seconds=round(seconds, 2), peak_mib=round(peak, 1))
    Path(arguments[0]).write_text(json.dumps(asdict(taken)), encoding="utf-8")
    return outcome.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
