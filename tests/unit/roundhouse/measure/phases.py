"""Measurements and results of load tests, as a driver would have made them."""

from __future__ import annotations

from array import array
from pathlib import Path
from types import SimpleNamespace

from roundhouse.measure.destination import Destination
from roundhouse.measure.inputs import Body, Inputs
from roundhouse.measure.measurement import Answer, Measurement
from roundhouse.measure.options import ClientOptions, LoadOptions, Loop, Phase, closed_phase
from roundhouse.measure.result import Circumstances, Result
from roundhouse.measure.runner import EngineTest
from roundhouse.measure.slo import Step, engine_slo, stream_slo, verdict
from roundhouse.measure.streams import StreamMeasurement, TokenTimes

OPTIONS, CLIENT = {"url", "warm_up", "seconds"}, {"connections", "timeout"}
HERE = Circumstances(machine="a machine", date="2026-01-02 03:04 UTC", python="3.11")
STREAM_SLO = stream_slo(ttft_ms=300, itl_ms=60)
INPUTS = Inputs(
    bodies=(Body(b"{}", "application/json"),),
    rows_per_request=2,
    description="10 texts",
    sha256="ab",
)


def second(milliseconds=5.0, count=1000, **changes) -> dict:
    """Return one second: `count` answers, each after the same time."""
    fields = {
        "milliseconds": milliseconds, "offered": count, "answered": count,
        "service": milliseconds, "lag": 0.05, "cpu_share": 0.1, "machine_share": 0.2,
        "errors": {},
    }  # fmt: skip
    return fields | changes


def measurement(*seconds: dict, rate=1000.0, loop=Loop.open, name="step 1") -> Measurement:
    phase = Phase(name=name, loop=loop, start=rate, seconds=float(len(seconds)))
    result = Measurement(phase=phase)
    for number, values in enumerate(seconds):
        current = result.start_second(number)
        for _ in range(values["offered"]):
            result.record_due(values["lag"] / 1000 if loop is Loop.open else None)
        sent = (values["milliseconds"] - values["service"]) / 1000
        for _ in range(values["answered"]):
            result.record_answer(0.0, sent, values["milliseconds"] / 1000)
        for reason, times in values["errors"].items():
            for _ in range(times):
                result.record_error(reason)
        current.cpu_share = values["cpu_share"]
        current.machine_share = values["machine_share"]
    return result


def load_test(**changes) -> EngineTest:
    options = {"url": "http://h/invocations", "input": Path("a.txt"), "rate": "1"}
    options |= {name: changes.pop(name) for name in OPTIONS & changes.keys()}
    client = {name: changes.pop(name) for name in CLIENT & changes.keys()}
    fields = {
        "subject": "tiny", "inputs": INPUTS, "phases": (),
        "destination": Destination(url=options["url"]),
    }  # fmt: skip
    slo_ms = changes.pop("slo_ms", 20.0)
    return EngineTest(
        **fields | changes,
        slo=None if slo_ms is None else engine_slo(slo_ms),
        options=LoadOptions(**options),
        client=ClientOptions(**client),
    )


def searched(*phases: Measurement, slo_ms=20.0):
    """Return the result of a search with these steps."""
    for phase in phases:
        phase.verdict = verdict(phase, engine_slo(slo_ms))
    steps = [Step(rate=phase.phase.start, outcome=phase.verdict.outcome) for phase in phases]
    return Result(test=load_test(slo_ms=slo_ms), phases=phases, steps=steps, circumstances=HERE)


def load_of(*phases: Measurement, slo_ms=None, **changes):
    """Return the result of a load with these phases."""
    for phase in phases:
        phase.verdict = None if slo_ms is None else verdict(phase, engine_slo(slo_ms))
    test = load_test(slo_ms=slo_ms, phases=tuple(phase.phase for phase in phases), **changes)
    return Result(test=test, phases=phases, circumstances=HERE)


def stream_measurement(*answers, slo=STREAM_SLO, errors=0) -> StreamMeasurement:
    """Return a phase with answers of (due, moments of chunks, prompt tokens, output tokens)."""
    result = StreamMeasurement(phase=closed_phase("2 at once", 2, 10.0), slo=slo)
    result.start_second(0)
    for due, chunks, prompt, output in answers:
        times = TokenTimes(array("d", chunks), prompt, output)
        result.record_answer(due, due, chunks[-1], Answer(content=times))
    for _ in range(errors):
        result.record_error("HTTP 503")
    return result


def stream_answers(count, *, ttft=0.1, gap=0.01, late=0):
    """Return answers of three tokens, `late` of them with four times the TTFT."""
    pairs = [(number, ttft * (4 if number < late else 1)) for number in range(count)]
    return [
        (float(due), (due + first, due + first + gap, due + first + 2 * gap), 10, 3)
        for due, first in pairs
    ]


def stream_phase(count, **changes):
    result = stream_measurement(*stream_answers(220, **changes))
    result.phase = closed_phase(f"{count} at once", count, 10.0)
    result.verdict = verdict(result, STREAM_SLO)
    return result


def stream_search(*phases, **changes) -> Result:
    steps = [Step(rate=item.phase.start, outcome=item.verdict.outcome) for item in phases]
    test = SimpleNamespace(slo=STREAM_SLO, options=LoadOptions(url="http://h"), phases=())
    return Result(
        test=test, phases=phases, steps=steps, circumstances=HERE, is_whole=True, **changes
    )


STREAM_PHASES = (
    stream_phase(8),
    stream_phase(8),
    stream_phase(9, ttft=0.5),
    stream_phase(9, ttft=0.5),
)
