"""When a scheduled action is due: at(…), rate(…) and cron(…) expressions; pure.

`at` and `cron` follow the wall clock of their time zone; a `rate` runs as fast as the local cloud's
time does.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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


MONTH_WORDS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAY_WORDS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (1, 7), (1970, 2199))
LONGEST_SEARCH_DAYS = 366 * 9
"""February 29 comes after eight years at most."""


class ScheduleError(Exception):
    """A schedule expression that cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Cron:
    """A cron expression, read.

    `days` and `weekdays` stay words because L, W and # depend on the month.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: tuple[str, ...]
    months: frozenset[int]
    weekdays: tuple[str, ...]
    years: frozenset[int]

    def next_after(self, after: datetime, zone: tzinfo) -> datetime | None:
        """The first time after a moment, in UTC; None where there is none.

        A local time that a clock change skips is left out.
        """
        for moment in self._moments(after.astimezone(zone).date(), zone):
            if moment > after:
                return moment
        return None

    def _moments(self, first: date, zone: tzinfo) -> Iterator[datetime]:
        years = [year for year in self.years if year >= first.year]
        if not years:
            return
        first = max(first, date(min(years), 1, 1))
        for number in range(LONGEST_SEARCH_DAYS):
            day = first + timedelta(days=number)
            if self._has(day):
                yield from sorted(self._of_day(day, zone))

    def _of_day(self, day: date, zone: tzinfo) -> Iterator[datetime]:
        for hour in self.hours:
            for minute in self.minutes:
                local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                moment = local.astimezone(UTC)
                if moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
                    yield moment

    def _has(self, day: date) -> bool:
        if day.year not in self.years or day.month not in self.months:
            return False
        return any(_is_day(part, day) for part in self.days) and any(
            _is_weekday(part, day) for part in self.weekdays
        )


def cron(text: str) -> Cron:
    """Reads the six fields of a cron expression. Raises ScheduleError."""
    fields = text.upper().split()
    if len(fields) != 6:
        raise ScheduleError(f"cron takes six fields, found {len(fields)}")
    if (fields[2] == "?") == (fields[4] == "?"):
        raise ScheduleError(
            "cron takes ? for the day of the month or the day of the week, and for one of them only"
        )
    try:
        return Cron(
            minutes=_numbers(fields[0], 0),
            hours=_numbers(fields[1], 1),
            days=_parts(fields[2], 2),
            months=_numbers(_replace_names(fields[3], MONTH_WORDS), 3),
            weekdays=_parts(_replace_names(fields[4], DAY_WORDS), 4),
            years=_numbers(fields[5], 5),
        )
    except ValueError as error:
        raise ScheduleError(f"cron({text}) cannot be read: {error}") from error


def _replace_names(field: str, words: Sequence[str]) -> str:
    for number, word in enumerate(words, 1):
        field = field.replace(word, str(number))
    return field


def _parts(field: str, place: int) -> tuple[str, ...]:
    """A day field's parts: numbers stand alone, marks stay; a lone ? or * is every day."""
    found: list[str] = []
    for part in field.split(","):
        marked = part in ("?", "*", "L", "LW") or part[-1] in "WL" or "#" in part
        found.extend(
            [part] if marked else [str(number) for number in sorted(_numbers(part, place))]
        )
        if marked and part not in ("?", "*", "L", "LW"):
            _check_number(int(part.rstrip("WL").partition("#")[0]), place)
    return tuple(found)


def _numbers(field: str, place: int) -> frozenset[int]:
    low, high = RANGES[place]
    found: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        begin = low if span == "*" else _check_number(int(first), place)
        end = (
            high
            if span == "*" or (slash and not dash)
            else _check_number(int(last), place)
            if dash
            else begin
        )
        if begin > end or (slash and int(step) < 1):
            raise ValueError(f"{part} is no range")
        found.update(range(begin, end + 1, int(step) if slash else 1))
    return frozenset(found)


def _check_number(number: int, place: int) -> int:
    low, high = RANGES[place]
    if not low <= number <= high:
        raise ValueError(f"{number} is not within {low} to {high}")
    return number


def _is_day(part: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if part in ("?", "*"):
        return True
    if part == "L":
        return day.day == last
    if part == "LW" or part.endswith("W"):
        return day.day == _nearest_weekday(day, last if part == "LW" else int(part[:-1]), last)
    return day.day == int(part)


def _nearest_weekday(day: date, number: int, last: int) -> int:
    """The Monday to Friday nearest to a day, within its month."""
    number = min(number, last)
    weekday = day.replace(day=number).weekday()
    if weekday == 5:
        return number - 1 if number > 1 else number + 2
    if weekday == 6:
        return number + 1 if number < last else number - 2
    return number


def _is_weekday(part: str, day: date) -> bool:
    weekday = day.isoweekday() % 7 + 1
    if part in ("?", "*"):
        return True
    if part == "L":
        return weekday == 7
    if part.endswith("L"):
        return (
            weekday == int(part[:-1]) and day.day > calendar.monthrange(day.year, day.month)[1] - 7
        )
    number, mark, turn = part.partition("#")
    return weekday == int(number) and (not mark or (day.day - 1) // 7 + 1 == int(turn))
