"""The times at which a schedule is due: at(…), rate(…) and cron(…) expressions; pure."""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from onboarding.schedule import DAYS, EXAMPLES, MONTHS, schedule_fault

UNIT_MINUTES = {"minute": 1, "hour": 60, "day": 1440}
LONGEST_SEARCH_DAYS = 366 * 9
"""February 29 comes after eight years at most."""
DAY_RANGE, WEEKDAY_RANGE = (1, 31), (1, 7)


class ScheduleError(Exception):
    """A schedule expression that cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One of: a moment, an interval, a cron expression in a time zone."""

    at: datetime | None = None
    interval: timedelta | None = None
    cron: Cron | None = None
    zone: tzinfo = UTC

    def next_after(self, after: datetime, begun: datetime) -> datetime | None:
        """Return when it is next due after a moment, if ever; an interval counts from `begun`."""
        if self.cron is not None:
            return self.cron.next_after(after, self.zone)
        if self.interval is not None:
            return begun + self.interval * (max(0, (after - begun) // self.interval) + 1)
        return self.at if self.at is not None and self.at > after else None


def schedule(expression: str, timezone: str | None = None) -> Schedule:
    """Read a schedule expression; default time zone: UTC. Raises ScheduleError."""
    expression = expression.strip()
    fault = schedule_fault(expression)
    if fault is not None:
        raise ScheduleError(f"{expression} {fault}; examples: {EXAMPLES}")
    try:
        zone = UTC if timezone in (None, "UTC", "Etc/UTC") else ZoneInfo(str(timezone))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleError(f"{timezone} is no time zone that this machine knows") from error
    kind, _, content = expression.removesuffix(")").partition("(")
    if kind == "cron":
        return Schedule(cron=_cron(content), zone=zone)
    if kind == "at":
        moment = datetime.fromisoformat(content).replace(tzinfo=zone)
        return Schedule(at=moment.astimezone(UTC))
    value, unit = content.removesuffix("s").split()
    return Schedule(interval=timedelta(minutes=int(value) * UNIT_MINUTES[unit]))


@dataclass(frozen=True, kw_only=True)
class Cron:
    """A cron expression; days and weekdays stay text because L, W and # depend on the month."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: tuple[str, ...]
    months: frozenset[int]
    weekdays: tuple[str, ...]
    years: frozenset[int]

    def next_after(self, after: datetime, zone: tzinfo) -> datetime | None:
        """Return the first time after a moment, in UTC; None where there is none.

        A local time that a clock change skips is left out.
        """
        first = after.astimezone(zone).date()
        years = [year for year in self.years if year >= first.year]
        if not years:
            return None
        first = max(first, date(min(years), 1, 1))
        days = (first + timedelta(days=number) for number in range(LONGEST_SEARCH_DAYS))
        moments = (
            moment
            for day in days
            if self._includes(day)
            for moment in sorted(self._moments(day, zone))
        )
        return next((moment for moment in moments if moment > after), None)

    def _includes(self, day: date) -> bool:
        return (
            day.year in self.years
            and day.month in self.months
            and any(_is_day(part, day) for part in self.days)
            and any(_is_weekday(part, day) for part in self.weekdays)
        )

    def _moments(self, day: date, zone: tzinfo) -> Iterator[datetime]:
        for hour in self.hours:
            for minute in self.minutes:
                local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                moment = local.astimezone(UTC)
                if moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
                    yield moment


def _cron(text: str) -> Cron:
    minutes, hours, days, months, weekdays, years = text.upper().split()
    for number, word in enumerate(MONTHS, 1):
        months = months.replace(word, str(number))
    for number, word in enumerate(DAYS, 1):
        weekdays = weekdays.replace(word, str(number))
    return Cron(
        minutes=_numbers(minutes, 0, 59),
        hours=_numbers(hours, 0, 23),
        days=_day_parts(days, *DAY_RANGE),
        months=_numbers(months, 1, 12),
        weekdays=_day_parts(weekdays, *WEEKDAY_RANGE),
        years=_numbers(years, 1970, 2199),
    )


def _day_parts(field: str, low: int, high: int) -> tuple[str, ...]:
    """Split a day field; refuse a range that runs backwards."""
    parts = tuple(field.split(","))
    for part in parts:
        if part[-1] not in "LW" and "#" not in part:
            _numbers(part, low, high)
    return parts


@cache
def _numbers(field: str, low: int, high: int) -> frozenset[int]:
    numbers: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        begin = low if span in ("*", "?") else int(first)
        open_end = span in ("*", "?") or (slash and not dash)
        end = high if open_end else int(last or first)
        if begin > end:
            raise ScheduleError(f"{part} is no range")
        numbers.update(range(begin, end + 1, int(step or 1)))
    return frozenset(numbers)


def _is_day(part: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if part == "L":
        return day.day == last
    if part.endswith("W"):
        return day.day == _nearest_weekday(day, last if part == "LW" else int(part[:-1]), last)
    return day.day in _numbers(part, *DAY_RANGE)


def _nearest_weekday(day: date, number: int, last: int) -> int:
    """Return the Monday to Friday nearest to a day, within its month."""
    number = min(number, last)
    weekday = day.replace(day=number).weekday()
    if weekday == 5:
        return number - 1 if number > 1 else number + 2
    if weekday == 6:
        return number + 1 if number < last else number - 2
    return number


def _is_weekday(part: str, day: date) -> bool:
    weekday = day.isoweekday() % 7 + 1
    if part == "L":
        return weekday == 7
    if part.endswith("L"):
        in_last_week = day.day > calendar.monthrange(day.year, day.month)[1] - 7
        return weekday == int(part[:-1]) and in_last_week
    number, mark, turn = part.partition("#")
    if mark:
        return weekday == int(number) and (day.day - 1) // 7 + 1 == int(turn)
    return weekday in _numbers(part, *WEEKDAY_RANGE)
