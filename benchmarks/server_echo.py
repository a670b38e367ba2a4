"""What our server itself costs: its HTTP, codec and batcher before an engine that answers at once,
against raw uvicorn.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.measure import Measure
from benchmarks.servers.arena import BUSY, BUSY_SECONDS, Arena, at_least, measured, points
from benchmarks.servers.contenders import echo, raw_uvicorn
from benchmarks.servers.ground import others, rounds_wanted
from benchmarks.servers.mix import kserve, sentences
from benchmarks.servers.rounds import ratio, rounds, spread
from benchmarks.servers.wrk import requests_file, wrk_program
from roundhouse.paths import Paths
from roundhouse.processes import Processes

COMMAND = f"make bench BENCH=server_echo: wrk -t1 -c{BUSY} -d{BUSY_SECONDS}s on the servers' own two cores, paired rounds"
NAMES = ("echo", "duplicate", "raw uvicorn")


def server_echo(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """Every measure of the server without a model.

    Raises ValueError when something cannot be measured.
    """
    place = at.build / "bench" / "server_echo"
    arena = Arena(place=place, wrk=wrk_program(place, run))
    others(at, run)
    requests = requests_file(
        [kserve([text]) for text in sentences(at.tree)], place / "kserve.requests"
    )
    starts = arena.starts(echo(at), requests)
    with arena.started(echo(at), echo(at, "duplicate"), raw_uvicorn(at)) as servers:
        found = rounds(
            {name: arena.test(servers[name], requests) for name in NAMES},
            rounds_wanted(variables, 5),
        )
    rates = [{name: point.rate for name, point in one.items()} for one in found]
    lone = spread([one["echo"].lone_p50_ms / one["raw uvicorn"].lone_p50_ms for one in found])
    return [
        measured(
            "64 clients: ours / raw uvicorn",
            ratio(rates, "echo", "raw uvicorn"),
            "x",
            COMMAND,
            at_least(0.9),
        ),
        measured(
            "duplicate control, 64 clients: ours / ours",
            ratio(rates, "duplicate", "echo"),
            "x",
            COMMAND,
        ),
        measured("one client: p50 of ours / raw uvicorn", lone, "x", COMMAND),
        *starts.measures("echo", COMMAND),
        *(row for name in NAMES for row in points([one[name] for one in found], name, COMMAND)),
    ]
