"""What the server before Triton costs: real Triton with and without it, in paired rounds."""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.measure import Measure, with_command
from benchmarks.servers.candidates import triton
from benchmarks.servers.fixtures import minilm
from benchmarks.servers.harness import LOAD, Harness, Row, points, ratio, round_measures, rounds
from benchmarks.servers.workload import kserve
from benchmarks.servers.wrk import sentence_requests, wrk_program

ROUNDS = 5
ROWS: tuple[Row, ...] = (
    ("64 clients: behind the server / bare", "x", ratio("triton", "bare"), None),
    ("one client: p50 behind the server / bare", "x", ratio("triton", "bare", "lone_p50_ms"), None),
    (
        "one client: p50 behind the server - bare",
        "ms",
        lambda result: float(result["triton"].lone_p50_ms - result["bare"].lone_p50_ms),
        None,
    ),
)


def triton_front(context: Context) -> list[Measure]:
    """Measure Triton behind the server that checks its requests, and bare."""
    folder = context.folder("triton_front")
    fixtures = minilm(context, folder)
    harness = Harness(folder=folder, wrk=wrk_program(folder, context.run))
    requests = sentence_requests(fixtures.texts, folder / "single.requests", kserve)
    with harness.start(triton(fixtures), triton(fixtures, "bare", bare=True)) as servers:
        results = rounds(
            {name: harness.test(server, requests) for name, server in servers.items()},
            context.rounds(ROUNDS),
        )
    measures = round_measures(results, ROWS)
    for name in ("triton", "bare"):
        measures += points(results, name, name)
    return with_command(LOAD, measures)
