"""The engine with no server: what `programs/engine_alone.py` measures, asked from here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.servers.candidates import PROGRAMS
from benchmarks.servers.fixtures import MAX_TOKENS, Fixtures
from benchmarks.servers.wrk import MARK
from roundhouse.processes import Command, Processes

CORES = 2
WAYS = tuple((kind, budget) for kind in ("processes", "threads") for budget in (64, 128, 256, 512))
"""The ways in which two cores may run the engine alone, and the padded tokens of a batch; the
fastest is the limit.
"""


@dataclass(frozen=True, kw_only=True)
class Alone:
    """The engine of an archive."""

    fixtures: Fixtures
    run: Processes

    def fastest_way(self, seconds: float = 3) -> tuple[tuple[str, int], dict[str, float]]:
        """The best way to run the engine on two cores, and what each gave."""
        rates = {way: self.limit(*way, seconds=seconds) for way in WAYS}
        text = {
            f"engine alone, two {kind}, batches of {budget} tokens": rate
            for (kind, budget), rate in rates.items()
        }
        return max(rates, key=rates.__getitem__), text

    def limit(self, kind: str, budget: int, *, seconds: float) -> float:
        """Texts per second on both cores, tokenizing included."""
        return float(
            self._receive(
                "limit", self.fixtures.texts_file, seconds, str(CORES), kind, str(budget)
            )["rate"]
        )

    def direct(self, seconds: float) -> float:
        """Median milliseconds of a direct call: one text, one thread."""
        return float(self._receive("direct", self.fixtures.texts_file, seconds)["p50_ms"])

    def lengths(self) -> list[int]:
        """Tokens of each text."""
        found: list[int] = self._receive("lengths", self.fixtures.texts_file, 0)
        return found

    def answers(self, texts: Sequence[str]) -> list[list[float]]:
        """The model's own answers."""
        file = self.fixtures.place / "checked.txt"
        file.write_text("\n".join(texts) + "\n", encoding="utf-8")
        found: list[list[float]] = self._receive("answers", file, 0)
        return found

    def _receive(self, mode: str, texts: Path, seconds: float, *more: str) -> Any:
        fixtures = self.fixtures
        program = (str(fixtures.at.venv_python("server")), str(PROGRAMS / "engine_alone.py"))
        files = (str(fixtures.engine), str(fixtures.tokenizer), str(texts))
        command = Command(
            argv=(*program, mode, *files, str(MAX_TOKENS), str(seconds), *more),
            folder=fixtures.place,
        )
        outcome = self.run(command)
        text = [line for line in outcome.output.splitlines() if line.startswith(MARK)]
        if outcome.code != 0 or not text:
            raise ValueError(f"{command} ended with {outcome.code}: {outcome.last_lines()}")
        return json.loads(text[-1].removeprefix(MARK))
