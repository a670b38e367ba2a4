"""CloudWatch's metric alarms, evaluated once every period as AWS does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from local_cloud.cloudwatch.metric_math import (
    DEFAULT_PERIOD,
    MathError,
    Query,
    Question,
    Series,
    watched_series,
)
from onboarding.metrics import INVOCATIONS

COUNTING = ("Sum", "SampleCount")
SINGLE_METRIC_FIELDS = frozenset(
    ("MetricName", "Namespace", "Statistic", "Period", "Dimensions", "ExtendedStatistic", "Unit")
)
Alarm = dict[str, Any]
logger = logging.getLogger("roundhouse.alarms")


def install() -> None:
    """Evaluate alarms here, and keep the queries of those on metric math.

    MiniStack ignores an alarm's dimensions, periods and missing data, and evaluates only when data
    is put.
    """
    cloudwatch._evaluate_alarm = lambda alarm: None
    cloudwatch._evaluate_all_alarms = lambda: None
    put_alarm = cloudwatch._put_metric_alarm

    def put(params: Any, body: Mapping[str, Any], *options: Any, **more: Any) -> Any:
        handled = put_alarm(params, body, *options, **more)
        name, queries = body.get("AlarmName"), body.get("Metrics")
        if queries and name in cloudwatch._alarms:
            alarm = {**cloudwatch._alarms[name], "Metrics": queries}
            cloudwatch._alarms[name] = without_metric(alarm)
        return handled

    cloudwatch._put_metric_alarm = put


def without_metric(alarm: Mapping[str, Any]) -> Alarm:
    """Return an alarm on metric math without the fields of a single metric."""
    return {name: value for name, value in alarm.items() if name not in SINGLE_METRIC_FIELDS}


def alarm_states(names: Sequence[str]) -> Mapping[str, str]:
    """Return the state of each known alarm: OK, ALARM or INSUFFICIENT_DATA."""
    alarms = {
        name: cloudwatch._alarms.get(name) or cloudwatch._composite_alarms.get(name)
        for name in names
    }
    return {name: str(alarm["StateValue"]) for name, alarm in alarms.items() if alarm is not None}


@dataclass(kw_only=True)
class Alarms:
    """All alarms of all accounts; `act` is called for every action at every evaluation in ALARM.

    Counts of a minute that lasts `seconds_per_minute` are scaled to a whole one, so that thresholds
    in requests per minute mean what they mean on AWS.
    """

    seconds_per_minute: float
    act: Callable[[str, Alarm, Verdict], None]
    _evaluated: dict[tuple[str, str, str], tuple[object, int]] = field(default_factory=dict)

    def sweep(self, now: float) -> None:
        """Evaluates every alarm whose period has ended since it was last evaluated."""
        for account, region in {key[:2] for key in list(cloudwatch._alarms._data)}:
            with responses.request_scope(account, region):
                for name, alarm in cloudwatch._alarms.items():
                    self._sweep_one((account, region, name), alarm, now)

    def _sweep_one(self, key: tuple[str, str, str], alarm: Alarm, now: float) -> None:
        number = int(now // (_period(alarm) * self.stretch))
        evaluation = (alarm.get("AlarmConfigurationUpdatedTimestamp"), number)
        if self._evaluated.get(key) == evaluation:
            return
        self._evaluated[key] = evaluation
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
        result = verdict(_rule(alarm), self._datapoints(alarm, now), before)
        # A state that SetAlarmState set meanwhile lasts until an evaluation that has seen it.
        if result.state != before == alarm["StateValue"]:
            _change(alarm, result)
        if result.state == ALARM and alarm.get("ActionsEnabled", True):
            for action in alarm.get("AlarmActions") or ():
                self.act(str(action), alarm, result)

    @property
    def stretch(self) -> float:
        """How many real seconds one of CloudWatch's seconds lasts."""
        return self.seconds_per_minute / 60

    def _datapoints(self, alarm: Alarm, now: float) -> list[float | None]:
        """The datapoints of the evaluation range's ended periods, oldest first."""
        real = _period(alarm) * self.stretch
        end = int(now // real)
        numbers = range(end - int(alarm.get("EvaluationPeriods", 1)) - EXTRA_DATAPOINTS, end)
        read = partial(self._read, start=numbers[0] * real, end=end * real)
        times = [number * real for number in numbers]
        values = watched_series(_queries(alarm), read, times)
        return [values.get(at) for at in times]

    def _read(self, question: Question, period: float, *, start: float, end: float) -> Series:
        series = metric_store.series(question, period=period * self.stretch, start=start, end=end)
        if question.namespace != INVOCATIONS or question.statistic not in COUNTING:
            return series
        return {at: value / self.stretch for at, value in series.items()}


def _queries(alarm: Alarm) -> Sequence[Query]:
    """An alarm's queries; one of a single metric is one query."""
    if alarm.get("Metrics"):
        queries: Sequence[Query] = alarm["Metrics"]
        return queries
    stat = {
        "Metric": {name: alarm.get(name) for name in ("Namespace", "MetricName", "Dimensions")},
        "Stat": alarm.get("ExtendedStatistic") or alarm.get("Statistic"),
        "Period": alarm.get("Period"),
        "Unit": alarm.get("Unit"),
    }
    return [{"Id": "metric", "MetricStat": stat}]


def _period(alarm: Alarm) -> int:
    """An alarm's period in CloudWatch's seconds: the longest of its queries'."""
    periods = [
        query.get("Period") or (query.get("MetricStat") or {}).get("Period")
        for query in _queries(alarm)
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


def _change(alarm: Alarm, result: Verdict) -> None:
    """Change an alarm's state, with history, notifications and composite alarms."""
    old, now = str(alarm["StateValue"]), int(time.time())
    alarm.update(
        StateValue=result.state,
        StateReason=result.reason,
        StateUpdatedTimestamp=now,
    )
    cloudwatch._record_history(alarm["AlarmName"], old, result.state, result.reason)
    cloudwatch._dispatch_alarm_actions(alarm, old, result.state, result.reason)
    cloudwatch._evaluate_parent_alarms(alarm)
