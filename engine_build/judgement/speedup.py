"""How much faster one engine is than another, against the noise that two copies of one engine show.

The rounds are paired: in each, both engines ran within moments of each other. A median of ratios
forgets spells of load that a
ratio of medians does not. The noise is where four in five rounds of the two copies lie, and not
their median's interval: on a
machine that others use, one copy of an engine stays faster than another for minutes, and more
rounds make an interval narrow
around luck (docs/decisions/0008).
"""

from __future__ import annotations

import numpy as np

from engine_build.judgement.bootstrap import median_interval
from engine_build.runtimes.rounds import Latencies
from engine_build.samples.feed import Shape
from onboarding.manifest import SpeedupRecord

LEAST_ROUNDS = 15
"""Fewer rounds give no interval that is worth the name; on a quiet machine there are twice as many
and more.
"""
NOISE = (0.1, 0.9)
LEAST_GAIN = 1.05
"""INT8 costs accuracy, so less than 5 % is not worth it. Two copies of one engine lay up to 3 %
apart for a whole measurement,
with intervals that excluded 1: where their memory happens to lie is no noise that more rounds would
remove."""


def speedup(
    measured: Latencies, *, candidate: tuple[int, str], baseline: tuple[int, str], control: int
) -> SpeedupRecord:
    """The record of one shape; subjects are given by their place in the measurement and their name."""
    ratios = measured.ratios(baseline[0], candidate[0])
    low, high = median_interval(ratios)
    copies = measured.ratios(baseline[0], control)
    control_low, control_high = (round(float(np.quantile(copies, part)), 4) for part in NOISE)
    return SpeedupRecord(
        candidate=candidate[1],
        baseline=baseline[1],
        batch=measured.shape.batch,
        sequence=measured.shape.sequence,
        ratio=round(float(np.median(ratios)), 4),
        low=round(low, 4),
        high=round(high, 4),
        control_low=control_low,
        control_high=control_high,
    )


def needed(record: SpeedupRecord) -> float:
    """What the interval's lower end must exceed: the least gain, and the noise to either side."""
    return max(LEAST_GAIN, record.control_high, 1 / record.control_low)


def is_faster(record: SpeedupRecord) -> bool:
    """Faster by more than noise explains."""
    return record.low > needed(record)


def told(record: SpeedupRecord) -> str:
    """The record in a few words."""
    shape = Shape(batch=record.batch, sequence=record.sequence)
    return (
        f"{record.ratio:.2f} times as fast as {record.baseline} at {shape} (95 % interval {record.low:.2f} to {record.high:.2f}; "
        f"rounds of two copies of {record.baseline}: {record.control_low:.2f} to {record.control_high:.2f})"
    )
