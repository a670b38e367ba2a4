"""Our server on two cores, beside a naive server, real Triton, and the engine with no server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Measure
from benchmarks.servers.candidates import NAIVE_PROCESSES, naive, ours, triton
from benchmarks.servers.engine_alone import Alone
from benchmarks.servers.fixtures import Fixtures, minilm, others, rounds_wanted
from benchmarks.servers.harness import (
    BUSY,
    BUSY_SECONDS,
    LONE_SECONDS,
    Harness,
    at_least,
    at_most,
    points,
    ratio,
    rounds,
    spread,
    spread_measure,
)
from benchmarks.servers.running_server import Running
from benchmarks.servers.workload import LEAST_COSINE, Request, kserve, least_cosine, plain, vectors
from benchmarks.servers.wrk import requests_file, wrk_program
from roundhouse.paths import Paths
from roundhouse.processes import Processes

CHECKED = 8
TOKENS, TEXT_COUNT = range(14, 19), 64
COMMAND = (
    f"make bench BENCH=server_cpu: wrk -t1 -c{BUSY} -d{BUSY_SECONDS}s on the servers' own two "
    f"cores, paired rounds"
)
Found = Sequence[Mapping[str, Any]]


def server_cpu(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """Every measure on 64 sentences of 14 to 18 tokens, which the bars were set with.

    Raises ValueError when one fails.
    """
    return _measures(at, run, variables, "server_cpu", few=True)


def server_cpu_wide(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """The same on every sentence of models/data, of 4 to 128 tokens; the bars are not for these.

    Raises ValueError.
    """
    found = _measures(at, run, variables, "server_cpu_wide", few=False)
    return [dataclasses.replace(measure, bar=None) for measure in found]


def _measures(
    at: Paths, run: Processes, variables: Mapping[str, str], name: str, *, few: bool
) -> list[Measure]:
    place = at.build / "bench" / name
    harness = Harness(place=place, wrk=wrk_program(place, run))
    others(at, run)
    fixtures = minilm(at, run, variables, place)
    if few:
        fixtures = _narrowed(fixtures, run)
    alone, request = Alone(fixtures=fixtures, run=run), _requests(fixtures)
    check = _check(fixtures, alone)
    starts = harness.starts(ours(fixtures), request["ours"], check=check)
    threads, tried = _fastest_naive(harness, fixtures, request["naive"])
    way, ways = alone.fastest_way()
    candidates = (
        naive(fixtures, threads=threads),
        triton(fixtures),
        ours(fixtures),
        ours(fixtures, "duplicate"),
    )
    with harness.start(*candidates, check=check) as servers:
        tests: dict[str, Callable[[], Any]] = {
            name: harness.test(server, request[name]) for name, server in servers.items()
        }
        tests |= {
            "limit": lambda: alone.limit(*way, seconds=BUSY_SECONDS),
            "direct": lambda: alone.direct(LONE_SECONDS),
        }
        found = rounds(tests, rounds_wanted(variables, 5))
    return [
        *_bars(found),
        *starts.measures("ours", COMMAND),
        *_numbers(found, threads, way),
        *_tried({**tried, **ways}),
    ]


def _narrowed(fixtures: Fixtures, run: Processes) -> Fixtures:
    """Return the fixtures with sentences of like length alone."""
    lengths = Alone(fixtures=fixtures, run=run).lengths()
    texts = [
        text for text, length in zip(fixtures.texts, lengths, strict=True) if length in TOKENS
    ][:TEXT_COUNT]
    fixtures.texts_file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return dataclasses.replace(fixtures, texts=tuple(texts))


def _requests(fixtures: Fixtures) -> dict[str, Path]:
    """Each candidate's requests: the naive one takes plain lists, the others KServe's JSON."""
    usual = requests_file(
        [kserve([text]) for text in fixtures.texts], fixtures.place / "kserve.requests"
    )
    lists = requests_file(
        [plain([text]) for text in fixtures.texts], fixtures.place / "plain.requests"
    )
    return {"ours": usual, "duplicate": usual, "triton": usual, "naive": lists}


def _check(fixtures: Fixtures, alone: Alone) -> Callable[[Running], None]:
    """Refuses to measure a server that answers something else than the model."""
    texts = fixtures.texts[:CHECKED]
    wanted = alone.answers(texts)

    def check(server: Running) -> None:
        name = server.candidate.name
        make: Callable[[Sequence[str]], Request] = plain if name == "naive" else kserve
        found = [row for text in texts for row in _answer(server, make([text]))]
        if (cosine := least_cosine(found, wanted)) <= LEAST_COSINE:
            raise ValueError(
                f"{name} answers other vectors than the model: worst cosine {cosine:.6f}, "
                f"above {LEAST_COSINE} wanted"
            )

    return check


def _answer(server: Running, request: Request) -> list[list[float]]:
    status, body, content_type = server.ask(request)
    if status != 200:
        raise ValueError(f"{server.candidate.name} answers {status}: {body[:200]!r}")
    return vectors(body, content_type, 1)


def _fastest_naive(
    harness: Harness, fixtures: Fixtures, requests: Path
) -> tuple[int, dict[str, float]]:
    """The better of one thread a process and ONNX Runtime's default (0), and what each gave."""
    rates: dict[int, float] = {}
    for threads in (1, 0):
        with harness.start(naive(fixtures, threads=threads)) as servers:
            harness.load(servers["naive"], requests, BUSY, 1)
            rates[threads] = harness.load(servers["naive"], requests, BUSY, 4).rate
    text = {
        f"naive, {threads or 'default'} intra-op threads": rate for threads, rate in rates.items()
    }
    return max(rates, key=rates.__getitem__), text


def _bars(found: Found) -> list[Measure]:
    rates = [
        {
            name: value if name == "limit" else value.rate
            for name, value in one.items()
            if name != "direct"
        }
        for one in found
    ]
    lone = spread([one["ours"].lone_p50_ms / one["direct"] for one in found])
    tail = spread([one["ours"].busy_p99_ms / one["ours"].busy_p50_ms for one in found])
    control = spread([one["duplicate"].lone_p50_ms / one["ours"].lone_p50_ms for one in found])
    return [
        spread_measure(
            "64 clients: ours / naive", ratio(rates, "ours", "naive"), "x", COMMAND, at_least(1.9)
        ),
        spread_measure(
            "64 clients: ours / engine alone",
            ratio(rates, "ours", "limit"),
            "x",
            COMMAND,
            at_least(0.95),
        ),
        spread_measure("one client: p50 of ours / direct call", lone, "x", COMMAND, at_most(1.15)),
        spread_measure("64 clients: p99 / p50 of ours", tail, "x", COMMAND, at_most(1.3)),
        spread_measure("64 clients: ours / Triton", ratio(rates, "ours", "triton"), "x", COMMAND),
        spread_measure(
            "duplicate control, 64 clients: ours / ours",
            ratio(rates, "duplicate", "ours"),
            "x",
            COMMAND,
        ),
        spread_measure("duplicate control, one client: p50 of ours / ours", control, "x", COMMAND),
    ]


def _numbers(found: Found, threads: int, way: tuple[str, int]) -> list[Measure]:
    text = {
        "ours": "ours",
        "duplicate": "ours again",
        "naive": f"naive ({NAIVE_PROCESSES} processes, {threads or 'default'} intra-op threads)",
        "triton": "Triton 2.51",
    }
    rows = [
        row
        for name, words in text.items()
        for row in points([one[name] for one in found], words, COMMAND)
    ]
    limit, direct = (
        spread([one["limit"] for one in found]),
        spread([one["direct"] for one in found]),
    )
    words = f"engine alone (two {way[0]}, batches of {way[1]} tokens)"
    return [
        *rows,
        spread_measure(words, limit, "texts/s", COMMAND),
        spread_measure("direct call, p50", direct, "ms", COMMAND),
    ]


def _tried(found: Mapping[str, float]) -> list[Measure]:
    return [
        Measure(name=f"tried once: {name}", value=rate, unit="texts/s", command=COMMAND)
        for name, rate in found.items()
    ]
