"""Our server on two cores, beside real Triton, and the engine with no server."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Context, Measure, at_least, at_most, of_rounds, with_command
from benchmarks.servers.fixtures import MAX_TOKENS, Fixtures, minilm
from benchmarks.servers.harness import (
    BUSY_SECONDS,
    LOAD,
    LONE_SECONDS,
    MARK,
    Check,
    Harness,
    Round,
    Row,
    points,
    ratio,
    requests_file,
    round_measures,
    rounds,
    wrk_program,
)
from benchmarks.servers.running_server import Running, ours, triton
from benchmarks.servers.workload import LEAST_COSINE, kserve, least_cosine, vectors
from roundhouse.processes import Command, Processes

PROGRAM = Path(__file__).parent / "programs" / "engine_alone.py"
CORES = 2
KINDS, BUDGETS = ("processes", "threads"), (64, 128, 256, 512)
"""How two cores may run the engine alone, and the padded tokens of a batch; the fastest of all
pairs is the limit.
"""
CHECKED = 8
TOKENS, TEXT_COUNT = range(14, 19), 64
ROWS: tuple[Row, ...] = (
    (
        "64 clients: ours / engine alone",
        "x",
        lambda result: float(result["ours"].rate / result["limit"]),
        at_least(0.95),
    ),
    (
        "one client: p50 of ours / direct call",
        "x",
        lambda result: float(result["ours"].lone_p50_ms / result["direct"]),
        at_most(1.15),
    ),
    (
        "64 clients: p99 / p50 of ours",
        "x",
        lambda result: float(result["ours"].busy_p99_ms / result["ours"].busy_p50_ms),
        at_most(1.3),
    ),
    ("64 clients: ours / Triton", "x", ratio("ours", "triton"), None),
    ("duplicate control, 64 clients: ours / ours", "x", ratio("duplicate", "ours"), None),
    (
        "duplicate control, one client: p50 of ours / ours",
        "x",
        ratio("duplicate", "ours", "lone_p50_ms"),
        None,
    ),
)


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


def servers(context: Context) -> list[Measure]:
    """Measure on 64 sentences of 14 to 18 tokens, which the bars were set with.

    Raises ValueError when that is not possible.
    """
    folder = context.folder("servers")
    harness = Harness(folder=folder, wrk=wrk_program(folder, context.run))
    alone = _like_lengths(EngineAlone(fixtures=minilm(context, folder), run=context.run))
    archive, check = alone.fixtures.archive, _check(alone)
    texts = alone.fixtures.texts
    requests = requests_file((kserve([text]) for text in texts), folder / "requests")
    starts = harness.starts(ours(archive), requests, check=check)
    way = alone.fastest_way()
    candidates = (triton(archive, folder), ours(archive), ours(archive, "duplicate"))
    with harness.start(*candidates, check=check) as ready:
        tests: dict[str, Callable[[], Any]] = {
            name: harness.test(server, requests) for name, server in ready.items()
        }
        tests["limit"] = lambda: alone.limit(*way, seconds=BUSY_SECONDS)
        tests["direct"] = lambda: alone.direct(LONE_SECONDS)
        results = rounds(tests, context.rounds(5))
    measures = [*round_measures(results, ROWS), *starts, *_numbers(results, way)]
    return with_command(f"make bench BENCH=servers: {LOAD}", measures)


def _like_lengths(alone: EngineAlone) -> EngineAlone:
    """Return the engine with sentences of like length alone."""
    pairs = zip(alone.fixtures.texts, alone.lengths(), strict=True)
    texts = tuple(text for text, length in pairs if length in TOKENS)[:TEXT_COUNT]
    return dataclasses.replace(alone, fixtures=dataclasses.replace(alone.fixtures, texts=texts))


def _check(alone: EngineAlone) -> Check:
    """Return what refuses to measure a server with other answers than the model's."""
    texts = alone.fixtures.texts[:CHECKED]
    fixtures = dataclasses.replace(alone.fixtures, texts=texts)
    expected = dataclasses.replace(alone, fixtures=fixtures).answers()

    def check(server: Running) -> None:
        name = server.candidate.name
        rows = []
        for text in texts:
            status, body = server.candidate.request(kserve([text]))
            if status != 200:
                raise ValueError(f"{name} answers {status}: {body[:200]!r}")
            rows += vectors(body, 1)
        if (cosine := least_cosine(rows, expected)) <= LEAST_COSINE:
            raise ValueError(
                f"{name} answers other vectors than the model: worst cosine {cosine:.6f}, "
                f"must be above {LEAST_COSINE}"
            )

    return check


def _numbers(results: Sequence[Round], way: tuple[str, int]) -> list[Measure]:
    texts = {"ours": "ours", "duplicate": "ours again", "triton": "Triton 2.51"}
    limit = f"engine alone (two {way[0]}, batches of {way[1]} tokens)"
    return [
        *(measure for name, text in texts.items() for measure in points(results, name, text)),
        of_rounds(limit, [result["limit"] for result in results], "texts/s"),
        of_rounds("direct call, p50", [result["direct"] for result in results], "ms"),
    ]
