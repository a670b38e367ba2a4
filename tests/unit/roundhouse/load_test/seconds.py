"""Seconds and phases as load processes would have measured them."""

from __future__ import annotations

from roundhouse.load_test.asked import Asked
from roundhouse.load_test.conducting import Done
from roundhouse.load_test.driving.orders import Second
from roundhouse.load_test.judgement.measured import Measured
from roundhouse.load_test.judgement.saturation import Tried
from roundhouse.load_test.judgement.verdict import verdict
from roundhouse.load_test.latencies import Latencies
from roundhouse.load_test.report.result import Circumstances
from roundhouse.load_test.report.summary import load_result
from roundhouse.load_test.requests.destination import Body, Destination
from roundhouse.load_test.requests.inputs import Inputs
from roundhouse.load_test.traffic import Loop, Phase

HERE = Circumstances(machine="a machine", date="2026-01-02 03:04 UTC", python="3.11")
INPUTS = Inputs(
    bodies=(Body(data=b"{}", content_type="application/json", rows=2),),
    rows_per_request=2,
    rows="texts",
    told="10 texts",
    sha256="ab",
)


def encoded(milliseconds: float, count: int) -> bytes:
    kept = Latencies()
    for _ in range(count):
        kept.record(milliseconds / 1000)
    return kept.encoded() if count else b""


def second(number=0, milliseconds=5.0, count=1000, **changes) -> Second:
    data = encoded(milliseconds, count)
    fields = {
        "number": 0, "second": number, "worker": 0, "users": 0, "intended": count, "sent": count, "answered": count, "faults": {},
        "in_flight": 0, "waiting": 0, "reconnected": 0, "cpu_share": 0.1, "latency": data, "service": data,
        "lag": encoded(0.05, count),
    }  # fmt: skip
    return Second(**fields | changes)


def measured(*seconds: Second, rate=1000.0, loop=Loop.open, name="step 1", **changes) -> Measured:
    found = Measured(
        phase=Phase(name=name, loop=loop, start=rate, seconds=float(len(seconds))),
        workers=1,
        **changes,
    )
    for each in seconds:
        found.add(each)
    return found


def asked(**changes) -> Asked:
    return Asked(
        **{
            "subject": "tiny",
            "destination": Destination(url="http://h/invocations"),
            "inputs": INPUTS,
            "slo_ms": 20.0,
        }
        | changes
    )


def searched(*phases: Measured, slo_ms=20.0):
    """The result of a search with these steps."""
    said = [verdict(each, slo_ms) for each in phases]
    tried = [
        Tried(rate=each.phase.start, outcome=one.outcome)
        for each, one in zip(phases, said, strict=True)
    ]
    done = Done(phases=list(phases), verdicts=list(said), tried=tried, workers=1)
    return load_result(asked(slo_ms=slo_ms), done, HERE)


def loaded(*phases: Measured, **changes):
    """The result of a load with these phases, without an SLO."""
    order = asked(slo_ms=None, phases=tuple(each.phase for each in phases), **changes)
    return load_result(
        order, Done(phases=list(phases), verdicts=[None] * len(phases), workers=1), HERE
    )
