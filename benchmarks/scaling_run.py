"""A load makes an endpoint's instances more, its end makes them fewer: on the local cloud.

`make bench BENCH=scaling` measures; `python -m benchmarks.scaling_run` also puts the plot and the
record into docs/.
"""

from __future__ import annotations

import datetime
import json
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from benchmarks.context import Context
from benchmarks.measure import (
    Circumstances,
    Measure,
    at_least,
    at_most,
    circumstances,
    with_command,
)
from benchmarks.scaling.chart import chart
from benchmarks.scaling.endpoint import Load, Request, ScaledEndpoint
from benchmarks.scaling.record import Phase, ScalingRun, Second, offered_rate
from benchmarks.servers.fixtures import minilm
from local_cloud import lifecycle
from roundhouse import settings
from roundhouse.aws.clients import aws_clients
from roundhouse.paths import Paths, find_paths
from roundhouse.processes import Processes

PHASES = (
    Phase(rate=6, seconds=10),
    Phase(rate=20, seconds=22),
    Phase(rate=40, seconds=28),
    Phase(rate=6, seconds=40),
)
TARGET, LOW, HIGH = 900.0, 1, 3
COMMAND = (
    "make bench BENCH=scaling: 6, 20, 40, 6 requests a second to MiniLM; target 900 a minute and "
    "instance; a minute is 1 s"
)
LOOK_SECONDS = 0.25
REGION = "us-east-1"


def scaling(context: Context) -> list[Measure]:
    """Measure, and leave run.json and run.svg in build/bench/scaling.

    Raises ValueError when the endpoint does not start.
    """
    folder = context.folder("scaling")
    fixtures = minilm(context, folder)
    with _local_cloud(context, folder / "cloud"):
        endpoint = ScaledEndpoint(clients=aws_clients(REGION), target=TARGET, low=LOW, high=HIGH)
        endpoint.create(fixtures.archive)
        run = run_scaling(endpoint)
    caption = (
        f"{run.answers:,} requests, {run.failed} not answered. MiniLM, Python server; a CloudWatch "
        "minute lasted 1 s."
    )
    (folder / "run.json").write_text(json.dumps(run.as_json(), indent=1) + "\n", encoding="utf-8")
    (folder / "run.svg").write_text(chart(run, caption) + "\n", encoding="utf-8")
    return with_command(COMMAND, _measures(run))


@contextmanager
def _local_cloud(context: Context, state: Path) -> Iterator[None]:
    address = lifecycle.start(context.paths.code, state)
    try:
        variables = lifecycle.client_environment(address, context.variables, region=REGION)
        settings.adopt_aws(variables)
        yield
    finally:
        lifecycle.stop(state)


def run_scaling(endpoint: ScaledEndpoint) -> ScalingRun:
    """Send requests at the rates of the phases, and describe the endpoint four times a second."""
    now = datetime.datetime.now(datetime.UTC)
    begin = now.replace(microsecond=0) + datetime.timedelta(seconds=1)
    time.sleep((begin - now).total_seconds())
    load = Load(send=endpoint.invoke, phases=PHASES)
    load.start()
    counts: dict[int, tuple[int, int]] = {}
    while not load.has_ended:
        counts[int(load.now)] = endpoint.counts()
        time.sleep(LOOK_SECONDS)
    length = max(*counts, *(int(request.at) for request in load.requests)) + 1
    per_instance = endpoint.per_instance(begin, length)
    return ScalingRun(
        target=TARGET,
        low=LOW,
        high=HIGH,
        phases=PHASES,
        seconds=tuple(_second(at, load.requests, counts, per_instance) for at in range(length)),
        activities=endpoint.activities(),
    )


def _second(
    at: int,
    requests: Sequence[Request],
    counts: Mapping[int, tuple[int, int]],
    per_instance: Mapping[int, float],
) -> Second:
    own = [request for request in requests if int(request.at) == at]
    durations = [request.milliseconds for request in own if not request.failed]
    current, desired = counts[max(second for second in counts if second <= at)]
    p99 = round(statistics.quantiles(durations, n=100)[98], 1) if len(durations) > 1 else None
    return Second(
        at=at,
        offered=offered_rate(PHASES, at),
        answered=len(durations),
        failed=len(own) - len(durations),
        p99_ms=p99,
        per_instance=round(per_instance[at], 1) if at in per_instance else None,
        current=current,
        desired=desired,
    )


def _measures(run: ScalingRun) -> list[Measure]:
    times = {
        "from 40 requests a second to three instances": run.seconds_until(HIGH, run.begin(2)),
        "from the load's end to one instance": run.seconds_until(LOW, run.begin(3)),
    }
    return [
        Measure("most instances under load", run.most, "instances", at_least(HIGH)),
        Measure("instances after the load", run.last, "instances", at_most(LOW)),
        Measure("requests not answered", run.failed, "requests", at_most(0)),
        Measure("requests answered", run.answers, "requests"),
        *(Measure(name, value, "s") for name, value in times.items() if value is not None),
    ]


def publish(paths: Paths, measures: Sequence[Measure], circumstances: Circumstances) -> None:
    """Put the plot and the record of the last run into docs/."""
    folder, docs = paths.build / "bench" / "scaling", paths.code / "docs"
    shutil.copyfile(folder / "run.svg", docs / "images" / "scaling-run.svg")
    record = {
        **asdict(circumstances),
        "command": COMMAND,
        "measures": [measure.as_json() for measure in measures],
        **json.loads((folder / "run.json").read_text(encoding="utf-8")),
    }
    text = json.dumps(record, indent=1) + "\n"
    (docs / "benchmarks" / "scaling-run.json").write_text(text, encoding="utf-8")


def main() -> int:
    """Measure once, and publish the run when it held."""
    paths = find_paths(Path(__file__).parent)
    measures = scaling(Context(paths=paths, run=Processes(), variables=settings.inherited()))
    for measure in measures:
        print(f"{measure.name}: {measure.value:g} {measure.unit} {measure.verdict}")
    if any(measure.verdict == "missed" for measure in measures):
        return 1
    publish(paths, measures, circumstances())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
