"""How long an engine takes to load and how much memory it needs, measured in a process of its own.

`python -m engine_build.loading ENGINE FEED` prints one JSON line; FEED is an .npz file with every input.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine_build.errors import SourceFault
from engine_build.feed import Feed
from engine_build.runner import Command, Runner


@dataclass(frozen=True, kw_only=True)
class Loading:
    """Seconds until the engine could answer, and what it added to the process's memory once it had."""

    load_seconds: float
    host_memory_mib: float


def loading(engine: Path, feed: Feed, scratch: Path, runner: Runner) -> Loading:
    """Loads an engine in a child process and runs it once. Raises SourceFault."""
    path = scratch / "feed.npz"
    np.savez(path, **feed)  # type: ignore[arg-type]
    argv = (sys.executable, "-m", "engine_build.loading", str(engine), str(path))
    ended = runner.run(Command(argv=argv, timeout_seconds=300))
    try:
        return Loading(**json.loads(ended.output.strip().splitlines()[-1]))
    except (IndexError, TypeError, ValueError) as error:
        raise SourceFault(f"the engine {engine.name} does not load in a fresh process (code {ended.code}).") from error


def main(arguments: Sequence[str]) -> int:
    """The child."""
    from engine_build.machine import resident_mib
    from engine_build.ort import OrtNetwork

    engine, path = arguments
    with np.load(path, allow_pickle=False) as file:
        feed = dict(file)
    before, begin = resident_mib(), time.monotonic()
    network = OrtNetwork(Path(engine))
    seconds = time.monotonic() - begin
    network.rows(feed)
    print(json.dumps({"load_seconds": round(seconds, 3), "host_memory_mib": round(resident_mib() - before, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
