"""Measurements and results of load tests, as a driver would have made them."""

from __future__ import annotations

from pathlib import Path

from roundhouse.load_test.destination import Destination
from roundhouse.load_test.inputs import Body, Inputs
from roundhouse.load_test.load_test import LoadTest, Measured
from roundhouse.load_test.measurement import Measurement
from roundhouse.load_test.options import LoadOptions, Loop, Phase
from roundhouse.load_test.result import Circumstances
from roundhouse.load_test.saturation import Step, verdict
from roundhouse.load_test.summary import load_result

HERE = Circumstances(machine="a machine", date="2026-01-02 03:04 UTC", python="3.11")
INPUTS = Inputs(
    bodies=(Body(data=b"{}", content_type="application/json", rows=2),),
    rows_per_request=2,
    rows="texts",
    description="10 texts",
    sha256="ab",
)


def second(milliseconds=5.0, count=1000, **changes) -> dict:
    """One second: `count` answers, each after the same time."""
    fields = {
        "milliseconds": milliseconds, "count": count, "intended": count, "answered": count,
        "service": milliseconds, "lag": 0.05, "users": 0, "cpu_share": 0.1, "errors": {},
    }  # fmt: skip
    return fields | changes


def measurement(
    *seconds: dict, rate=1000.0, loop=Loop.open, name="step 1", interval=None
) -> Measurement:
    phase = Phase(name=name, loop=loop, start=rate, seconds=float(len(seconds)))
    result = Measurement(phase=phase, expected_interval_seconds=interval)
    for number, values in enumerate(seconds):
        current = result.start_second(number)
        for _ in range(values["intended"]):
            result.record_due(values["lag"] / 1000 if loop is Loop.open else None)
        sent = (values["milliseconds"] - values["service"]) / 1000
        for _ in range(values["answered"]):
            result.record_answer(0.0, sent, values["milliseconds"] / 1000)
        for reason, times in values["errors"].items():
            for _ in range(times):
                result.record_error(reason)
        current.users, current.cpu_share = values["users"], values["cpu_share"]
    return result


def load_test(**changes) -> LoadTest:
    options = {"url": "http://h/invocations", "input": Path("a.txt"), "rate": 1.0}
    for name in ("url", "connections", "arrivals", "warm_up", "max_requests", "timeout",
                 "first_rate", "expected_interval"):  # fmt: skip
        if name in changes:
            options[name] = changes.pop(name)
    fields = {"subject": "tiny", "inputs": INPUTS, "slo_ms": 20.0, "phases": (), "stop": None}
    destination = changes.pop("destination", Destination(url=options["url"]))
    return LoadTest(**fields | changes, destination=destination, options=LoadOptions(**options))


def searched(*phases: Measurement, slo_ms=20.0):
    """The result of a search with these steps."""
    verdicts = [verdict(phase, slo_ms) for phase in phases]
    steps = [
        Step(rate=phase.phase.start, outcome=result.outcome)
        for phase, result in zip(phases, verdicts, strict=True)
    ]
    measured = Measured(phases=list(phases), verdicts=list(verdicts), steps=steps)
    return load_result(load_test(slo_ms=slo_ms), measured, HERE)


def load_of(*phases: Measurement, slo_ms=None, **changes):
    """The result of a load with these phases."""
    test = load_test(slo_ms=slo_ms, phases=tuple(phase.phase for phase in phases), **changes)
    verdicts = [None if slo_ms is None else verdict(phase, slo_ms) for phase in phases]
    return load_result(test, Measured(phases=list(phases), verdicts=verdicts), HERE)
