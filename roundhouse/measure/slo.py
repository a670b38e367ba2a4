"""Verdicts on phases against an SLO, and the search for the highest load that holds it. Pure."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from roundhouse.measure.measurement import (
    Measurement,
    Outcome,
    Verdict,
    percentile,
    proven_percentile,
    samples_needed,
)
from roundhouse.text import milliseconds, quantity

TTFT, ITL = "TTFT", "ITL"
LOWER_PERCENTILES = (95.0, 50.0)
"""Fewer answers prove these, and the SLO's percentile is not below them."""
BUSY_SHARE = 0.9
"""Share of a core from which on the load tool is taken to be the limit."""
BUSY_MACHINE_SHARE = 0.95
"""Share of all cores of the tool's machine from which on it is taken to be the limit."""
LAG_SHARE = 0.2
"""Share of the SLO, or of the latency, that the tool's own lateness may take."""
MIN_LAG_MS = 1.0
STEP_UP = 1.5
STEP_DOWN = 0.5
CLOSE_ENOUGH = 1.04
MAX_STEPS = 40
MIN_SHARE = 1 / 32
"""Of the first rate: the search goes no lower."""
NEXT_SHARE, TRIES = 0.8, 5
"""Of a rate that missed: what `lower_load` tries next."""


@dataclass(frozen=True, kw_only=True)
class Slo:
    """What clients are promised: limits in milliseconds by the names of a phase's times.

    `percent`: the percentile of each. An engine has one limit, whose name is empty.
    """

    percent: float
    limits: Mapping[str, float]

    def __str__(self) -> str:
        return ", ".join(f"{self.title(name)} ≤ {ms:g} ms" for name, ms in self.limits.items())

    @property
    def first_ms(self) -> float:
        """The first limit, in milliseconds."""
        return next(iter(self.limits.values()))

    def title(self, name: str) -> str:
        """Return what a limit is of: `p99`, `TTFT p95`."""
        return f"{name} p{self.percent:g}".lstrip()


def engine_slo(p99_ms: float) -> Slo:
    """Return the SLO of an engine."""
    return Slo(percent=Measurement.percent, limits={"": p99_ms})


def stream_slo(*, ttft_ms: float, itl_ms: float) -> Slo:
    """Return the SLO of a text generator: 95th percentiles."""
    return Slo(percent=95.0, limits={TTFT: ttft_ms, ITL: itl_ms})


def tool_limit(measurement: Measurement, slo: Slo | None) -> str | None:
    """Return why a phase's numbers are the load tool's own; None when they are the server's."""
    if measurement.cpu_share > BUSY_SHARE:
        return f"the load tool used {measurement.cpu_share:.0%} of a core"
    percent, (times, *_) = measurement.percent, measurement.times.values()
    lag, latency = (proven_percentile(values, percent) for values in (measurement.lag, times))
    if lag is None or latency is None:
        return None
    shorter = latency if slo is None else min(slo.first_ms, latency)
    is_late = lag > max(MIN_LAG_MS, LAG_SHARE * shorter)
    return f"its own p{percent:g} lag was {milliseconds(lag)}" if is_late else None


def machine_limit(measurement: Measurement) -> str | None:
    """Return that the tool's machine is busy; None where it is not, or it is not known."""
    share = measurement.machine_share
    if share <= BUSY_MACHINE_SHARE:
        return None
    return f"this machine's {os.cpu_count()} cores were {share:.0%} busy"


def verdict(measurement: Measurement, slo: Slo) -> Verdict:
    """Return whether all times are within the SLO, without errors, pile-up, or too few samples."""
    miss, limit = _miss(measurement, slo), tool_limit(measurement, slo)
    if miss is not None:
        is_busy = measurement.cpu_share > BUSY_SHARE
        is_slow = not is_busy and measurement.has_slow_server(slo.first_ms)
        if limit is None or measurement.failed or is_slow:
            return Verdict(outcome=Outcome.missed, reason=miss)
        return Verdict(outcome=Outcome.tool, reason=limit)
    first, *_ = measurement.times.values()
    count = len(first)
    if count < (needed := samples_needed(slo.percent)):
        reason = f"{quantity(count, 'answer')}; p{slo.percent:g} needs {needed:,}"
        return Verdict(outcome=Outcome.unproven, reason=reason)
    times = (
        f"{slo.title(name)} {milliseconds(percentile(measurement.times[name], slo.percent))} "
        f"within {limit_ms:g} ms"
        for name, limit_ms in slo.limits.items()
    )
    return Verdict(outcome=Outcome.held, reason=", ".join(times))


def _miss(measurement: Measurement, slo: Slo) -> str | None:
    """Return the first thing that the SLO does not allow; of few answers, only what is certain."""
    if measurement.failed:
        worst, _ = measurement.errors.most_common(1)[0]
        return f"{quantity(measurement.failed, 'error')}: {worst}"
    if measurement.ended_early is not None:
        return measurement.ended_early
    return next(_late_times(measurement, slo), measurement.pile_up)


def _late_times(measurement: Measurement, slo: Slo) -> Iterator[str]:
    first, *_ = measurement.times.values()
    is_enough = len(first) >= samples_needed(slo.percent)
    for name, limit_ms in slo.limits.items():
        values = measurement.times[name]
        for percent in (slo.percent,) if is_enough else LOWER_PERCENTILES:
            value = (percentile if is_enough else proven_percentile)(values, percent)
            if value is not None and value > limit_ms:
                yield f"{name} p{percent:g} {milliseconds(value)} above {limit_ms:g} ms".lstrip()


def hopeless(measurement: Measurement, slo: Slo, slos: float) -> str | None:
    """Return why a step need not run to its end: a median is above so many SLOs."""
    for name, median in measurement.medians.items():
        limit_ms = slos * slo.limits[name]
        if median is not None and median > limit_ms:
            return f"{name} p50 above {limit_ms:g} ms".lstrip()
    return None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the search: the rate offered and its outcome."""

    rate: float
    outcome: Outcome


def bounds(steps: Sequence[Step]) -> tuple[float | None, float | None]:
    """Return the highest rate that held and the lowest that missed; None where there is none.

    A rate counts by the majority of its steps; a hold counts below the lowest miss.
    """
    scores: Counter[float] = Counter()
    for step in steps:
        scores[step.rate] += 1 if step.outcome is Outcome.held else -1
    missed = min((rate for rate, score in scores.items() if score < 0), default=None)
    held = [rate for rate, s in scores.items() if s > 0 and (missed is None or rate < missed)]
    return max(held, default=None), missed


def next_load(steps: Sequence[Step], first: float, *, is_whole: bool = False) -> float | None:
    """Return the rate of the next step; None when the search is over.

    `is_whole`: rates are whole numbers, such as requests at once. A rate has held, or missed, when
    two steps of at most three say so: one bad or one good moment of a shared machine decides
    neither, and the result leans neither up nor down.
    """
    if not steps:
        return first
    if len(steps) >= MAX_STEPS or steps[-1].outcome is Outcome.unproven:
        return None
    last = steps[-1].rate
    if not _is_decided(steps, last):
        return last
    held, missed = bounds(steps)
    if held is None:
        lower = last * STEP_DOWN
        lower = float(math.floor(lower)) if is_whole else lower
        return lower if lower >= (1 if is_whole else first * MIN_SHARE) else None
    if missed is None:
        return float(math.ceil(held * STEP_UP)) if is_whole else held * STEP_UP
    if _is_close(held, missed, is_whole):
        return None
    middle = math.sqrt(held * missed)
    return min(max(float(round(middle)), held + 1), missed - 1) if is_whole else middle


def lower_load(steps: Sequence[Step], first: float, *, is_whole: bool = False) -> float | None:
    """Return a lower rate than the last, until one holds: the search of a comparison.

    One step a rate, as a comparison measures many candidates in the time of one full search.
    """
    if not steps:
        return first
    if steps[-1].outcome is Outcome.held or len(steps) >= TRIES:
        return None
    lower = steps[-1].rate * NEXT_SHARE
    return max(float(math.floor(lower)), 1.0) if is_whole else lower


def _is_close(held: float, missed: float, is_whole: bool) -> bool:
    return missed <= held * CLOSE_ENOUGH or (is_whole and missed <= held + 1)


def is_exact(steps: Sequence[Step], *, is_whole: bool = False) -> bool:
    """Return whether the bounds are close, decided, and the miss is the server's own."""
    held, missed = bounds(steps)
    if held is None or missed is None or not _is_close(held, missed, is_whole):
        return False
    is_own = any(step.rate == missed and step.outcome is Outcome.missed for step in steps)
    return is_own and _is_decided(steps, held) and _is_decided(steps, missed)


def _is_decided(steps: Sequence[Step], rate: float) -> bool:
    held = [step.outcome is Outcome.held for step in steps if step.rate == rate]
    return max(held.count(True), held.count(False)) >= 2
