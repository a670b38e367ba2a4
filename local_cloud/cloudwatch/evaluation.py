"""Alarm states; pure. Source: "Configuring how CloudWatch alarms treat missing data"."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

EXTRA_DATAPOINTS = 2
"""CloudWatch looks this much farther back than the evaluation periods: in its examples 5 for 3."""
OK, ALARM, INSUFFICIENT_DATA = "OK", "ALARM", "INSUFFICIENT_DATA"
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What an alarm asks of its datapoints."""

    comparison: str
    threshold: float
    evaluation_periods: int
    datapoints_to_alarm: int
    missing: str = "missing"

    def breaches(self, value: float) -> bool:
        """Whether a value is beyond the threshold."""
        return COMPARISONS[self.comparison](value, self.threshold)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An alarm's state, the values that decided it (oldest first), and AWS's sentence for it."""

    state: str
    values: tuple[float, ...]
    reason: str


def verdict(rule: Rule, datapoints: Sequence[float | None], state: str) -> Verdict:
    """Return the next state of an alarm in `state`.

    `datapoints` are those of the evaluation range, oldest first, None where one is missing.
    """
    present = [value for value in datapoints if value is not None]
    counted = present[-rule.evaluation_periods :]
    state = _state(rule, datapoints, counted, state)
    return Verdict(state=state, values=tuple(counted), reason=_reason(rule, counted, state))


def _state(
    rule: Rule, datapoints: Sequence[float | None], counted: Sequence[float], state: str
) -> str:
    filled = rule.evaluation_periods - len(counted)
    breaching = sum(map(rule.breaches, counted))
    if breaching >= rule.datapoints_to_alarm:
        return ALARM
    if filled == 0 or rule.missing == "notBreaching":
        return OK
    if rule.missing == "breaching":
        return ALARM if breaching + filled >= rule.datapoints_to_alarm else OK
    if breaching < len(counted):
        return OK
    if rule.missing == "ignore":
        return state
    # Missing stays missing, and all datapoints breach: an alarm once the oldest is old enough.
    ages = [age for age, value in enumerate(reversed(datapoints), start=1) if value is not None]
    if not ages:
        return INSUFFICIENT_DATA
    return ALARM if max(ages) >= rule.datapoints_to_alarm else state


def _reason(rule: Rule, counted: Sequence[float], state: str) -> str:
    if not counted:
        treated = "" if state == INSUFFICIENT_DATA else f", and were treated as {rule.missing}"
        return f"Insufficient Data: no datapoints were received{treated}."
    shown = ", ".join(f"{value:g}" for value in counted)
    breaching = sum(map(rule.breaches, counted))
    return (
        f"{breaching} of the last {len(counted)} datapoints [{shown}] cross {rule.threshold:g} "
        f"({rule.comparison}; minimum {rule.datapoints_to_alarm} for ALARM)."
    )
