"""Our server on two cores with MiniLM FP32, against a naive server, real Triton, and the engine
with no server at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Measure
from benchmarks.servers.alone import Alone
from benchmarks.servers.answers import LEAST_COSINE, least_cosine, vectors
from benchmarks.servers.arena import (
    BUSY,
    BUSY_SECONDS,
    LONE_SECONDS,
    Arena,
    at_least,
    at_most,
    measured,
    points,
)
from benchmarks.servers.contenders import NAIVE_PROCESSES, naive, ours, triton
from benchmarks.servers.ground import Ground, minilm, others, rounds_wanted
from benchmarks.servers.mix import Asked, kserve, plain
from benchmarks.servers.rounds import ratio, rounds, spread
from benchmarks.servers.running import Running
from benchmarks.servers.wrk import requests_file, wrk_program
from roundhouse.paths import Paths
from roundhouse.processes import Processes

CHECKED = 8
TOKENS, SENTENCES = range(14, 19), 64
COMMAND = f"make bench BENCH=server_cpu: wrk -t1 -c{BUSY} -d{BUSY_SECONDS}s on the servers' own two cores, paired rounds"
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
    arena = Arena(place=place, wrk=wrk_program(place, run))
    others(at, run)
    ground = minilm(at, run, variables, place)
    if few:
        ground = _narrowed(ground, run)
    alone, asked = Alone(ground=ground, run=run), _requests(ground)
    check = _check(ground, alone)
    starts = arena.starts(ours(ground), asked["ours"], check=check)
    threads, tried = _fastest_naive(arena, ground, asked["naive"])
    way, ways = alone.fastest_way()
    contenders = (
        naive(ground, threads=threads),
        triton(ground),
        ours(ground),
        ours(ground, "duplicate"),
    )
    with arena.started(*contenders, check=check) as servers:
        tests: dict[str, Callable[[], Any]] = {
            name: arena.test(server, asked[name]) for name, server in servers.items()
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


def _narrowed(ground: Ground, run: Processes) -> Ground:
    """The ground with sentences of like length alone."""
    lengths = Alone(ground=ground, run=run).lengths()
    texts = [text for text, length in zip(ground.texts, lengths, strict=True) if length in TOKENS][
        :SENTENCES
    ]
    ground.texts_file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return dataclasses.replace(ground, texts=tuple(texts))


def _requests(ground: Ground) -> dict[str, Path]:
    """Each contender's requests: the naive one takes plain lists, the others KServe's JSON."""
    usual = requests_file(
        [kserve([text]) for text in ground.texts], ground.place / "kserve.requests"
    )
    lists = requests_file([plain([text]) for text in ground.texts], ground.place / "plain.requests")
    return {"ours": usual, "duplicate": usual, "triton": usual, "naive": lists}


def _check(ground: Ground, alone: Alone) -> Callable[[Running], None]:
    """Refuses to measure a server that answers something else than the model."""
    texts = ground.texts[:CHECKED]
    wanted = alone.answers(texts)

    def check(server: Running) -> None:
        name = server.contender.name
        make: Callable[[Sequence[str]], Asked] = plain if name == "naive" else kserve
        found = [row for text in texts for row in _answer(server, make([text]))]
        if (cosine := least_cosine(found, wanted)) <= LEAST_COSINE:
            raise ValueError(
                f"{name} answers other vectors than the model: worst cosine {cosine:.6f}, above {LEAST_COSINE} wanted"
            )

    return check


def _answer(server: Running, asked: Asked) -> list[list[float]]:
    status, body, content_type = server.ask(asked)
    if status != 200:
        raise ValueError(f"{server.contender.name} answers {status}: {body[:200]!r}")
    return vectors(body, content_type, 1)


def _fastest_naive(arena: Arena, ground: Ground, requests: Path) -> tuple[int, dict[str, float]]:
    """The better of one thread a process and ONNX Runtime's default (0), and what each gave."""
    rates: dict[int, float] = {}
    for threads in (1, 0):
        with arena.started(naive(ground, threads=threads)) as servers:
            arena.load(servers["naive"], requests, BUSY, 1)
            rates[threads] = arena.load(servers["naive"], requests, BUSY, 4).rate
    told = {
        f"naive, {threads or 'default'} intra-op threads": rate for threads, rate in rates.items()
    }
    return max(rates, key=rates.__getitem__), told


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
        measured(
            "64 clients: ours / naive", ratio(rates, "ours", "naive"), "x", COMMAND, at_least(1.9)
        ),
        measured(
            "64 clients: ours / engine alone",
            ratio(rates, "ours", "limit"),
            "x",
            COMMAND,
            at_least(0.95),
        ),
        measured("one client: p50 of ours / direct call", lone, "x", COMMAND, at_most(1.15)),
        measured("64 clients: p99 / p50 of ours", tail, "x", COMMAND, at_most(1.3)),
        measured("64 clients: ours / Triton", ratio(rates, "ours", "triton"), "x", COMMAND),
        measured(
            "duplicate control, 64 clients: ours / ours",
            ratio(rates, "duplicate", "ours"),
            "x",
            COMMAND,
        ),
        measured("duplicate control, one client: p50 of ours / ours", control, "x", COMMAND),
    ]


def _numbers(found: Found, threads: int, way: tuple[str, int]) -> list[Measure]:
    told = {
        "ours": "ours",
        "duplicate": "ours again",
        "naive": f"naive ({NAIVE_PROCESSES} processes, {threads or 'default'} intra-op threads)",
        "triton": "Triton 2.51",
    }
    rows = [
        row
        for name, words in told.items()
        for row in points([one[name] for one in found], words, COMMAND)
    ]
    limit, direct = (
        spread([one["limit"] for one in found]),
        spread([one["direct"] for one in found]),
    )
    words = f"engine alone (two {way[0]}, batches of {way[1]} tokens)"
    return [
        *rows,
        measured(words, limit, "texts/s", COMMAND),
        measured("direct call, p50", direct, "ms", COMMAND),
    ]


def _tried(found: Mapping[str, float]) -> list[Measure]:
    return [
        Measure(name=f"tried once: {name}", value=rate, unit="texts/s", command=COMMAND)
        for name, rate in found.items()
    ]
