"""How long an engine takes to load and how much memory it needs, measured in a process of its own.

`python -m engine_build.loading ENGINE INPUTS BATCH SEQUENCE` prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import SourceFault
from engine_build.runner import Command, Runner


@dataclass(frozen=True, kw_only=True)
class Loading:
    """Seconds until the engine could answer, and what it added to the process's memory once it had."""

    load_seconds: float
    host_memory_mib: float


def loading(engine: Path, inputs: Sequence[str], shape: tuple[int, int], runner: Runner) -> Loading:
    """Loads an engine in a child process and runs it once at a shape. Raises SourceFault."""
    argv = (sys.executable, "-m", "engine_build.loading", str(engine), ",".join(inputs), *map(str, shape))
    ended = runner.run(Command(argv=argv, timeout_seconds=300))
    try:
        return Loading(**json.loads(ended.output.strip().splitlines()[-1]))
    except (IndexError, TypeError, ValueError) as error:
        raise SourceFault(f"the engine {engine.name} does not load in a fresh process (code {ended.code}).") from error


def main(arguments: Sequence[str]) -> int:
    """The child."""
    import numpy as np

    from engine_build.machine import resident_mib
    from engine_build.ort import OrtNetwork

    engine, inputs, batch, sequence = arguments
    before, begin = resident_mib(), time.monotonic()
    network = OrtNetwork(Path(engine))
    seconds = time.monotonic() - begin
    network.embed({name: np.ones((int(batch), int(sequence)), dtype=np.int64) for name in inputs.split(",")})
    print(json.dumps({"load_seconds": round(seconds, 3), "host_memory_mib": round(resident_mib() - before, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
