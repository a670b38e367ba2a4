"""Our server on two cores, beside a naive server, real Triton, and the engine with no server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.context import Context
from benchmarks.measure import Measure, at_least, at_most, of_rounds, with_command
from benchmarks.servers.candidates import NAIVE_PROCESSES, naive, ours, triton
from benchmarks.servers.engine_alone import EngineAlone
from benchmarks.servers.fixtures import Fixtures, minilm, prepare_bench_environment
from benchmarks.servers.harness import (
    BUSY,
    BUSY_SECONDS,
    LOAD,
    LONE_SECONDS,
    Check,
    Harness,
    Round,
    Row,
    points,
    ratio,
    round_measures,
    rounds,
)
from benchmarks.servers.running_server import Running
from benchmarks.servers.workload import LEAST_COSINE, kserve, least_cosine, plain, vectors
from benchmarks.servers.wrk import sentence_requests, wrk_program

CHECKED = 8
TOKENS, TEXT_COUNT = range(14, 19), 64
ROWS: tuple[Row, ...] = (
    ("64 clients: ours / naive", "x", ratio("ours", "naive"), at_least(1.9)),
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


def server_cpu(context: Context) -> list[Measure]:
    """Measure on 64 sentences of 14 to 18 tokens, which the bars were set with.

    Raises ValueError when that is not possible.
    """
    return _measures(context, "server_cpu", _like_lengths)


def server_cpu_wide(context: Context) -> list[Measure]:
    """Measure on every sentence of models/data, of 4 to 128 tokens, for which there are no bars.

    Raises ValueError.
    """
    measures = _measures(context, "server_cpu_wide", lambda alone: alone)
    return [dataclasses.replace(measure, bar=None) for measure in measures]


def _measures(
    context: Context, name: str, choose: Callable[[EngineAlone], EngineAlone]
) -> list[Measure]:
    folder = context.folder(name)
    harness = Harness(folder=folder, wrk=wrk_program(folder, context.run))
    prepare_bench_environment(context)
    alone = choose(EngineAlone(fixtures=minilm(context, folder), run=context.run))
    fixtures, check = alone.fixtures, _check(alone)
    usual = sentence_requests(fixtures.texts, folder / "kserve.requests")
    lists = sentence_requests(fixtures.texts, folder / "plain.requests", plain)
    starts = harness.starts(ours(fixtures), usual, check=check)
    naive_rates = _naive_rates(harness, fixtures, lists)
    threads = max(naive_rates, key=naive_rates.__getitem__)
    way, ways = alone.fastest_way()
    candidates = (naive(fixtures, threads=threads), triton(fixtures))
    own = (ours(fixtures), ours(fixtures, "duplicate"))
    with harness.start(*candidates, *own, check=check) as servers:
        tests: dict[str, Callable[[], Any]] = {
            name: harness.test(server, lists if name == "naive" else usual)
            for name, server in servers.items()
        }
        tests["limit"] = lambda: alone.limit(*way, seconds=BUSY_SECONDS)
        tests["direct"] = lambda: alone.direct(LONE_SECONDS)
        results = rounds(tests, context.rounds(5))
    tried = {f"naive, {_threads(number)}": rate for number, rate in naive_rates.items()} | ways
    measures = [
        *round_measures(results, ROWS),
        *starts,
        *_numbers(results, threads, way),
        *(Measure(f"tried once: {text}", rate, "texts/s") for text, rate in tried.items()),
    ]
    return with_command(f"make bench BENCH=server_cpu: {LOAD}", measures)


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
        protocol = plain if name == "naive" else kserve
        rows = []
        for text in texts:
            status, body, content_type = server.candidate.request(protocol([text]))
            if status != 200:
                raise ValueError(f"{name} answers {status}: {body[:200]!r}")
            rows += vectors(body, content_type, 1)
        if (cosine := least_cosine(rows, expected)) <= LEAST_COSINE:
            raise ValueError(
                f"{name} answers other vectors than the model: worst cosine {cosine:.6f}, "
                f"must be above {LEAST_COSINE}"
            )

    return check


def _naive_rates(harness: Harness, fixtures: Fixtures, requests: Path) -> dict[int, float]:
    """Return the rates of one thread a process and of ONNX Runtime's default (0)."""
    rates: dict[int, float] = {}
    for threads in (1, 0):
        with harness.start(naive(fixtures, threads=threads)) as servers:
            harness.load(servers["naive"], requests, BUSY, 1)
            rates[threads] = harness.load(servers["naive"], requests, BUSY, 4).rate
    return rates


def _threads(number: int) -> str:
    return f"{number or 'default'} intra-op threads"


def _numbers(results: Sequence[Round], threads: int, way: tuple[str, int]) -> list[Measure]:
    texts = {
        "ours": "ours",
        "duplicate": "ours again",
        "naive": f"naive ({NAIVE_PROCESSES} processes, {_threads(threads)})",
        "triton": "Triton 2.51",
    }
    limit = f"engine alone (two {way[0]}, batches of {way[1]} tokens)"
    return [
        *(measure for name, text in texts.items() for measure in points(results, name, text)),
        of_rounds(limit, [result["limit"] for result in results], "texts/s"),
        of_rounds("direct call, p50", [result["direct"] for result in results], "ms"),
    ]
