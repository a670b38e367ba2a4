"""When a schedule is due, and whether its call is tried again; pure.

Source: EventBridge Scheduler user guide, "Schedule types": a rate without StartDate starts at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from local_cloud.protocol.schedule import Schedule, schedule

LONGEST_AGE_SECONDS, MOST_RETRIES = 86_400, 185
"""Of a call that fails, where the schedule's retry policy says nothing."""


@dataclass(kw_only=True)
class Occurrences:
    """The occurrences of one schedule; `due` is the next one, None once it has completed."""

    times: Schedule
    begin: datetime
    end: datetime | None
    due: datetime | None
    most_retries: int
    longest_age: timedelta
    retry: datetime | None = None
    """When the call of the last occurrence is tried again; None: it is not."""
    retries: int = 0
    failing_since: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Return whether the target is to be called now; count the occurrence as called."""
        if self.due is not None and self.due <= now:
            following = self.times.next_after(now, self.begin)
            is_over = following is None or (self.end is not None and following > self.end)
            self.due = None if is_over else following
            self.retry, self.retries, self.failing_since = None, 0, None
            return True
        return self.retry is not None and self.retry <= now

    def fail(self, now: datetime, pause: timedelta) -> bool:
        """Record that the call failed; return whether it is tried again after the pause."""
        self.failing_since = now if self.failing_since is None else self.failing_since
        is_given_up = self.retries >= self.most_retries or (
            now + pause - self.failing_since > self.longest_age
        )
        self.retries += 1
        self.retry = None if is_given_up else now + pause
        return not is_given_up

    def succeed(self) -> None:
        """Record that the call was taken."""
        self.retry = None

    @property
    def is_completed(self) -> bool:
        """Return whether nothing comes any more."""
        return self.due is None and self.retry is None


def occurrences(request: Mapping[str, Any], now: datetime, pace: float) -> Occurrences:
    """Return the occurrences of a CreateSchedule request; `pace` is seconds of a minute of a rate.

    Raises ScheduleError.
    """
    expression, zone = request["ScheduleExpression"], request.get("ScheduleExpressionTimezone")
    times = schedule(expression, zone, seconds_per_minute=pace)
    begin, end = (_moment(request.get(name)) for name in ("StartDate", "EndDate"))
    begin = now if begin is None or times.at is not None else max(begin, now)
    due = begin if times.interval is not None else times.next_after(begin, begin)
    policy = request["Target"].get("RetryPolicy") or {}
    age = int(policy.get("MaximumEventAgeInSeconds", LONGEST_AGE_SECONDS))
    return Occurrences(
        times=times,
        begin=begin,
        end=None if times.at is not None else end,
        due=due,
        most_retries=int(policy.get("MaximumRetryAttempts", MOST_RETRIES)),
        longest_age=timedelta(seconds=age * pace / 60),
    )


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
