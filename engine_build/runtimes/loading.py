"""How long an engine takes to load and how much memory it needs, measured in a process of its own.

`python -m engine_build.runtimes.loading ENGINE FEED` prints one JSON line; FEED is an .npz file
with every input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from engine_build.errors import SourceFault
from engine_build.runner import Command, Runner
from engine_build.runtimes.availability import RuntimeName
from engine_build.runtimes.contenders import import_runtime, opened
from engine_build.runtimes.holding import Holding, held
from engine_build.samples.feed import Feed

TIMEOUT_SECONDS = 300


def loading(engine: Path, feed: Feed, scratch: Path, runner: Runner) -> Holding:
    """Loads an engine in a child process and runs it once. Raises SourceFault."""
    path = scratch / "feed.npz"
    np.savez(path, **feed)  # type: ignore[arg-type]
    argv = (sys.executable, "-m", "engine_build.runtimes.loading", str(engine), str(path))
    ended = runner.run(Command(argv=argv, timeout_seconds=TIMEOUT_SECONDS))
    try:
        return Holding(**json.loads(ended.output.strip().splitlines()[-1]))
    except (IndexError, TypeError, ValueError) as error:
        raise SourceFault(
            f"the engine {engine.name} does not load in a fresh process (code {ended.code})."
        ) from error


def main(arguments: Sequence[str]) -> int:
    """The child."""
    engine, path = Path(arguments[0]), arguments[1]
    with np.load(path, allow_pickle=False) as file:
        feed = dict(file)
    runtime: RuntimeName = "tensorrt" if engine.suffix == ".plan" else "onnxruntime"
    import_runtime(runtime)
    _, holding = held(partial(opened, runtime, engine, as_served=False), feed)
    print(json.dumps(asdict(holding)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
