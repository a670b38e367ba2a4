"""What our server itself costs.

Its HTTP, codec and batcher before an engine that answers at once, against raw uvicorn.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.measure import Measure
from benchmarks.servers.candidates import echo, raw_uvicorn
from benchmarks.servers.fixtures import others, rounds_wanted
from benchmarks.servers.harness import (
    BUSY,
    BUSY_SECONDS,
    Harness,
    at_least,
    points,
    ratio,
    rounds,
    spread,
    spread_measure,
)
from benchmarks.servers.workload import kserve, shuffled_texts
from benchmarks.servers.wrk import requests_file, wrk_program
from roundhouse.paths import Paths
from roundhouse.processes import Processes

COMMAND = (
    f"make bench BENCH=server_echo: wrk -t1 -c{BUSY} -d{BUSY_SECONDS}s on the servers' own two "
    f"cores, paired rounds"
)
NAMES = ("echo", "duplicate", "raw uvicorn")


def server_echo(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """Every measure of the server without a model.

    Raises ValueError when something cannot be measured.
    """
    place = at.build / "bench" / "server_echo"
    harness = Harness(place=place, wrk=wrk_program(place, run))
    others(at, run)
    requests = requests_file(
        [kserve([text]) for text in shuffled_texts(at.tree)], place / "kserve.requests"
    )
    starts = harness.starts(echo(at), requests)
    with harness.start(echo(at), echo(at, "duplicate"), raw_uvicorn(at)) as servers:
        found = rounds(
            {name: harness.test(servers[name], requests) for name in NAMES},
            rounds_wanted(variables, 5),
        )
    rates = [{name: point.rate for name, point in one.items()} for one in found]
    lone = spread([one["echo"].lone_p50_ms / one["raw uvicorn"].lone_p50_ms for one in found])
    return [
        spread_measure(
            "64 clients: ours / raw uvicorn",
            ratio(rates, "echo", "raw uvicorn"),
            "x",
            COMMAND,
            at_least(0.9),
        ),
        spread_measure(
            "duplicate control, 64 clients: ours / ours",
            ratio(rates, "duplicate", "echo"),
            "x",
            COMMAND,
        ),
        spread_measure("one client: p50 of ours / raw uvicorn", lone, "x", COMMAND),
        *starts.measures("echo", COMMAND),
        *(row for name in NAMES for row in points([one[name] for one in found], name, COMMAND)),
    ]
