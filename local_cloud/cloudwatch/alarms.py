"""CloudWatch's metric alarms, evaluated as AWS does once every period.

Percentiles, missing data, M out of N, metric math.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ministack.core import responses
from ministack.services import cloudwatch

from local_cloud.cloudwatch import metric_store
from local_cloud.cloudwatch.evaluation import (
    ALARM,
    COMPARISONS,
    EXTRA_DATAPOINTS,
    Rule,
    Verdict,
    verdict,
)
from local_cloud.cloudwatch.queries import Query, Span, evaluate_queries
from local_cloud.cloudwatch.series import MathError, Question, Series

DEFAULT_PERIOD = 60
REAL_TIME_NAMESPACE, COUNTING = "AWS/SageMaker", ("Sum", "SampleCount")
Alarm = dict[str, Any]
Act = Callable[[str, Alarm, Verdict], None]
logger = logging.getLogger("roundhouse.alarms")


def alarm_states(names: Sequence[str]) -> Mapping[str, str]:
    """State of each metric or composite alarm of the present account and region.

    OK, ALARM or INSUFFICIENT_DATA; an alarm that is not known is absent.
    """
    found = {
        name: cloudwatch._alarms.get(name) or cloudwatch._composite_alarms.get(name)
        for name in names
    }
    return {name: str(alarm["StateValue"]) for name, alarm in found.items() if alarm is not None}


@dataclass(kw_only=True)
class Alarms:
    """All alarms of all accounts.

    `act` is called with an action, the alarm and its verdict at every evaluation in ALARM.

    `seconds_per_minute` is how long one of CloudWatch's minutes lasts. What requests count in a
    shortened minute is scaled to a
    whole one, so that a threshold in requests a minute means here what it means on AWS.
    """

    seconds_per_minute: float
    act: Act

    def __post_init__(self) -> None:
        self._evaluated: dict[tuple[str, str, str], tuple[object, int]] = {}

    def sweep(self, now: float) -> None:
        """Evaluates every alarm whose period has ended since it was last evaluated."""
        for account, region in metric_store.scopes():
            with responses.request_scope(account, region):
                for name, alarm in cloudwatch._alarms.items():
                    self._sweep_one((account, region, name), alarm, now)

    def _sweep_one(self, key: tuple[str, str, str], alarm: Alarm, now: float) -> None:
        requested = (
            alarm.get("AlarmConfigurationUpdatedTimestamp"),
            int(now // (_period(alarm) * self.stretch)),
        )
        if self._evaluated.get(key) == requested:
            return
        self._evaluated[key] = requested
        try:
            self.evaluate(alarm, now)
        except MathError as error:
            logger.warning("alarm %s: %s", key[-1], error)
        except Exception:
            logger.exception("alarm %s", key[-1])

    def evaluate(self, alarm: Alarm, now: float) -> None:
        """Sets an alarm's state from its datapoints, and runs its actions while in ALARM."""
        if alarm.get("ComparisonOperator") not in COMPARISONS:
            return
        before = str(alarm["StateValue"])
        found = verdict(_rule(alarm), self._datapoints(alarm, now), before)
        # A state that SetAlarmState set meanwhile lasts until an evaluation that has seen it.
        if found.state != before == alarm["StateValue"]:
            _change(alarm, found)
        if found.state == ALARM and alarm.get("ActionsEnabled", True):
            for action in alarm.get("AlarmActions") or ():
                self.act(str(action), alarm, found)

    @property
    def stretch(self) -> float:
        """How many real seconds one of CloudWatch's seconds lasts."""
        return self.seconds_per_minute / 60

    def _datapoints(self, alarm: Alarm, now: float) -> list[float | None]:
        """The evaluation range's datapoints, oldest first.

        The period that has not ended is not looked at.
        """
        real = _period(alarm) * self.stretch
        end = int(now // real)
        numbers = range(end - int(alarm.get("EvaluationPeriods", 1)) - EXTRA_DATAPOINTS, end)
        span = Span(
            start=numbers[0] * real,
            end=end * real,
            stretch=self.stretch,
            metrics=metric_store.list_metrics,
            read=partial(self._read, start=numbers[0] * real, end=end * real),
        )
        values = _values(alarm, span)
        return [values.get(number * real) for number in numbers]

    def _read(self, question: Question, period: float, *, start: float, end: float) -> Series:
        found = metric_store.series(question, period=period * self.stretch, start=start, end=end)
        if question.namespace != REAL_TIME_NAMESPACE or question.statistic not in COUNTING:
            return found
        return {at: value / self.stretch for at, value in found.items()}


def _values(alarm: Alarm, span: Span) -> Series:
    """The series that an alarm watches. Raises MathError where its expressions give none."""
    if not alarm.get("Metrics"):
        return span.read(_question(alarm), float(_period(alarm)))
    queries: Sequence[Query] = alarm["Metrics"]
    returned = [str(query["Id"]) for query in queries if _is_returned(query)]
    if len(returned) != 1:
        raise MathError(f"exactly one query must return data, found {len(returned)}")
    value = evaluate_queries(queries, span)[returned[0]]
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list):
        raise MathError(
            f"{returned[0]} is a list of {len(value)} time series: an alarm watches one"
        )
    return dict.fromkeys(span.times(_period(alarm)), value)


def _question(alarm: Alarm) -> Question:
    return Question(
        namespace=str(alarm.get("Namespace")),
        name=str(alarm.get("MetricName")),
        statistic=str(alarm.get("ExtendedStatistic") or alarm.get("Statistic") or "Average"),
        dimensions={
            dimension["Name"]: dimension["Value"] for dimension in alarm.get("Dimensions") or ()
        },
        unit=alarm.get("Unit"),
    )


def _is_returned(query: Query) -> bool:
    return str(query.get("ReturnData", True)).lower() != "false"


def _period(alarm: Alarm) -> int:
    """An alarm's period in CloudWatch's seconds; with metric math the longest of its queries'."""
    if not alarm.get("Metrics"):
        return int(alarm.get("Period") or DEFAULT_PERIOD)
    periods = [
        query.get("Period") or (query.get("MetricStat") or {}).get("Period")
        for query in alarm["Metrics"]
    ]
    return max((int(period) for period in periods if period is not None), default=DEFAULT_PERIOD)


def _rule(alarm: Alarm) -> Rule:
    periods = int(alarm.get("EvaluationPeriods", 1))
    requested = alarm.get("DatapointsToAlarm")
    return Rule(
        comparison=str(alarm["ComparisonOperator"]),
        threshold=float(alarm.get("Threshold") or 0.0),
        evaluation_periods=periods,
        datapoints_to_alarm=periods if requested is None else int(requested),
        missing=str(alarm.get("TreatMissingData") or "missing"),
    )


def _change(alarm: Alarm, found: Verdict) -> None:
    """Moves an alarm to another state.

    Its history, its notifications, and the composite alarms above it.
    """
    old, now = str(alarm["StateValue"]), int(time.time())
    alarm.update(
        StateValue=found.state,
        StateReason=found.reason,
        StateUpdatedTimestamp=now,
        StateTransitionedTimestamp=now,
        StateReasonData=json.dumps(
            {
                "version": "1.0",
                "recentDatapoints": found.values,
                "threshold": alarm.get("Threshold"),
            }
        ),
    )
    cloudwatch._record_history(alarm["AlarmName"], old, found.state, found.reason)
    cloudwatch._dispatch_alarm_actions(alarm, old, found.state, found.reason)
    cloudwatch._evaluate_parent_alarms(alarm)
