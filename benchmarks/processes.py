"""Whether two HTTP processes before one engine owner pay on two cores.

With an engine that answers at once, and with MiniLM.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.measure import Measure
from benchmarks.servers.candidates import echo, ours
from benchmarks.servers.fixtures import minilm, rounds_wanted
from benchmarks.servers.harness import (
    BUSY,
    BUSY_SECONDS,
    Harness,
    points,
    ratio,
    rounds,
    spread,
    spread_measure,
)
from benchmarks.servers.workload import kserve
from benchmarks.servers.wrk import requests_file, wrk_program
from roundhouse.paths import Paths
from roundhouse.processes import Processes

COMMAND = (
    f"make bench BENCH=processes: wrk -t1 -c{BUSY} -d{BUSY_SECONDS}s on the servers' own two "
    f"cores, paired rounds"
)
TWO = {"ROUNDHOUSE_HTTP_PROCESSES": "2"}


def processes(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """One against two HTTP processes. Raises ValueError when something cannot be measured."""
    place = at.build / "bench" / "processes"
    harness = Harness(place=place, wrk=wrk_program(place, run))
    fixtures = minilm(at, run, variables, place)
    requests = requests_file([kserve([text]) for text in fixtures.texts], place / "kserve.requests")
    candidates = (
        *(echo(at, "echo, 1"), echo(at, "echo, 1 again"), echo(at, "echo, 2", TWO)),
        *(
            ours(fixtures, "MiniLM, 1"),
            ours(fixtures, "MiniLM, 1 again"),
            ours(fixtures, "MiniLM, 2", TWO),
        ),
    )
    with harness.start(*candidates) as servers:
        found = rounds(
            {name: harness.test(server, requests) for name, server in servers.items()},
            rounds_wanted(variables, 5),
        )
        memory = {name: server.memory_mb() for name, server in servers.items()}
    rates = [{name: point.rate for name, point in one.items()} for one in found]
    rows = []
    for engine in ("echo", "MiniLM"):
        one, again, two = f"{engine}, 1", f"{engine}, 1 again", f"{engine}, 2"
        lone = spread([result[two].lone_p50_ms / result[one].lone_p50_ms for result in found])
        rows += [
            spread_measure(
                f"{engine}, 64 clients: two HTTP processes / one",
                ratio(rates, two, one),
                "x",
                COMMAND,
            ),
            spread_measure(f"{engine}, one client: p50 of two / one", lone, "x", COMMAND),
            spread_measure(
                f"{engine}, duplicate control: one / one", ratio(rates, again, one), "x", COMMAND
            ),
        ]
    for name in memory:
        rows += points([result[name] for result in found], f"{name} HTTP", COMMAND)
        rows.append(
            Measure(
                name=f"{name} HTTP: memory while all run",
                value=memory[name],
                unit="MB",
                command=COMMAND,
            )
        )
    return rows
