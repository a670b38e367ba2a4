"""A load makes an endpoint's instances more, its end makes them fewer: measured on the local cloud
with the real Python server.

`make bench BENCH=scaling` measures; `python -m benchmarks.scaling_walk` also puts the plot and the
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

from benchmarks.here import circumstances
from benchmarks.measure import Bar, Circumstances, Measure
from benchmarks.scaling.chart import drawing
from benchmarks.scaling.endpoint import ScaledEndpoint
from benchmarks.scaling.load import Asked, Load
from benchmarks.scaling.record import Phase, Second, Walk, offered_rate
from benchmarks.servers.ground import minilm
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
COMMAND = "make bench BENCH=scaling: 6, 20, 40, 6 requests a second to MiniLM; target 900 a minute and instance; a minute is 1 s"
LOOK_SECONDS = 0.25
REGION = "us-east-1"


def scaling(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """Walks, and leaves walk.json and walk.svg in build/bench/scaling.

    Raises ValueError when the endpoint does not answer.
    """
    place = at.build / "bench" / "scaling"
    ground = minilm(at, run, variables, place)
    with _cloud(at, place / "cloud", variables):
        endpoint = ScaledEndpoint(clients=aws_clients(REGION), target=TARGET, low=LOW, high=HIGH)
        endpoint.create(ground.archive)
        walk = walked(endpoint)
    told = f"{walk.answered:,} requests, {walk.failed} not answered. MiniLM, Python server; a CloudWatch minute lasted 1 s."
    (place / "walk.json").write_text(json.dumps(walk.as_json(), indent=1) + "\n", encoding="utf-8")
    (place / "walk.svg").write_text(drawing(walk, told) + "\n", encoding="utf-8")
    return _measures(walk)


@contextmanager
def _cloud(at: Paths, state: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """A local cloud of the walk's own."""
    address = lifecycle.start(at.code, state)
    try:
        settings.adopt_aws(lifecycle.client_environment(address, variables, region=REGION))
        yield
    finally:
        lifecycle.stop(state)


def walked(endpoint: ScaledEndpoint) -> Walk:
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
    length = max(*counts, *(int(each.at) for each in load.asked)) + 1
    per_instance = endpoint.per_instance(begin, length)
    seconds = tuple(_second(number, load.asked, counts, per_instance) for number in range(length))
    return Walk(
        target=TARGET,
        low=LOW,
        high=HIGH,
        phases=PHASES,
        seconds=seconds,
        activities=endpoint.activities(),
    )


def _second(
    number: int,
    asked: Sequence[Asked],
    counts: Mapping[int, tuple[int, int]],
    per_instance: Mapping[int, float],
) -> Second:
    own = [each for each in asked if int(each.at) == number]
    took = sorted(each.milliseconds for each in own if not each.failed)
    current, desired = counts[max(each for each in counts if each <= number)]
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


def _measures(walk: Walk) -> list[Measure]:
    grown, ended = walk.seconds_until(HIGH, walk.begin(2)), walk.seconds_until(LOW, walk.begin(3))
    rows = [
        _measure(
            "most instances under load", walk.most, "instances", Bar(kind="at least", limit=HIGH)
        ),
        _measure(
            "instances after the load", walk.last, "instances", Bar(kind="at most", limit=LOW)
        ),
        _measure("requests not answered", walk.failed, "requests", Bar(kind="at most", limit=0)),
        _measure("requests answered", walk.answered, "requests"),
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
    """Puts the plot and the record of the last walk into docs/."""
    place, docs = at.build / "bench" / "scaling", at.code / "docs"
    shutil.copyfile(place / "walk.svg", docs / "images" / "scaling-walk.svg")
    walk = json.loads((place / "walk.json").read_text(encoding="utf-8"))
    record = {
        **asdict(circumstances),
        "command": COMMAND,
        "measures": [_row(each) for each in measures],
        **walk,
    }
    (docs / "benchmarks" / "scaling-walk.json").write_text(
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
    """Walks once, and publishes the walk when it held."""
    at = find_paths(Path(__file__).parent)
    measures = scaling(at, Processes(), settings.inherited())
    for each in measures:
        print(f"{each.name}: {each.value:g} {each.unit} {each.verdict}")
    if any(each.verdict == "missed" for each in measures):
        return 1
    publish(at, measures, circumstances())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
