"""The engine with no server: runs `programs/engine_alone.py` and returns what it measured."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.servers.fixtures import MAX_TOKENS, Fixtures
from benchmarks.servers.wrk import MARK
from roundhouse.processes import Command, Processes

PROGRAM = Path(__file__).parent / "programs" / "engine_alone.py"
CORES = 2
KINDS, BUDGETS = ("processes", "threads"), (64, 128, 256, 512)
"""How two cores may run the engine alone, and the padded tokens of a batch; the fastest of all
pairs is the limit.
"""


@dataclass(frozen=True, kw_only=True)
class EngineAlone:
    """The engine of an archive."""

    fixtures: Fixtures
    run: Processes

    def fastest_way(self) -> tuple[str, int]:
        """Return the best way to run the engine on two cores, of one try each."""
        rates = {way: self.limit(*way, seconds=3) for way in itertools.product(KINDS, BUDGETS)}
        return max(rates, key=rates.__getitem__)

    def limit(self, kind: str, budget: int, *, seconds: float) -> float:
        """Return texts per second on both cores, tokenizing included."""
        return float(self._run("limit", seconds, str(CORES), kind, str(budget))["rate"])

    def direct(self, seconds: float) -> float:
        """Return the median milliseconds of a direct call: one text, one thread."""
        return float(self._run("direct", seconds)["p50_ms"])

    def lengths(self) -> list[int]:
        """Return the tokens of each text."""
        lengths: list[int] = self._run("lengths", 0)
        return lengths

    def answers(self) -> list[list[float]]:
        """Return the model's own answers."""
        rows: list[list[float]] = self._run("answers", 0)
        return rows

    def _run(self, mode: str, seconds: float, *more: str) -> Any:
        fixtures = self.fixtures
        texts = fixtures.folder / "texts.txt"
        texts.write_text("\n".join(fixtures.texts) + "\n", encoding="utf-8")
        program = (str(fixtures.paths.venv_python("server")), str(PROGRAM))
        files = (str(fixtures.engine), str(fixtures.tokenizer), str(texts))
        argv = (*program, mode, *files, str(MAX_TOKENS), str(seconds), *more)
        command = Command(argv=argv, folder=fixtures.folder)
        outcome = self.run(command)
        lines = [line for line in outcome.output.splitlines() if line.startswith(MARK)]
        if outcome.code != 0 or not lines:
            raise ValueError(f"{command} ended with {outcome.code}: {outcome.last_lines()}")
        return json.loads(lines[-1].removeprefix(MARK))
