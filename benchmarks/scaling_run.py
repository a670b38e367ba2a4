"""A load makes an endpoint's instances more, its end makes them fewer.

Measured on the local cloud with the real Python server.

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

from benchmarks.measure import Bar, Circumstances, Measure, circumstances
from benchmarks.scaling.chart import drawing
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


def scaling(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """Measures, and leaves run.json and run.svg in build/bench/scaling.

    Raises ValueError when the endpoint does not answer.
    """
    place = at.build / "bench" / "scaling"
    fixtures = minilm(at, run, variables, place)
    with _cloud(at, place / "cloud", variables):
        endpoint = ScaledEndpoint(clients=aws_clients(REGION), target=TARGET, low=LOW, high=HIGH)
        endpoint.create(fixtures.archive)
        scaling_run = run_scaling(endpoint)
    text = (
        f"{scaling_run.answers:,} requests, {scaling_run.failed} not answered. MiniLM, Python "
        f"server; a CloudWatch minute lasted 1 s."
    )
    (place / "run.json").write_text(
        json.dumps(scaling_run.as_json(), indent=1) + "\n", encoding="utf-8"
    )
    (place / "run.svg").write_text(drawing(scaling_run, text) + "\n", encoding="utf-8")
    return _measures(scaling_run)


@contextmanager
def _cloud(at: Paths, state: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """A local cloud of the run's own."""
    address = lifecycle.start(at.code, state)
    try:
        settings.adopt_aws(lifecycle.client_environment(address, variables, region=REGION))
        yield
    finally:
        lifecycle.stop(state)


def run_scaling(endpoint: ScaledEndpoint) -> ScalingRun:
    """Asks at the rates of the phases, and looks at the endpoint four times a second meanwhile."""
    begin = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(
        seconds=1
    )
    time.sleep(max(0.0, (begin - datetime.datetime.now(datetime.UTC)).total_seconds()))
    load = Load(ask=endpoint.ask, phases=PHASES)
    load.start()
    counts: dict[int, tuple[int, int]] = {}
    while not load.has_ended:
        counts[int(load.now)] = endpoint.counts()
        time.sleep(LOOK_SECONDS)
    length = max(*counts, *(int(item.at) for item in load.request)) + 1
    per_instance = endpoint.per_instance(begin, length)
    seconds = tuple(_second(number, load.request, counts, per_instance) for number in range(length))
    return ScalingRun(
        target=TARGET,
        low=LOW,
        high=HIGH,
        phases=PHASES,
        seconds=seconds,
        activities=endpoint.activities(),
    )


def _second(
    number: int,
    request: Sequence[Request],
    counts: Mapping[int, tuple[int, int]],
    per_instance: Mapping[int, float],
) -> Second:
    own = [request for request in request if int(request.at) == number]
    took = sorted(request.milliseconds for request in own if not request.failed)
    current, desired = counts[max(second for second in counts if second <= number)]
    return Second(
        at=number,
        offered=offered_rate(PHASES, number),
        answered=len(took),
        failed=len(own) - len(took),
        p99_ms=round(statistics.quantiles(took, n=100)[98], 1) if len(took) > 1 else None,
        per_instance=round(per_instance[number], 1) if number in per_instance else None,
        current=current,
        desired=desired,
    )


def _measures(scaling_run: ScalingRun) -> list[Measure]:
    grown, ended = (
        scaling_run.seconds_until(HIGH, scaling_run.begin(2)),
        scaling_run.seconds_until(LOW, scaling_run.begin(3)),
    )
    rows = [
        _measure(
            "most instances under load",
            scaling_run.most,
            "instances",
            Bar(kind="at least", limit=HIGH),
        ),
        _measure(
            "instances after the load",
            scaling_run.last,
            "instances",
            Bar(kind="at most", limit=LOW),
        ),
        _measure(
            "requests not answered", scaling_run.failed, "requests", Bar(kind="at most", limit=0)
        ),
        _measure("requests answered", scaling_run.answers, "requests"),
    ]
    times = {
        "from 40 requests a second to three instances": grown,
        "from the load's end to one instance": ended,
    }
    return [
        *rows,
        *(_measure(name, value, "s") for name, value in times.items() if value is not None),
    ]


def _measure(name: str, value: float, unit: str, bar: Bar | None = None) -> Measure:
    return Measure(name=name, value=float(value), unit=unit, command=COMMAND, bar=bar)


def publish(at: Paths, measures: Sequence[Measure], circumstances: Circumstances) -> None:
    """Puts the plot and the record of the last run into docs/."""
    place, docs = at.build / "bench" / "scaling", at.code / "docs"
    shutil.copyfile(place / "run.svg", docs / "images" / "scaling-run.svg")
    scaling_run = json.loads((place / "run.json").read_text(encoding="utf-8"))
    record = {
        **asdict(circumstances),
        "command": COMMAND,
        "measures": [_row(measure) for measure in measures],
        **scaling_run,
    }
    (docs / "benchmarks" / "scaling-run.json").write_text(
        json.dumps(record, indent=1) + "\n", encoding="utf-8"
    )


def _row(measure: Measure) -> dict[str, object]:
    bar = None if measure.bar is None else str(measure.bar)
    return {
        "name": measure.name,
        "value": measure.value,
        "unit": measure.unit,
        "bar": bar,
        "verdict": measure.verdict,
    }


def main() -> int:
    """Measures once, and publishes the run when it held."""
    at = find_paths(Path(__file__).parent)
    measures = scaling(at, Processes(), settings.inherited())
    for measure in measures:
        print(f"{measure.name}: {measure.value:g} {measure.unit} {measure.verdict}")
    if any(measure.verdict == "missed" for measure in measures):
        return 1
    publish(at, measures, circumstances())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
