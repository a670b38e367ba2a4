"""What our server itself costs: HTTP, codec and batcher before an engine that answers at once."""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.measure import Measure, at_least, with_command
from benchmarks.servers.candidates import echo, raw_uvicorn
from benchmarks.servers.fixtures import prepare_bench_environment
from benchmarks.servers.harness import LOAD, Harness, points, ratio, round_measures, rounds
from benchmarks.servers.workload import shuffled_texts
from benchmarks.servers.wrk import sentence_requests, wrk_program

OURS, AGAIN, RAW = "echo", "duplicate", "raw uvicorn"
ROWS = (
    ("64 clients: ours / raw uvicorn", "x", ratio(OURS, RAW), at_least(0.9)),
    ("duplicate control, 64 clients: ours / ours", "x", ratio(AGAIN, OURS), None),
    ("one client: p50 of ours / raw uvicorn", "x", ratio(OURS, RAW, "lone_p50_ms"), None),
)


def server_echo(context: Context) -> list[Measure]:
    """Measure the server without a model. Raises ValueError when that is not possible."""
    folder, paths = context.folder("server_echo"), context.paths
    harness = Harness(folder=folder, wrk=wrk_program(folder, context.run))
    prepare_bench_environment(context)
    requests = sentence_requests(shuffled_texts(paths.tree), folder / "kserve.requests")
    starts = harness.starts(echo(paths), requests)
    with harness.start(echo(paths), echo(paths, AGAIN), raw_uvicorn(paths)) as servers:
        tests = {name: harness.test(server, requests) for name, server in servers.items()}
        results = rounds(tests, context.rounds(5))
    own = [measure for name in (OURS, AGAIN, RAW) for measure in points(results, name, name)]
    measures = [*round_measures(results, ROWS), *starts, *own]
    return with_command(f"make bench BENCH=server_echo: {LOAD}", measures)
