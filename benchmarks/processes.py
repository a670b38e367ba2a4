"""One HTTP process or two before one engine owner on two cores, with an echo and with MiniLM."""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.measure import Measure, with_command
from benchmarks.servers.candidates import NO_VARIABLES, echo, ours
from benchmarks.servers.fixtures import minilm
from benchmarks.servers.harness import LOAD, Harness, Row, points, ratio, round_measures, rounds
from benchmarks.servers.wrk import sentence_requests, wrk_program

TWO = {"ROUNDHOUSE_HTTP_PROCESSES": "2"}
VARIANTS = (("1", NO_VARIABLES), ("1 again", NO_VARIABLES), ("2", TWO))


def processes(context: Context) -> list[Measure]:
    """Measure one against two HTTP processes. Raises ValueError when that is not possible."""
    folder = context.folder("processes")
    harness = Harness(folder=folder, wrk=wrk_program(folder, context.run))
    fixtures = minilm(context, folder)
    requests = sentence_requests(fixtures.texts, folder / "kserve.requests")
    echoes = (echo(context.paths, f"echo, {name}", extra) for name, extra in VARIANTS)
    models = (ours(fixtures, f"MiniLM, {name}", extra) for name, extra in VARIANTS)
    with harness.start(*echoes, *models) as servers:
        tests = {name: harness.test(server, requests) for name, server in servers.items()}
        results = rounds(tests, context.rounds(5))
        memory = {name: server.memory_mb() for name, server in servers.items()}
    rows = [row for engine in ("echo", "MiniLM") for row in _ratios(engine)]
    measures = round_measures(results, rows)
    for name, megabytes in memory.items():
        measures += points(results, name, f"{name} HTTP")
        measures.append(Measure(f"{name} HTTP: memory while all run", megabytes, "MB"))
    return with_command(f"make bench BENCH=processes: {LOAD}", measures)


def _ratios(engine: str) -> tuple[Row, ...]:
    one, again, two = (f"{engine}, {name}" for name, _ in VARIANTS)
    lone = ratio(two, one, "lone_p50_ms")
    return (
        (f"{engine}, 64 clients: two HTTP processes / one", "x", ratio(two, one), None),
        (f"{engine}, one client: p50 of two / one", "x", lone, None),
        (f"{engine}, duplicate control: one / one", "x", ratio(again, one), None),
    )
