"""The paths, the process runner and the variables that every benchmark is given."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roundhouse.paths import Paths
from roundhouse.processes import Processes


@dataclass(frozen=True, kw_only=True)
class Context:
    """One run of `python -m benchmarks`."""

    paths: Paths
    run: Processes
    variables: Mapping[str, str]

    def folder(self, name: str) -> Path:
        """Return the folder of a benchmark, build/bench/NAME."""
        path = self.paths.build / "bench" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def empty_folder(self, name: str) -> Path:
        """Return the folder of a benchmark without what an earlier run left there."""
        shutil.rmtree(self.folder(name))
        return self.folder(name)

    def rounds(self, default: int) -> int:
        """Return BENCH_ROUNDS, for a quick look, or the default. Raises ValueError."""
        text = self.variables.get("BENCH_ROUNDS") or str(default)
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f"BENCH_ROUNDS is {text!r}; it must be a whole number from 1 up.")
        return int(text)
