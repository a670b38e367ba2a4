"""When a scheduled action is due: at(…), rate(…) and cron(…) expressions; pure.

`at` and `cron` follow the wall clock of their time zone; a `rate` runs as fast as the local cloud's
time does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from local_cloud.autoscaling.cron import Cron, ScheduleError, cron

FORM = re.compile(r"(?P<kind>at|rate|cron)\((?P<content>.*)\)")
RATE = re.compile(r"(?P<value>[1-9]\d*) (?P<unit>minute|hour|day)(?P<plural>s?)")
UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One of: a moment, an interval in seconds, a cron expression in a time zone."""

    at: datetime | None = None
    every_seconds: float | None = None
    cron: Cron | None = None
    zone: tzinfo = UTC

    def next_after(self, after: datetime, begun: datetime) -> datetime | None:
        """When it is next due after a moment; an interval counts from `begun`.

        None where it never is again.
        """
        if self.cron is not None:
            return self.cron.next_after(after, self.zone)
        if self.every_seconds is not None:
            passed = max(0, (after - begun) // timedelta(seconds=self.every_seconds))
            return begun + timedelta(seconds=self.every_seconds) * (passed + 1)
        return self.at if self.at is not None and self.at > after else None


def schedule(
    expression: str, timezone: str | None = None, *, seconds_per_minute: float = 60.0
) -> Schedule:
    """Reads a schedule expression; default time zone: UTC. Raises ScheduleError."""
    form = FORM.fullmatch(expression.strip())
    zone = _zone(timezone)
    if form is None:
        raise ScheduleError(
            f"{expression} is none of at(yyyy-mm-ddThh:mm:ss), rate(value unit), cron(fields)"
        )
    if form["kind"] == "cron":
        return Schedule(cron=cron(form["content"]), zone=zone)
    if form["kind"] == "rate":
        return Schedule(every_seconds=_rate_seconds(form["content"]) * seconds_per_minute / 60)
    try:
        return Schedule(
            at=datetime.strptime(form["content"], "%Y-%m-%dT%H:%M:%S")
            .replace(tzinfo=zone)
            .astimezone(UTC)
        )
    except ValueError as error:
        raise ScheduleError(f"{expression} names no time") from error


def _rate_seconds(content: str) -> float:
    rate = RATE.fullmatch(content)
    if rate is None or (rate["value"] == "1") == bool(rate["plural"]):
        raise ScheduleError(f"rate({content}) is no rate: 1 minute, 2 minutes, 1 hour, …")
    return int(rate["value"]) * UNIT_SECONDS[rate["unit"]]


def _zone(name: str | None) -> tzinfo:
    if name is None or name in ("UTC", "Etc/UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleError(f"{name} is no time zone that this machine knows") from error
