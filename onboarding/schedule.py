"""Schedule expressions as Application Auto Scaling takes them: cron(…), rate(…), at(…).

Sources: Application Auto Scaling `PutScheduledAction`; EventBridge, "Cron expressions reference".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from zoneinfo import available_timezones

from onboarding.nearest import nearest

EXAMPLES = "cron(0 6 ? * MON-FRI *), rate(2 hours), at(2027-01-31T06:00:00)"

_FORM = re.compile(r"(cron|rate|at)\((.*)\)")
_RATE = re.compile(r"([1-9][0-9]*) (minute|hour|day)(s?)")
_AT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_ABBREVIATIONS = {
    "Africa/Johannesburg": "SAST", "America/Chicago": "CT CST CDT", "America/Denver": "MT MDT",
    "America/New_York": "ET EDT", "America/Los_Angeles": "PT PST PDT", "America/Sao_Paulo": "BRT",
    "Asia/Hong_Kong": "HKT", "Asia/Kolkata": "IST", "Asia/Seoul": "KST", "Asia/Singapore": "SGT",
    "Asia/Tokyo": "JST", "Australia/Sydney": "AEST AEDT", "Europe/Athens": "EEST",
    "Europe/Berlin": "CEST MEZ MESZ", "Europe/Lisbon": "WEST", "Europe/London": "BST",
    "Europe/Moscow": "MSK", "Pacific/Auckland": "NZST NZDT", "UTC": "Z",
}  # fmt: skip
"""What people write for a zone whose summer time an abbreviation cannot follow."""
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, kw_only=True)
class _Field:
    """One field of a cron expression: bounds, words for numbers, and characters of its own."""

    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()
    marks: str = r"(?!)"
    open: bool = False
    """Whether it may say `?`: no particular one."""

    def takes(self, text: str) -> bool:
        """True when every part of a comma-separated list is a value, a range or a step."""
        return (self.open and text == "?") or all(
            self._takes_part(part) for part in text.upper().split(",")
        )

    def _takes_part(self, part: str) -> bool:
        if re.fullmatch(self.marks, part):
            return all(
                self.least <= int(number) <= self.most for number in re.findall(r"^[0-9]+", part)
            )
        span, slash, step = part.partition("/")
        if slash and not re.fullmatch(r"[1-9][0-9]{0,3}", step):
            return False
        return span == "*" or (
            span.count("-") <= 1 and all(self._is_value(value) for value in span.split("-"))
        )

    def _is_value(self, text: str) -> bool:
        return text in self.words or (
            re.fullmatch(r"[0-9]{1,4}", text) is not None and self.least <= int(text) <= self.most
        )


_FIELDS = (
    _Field(name="minutes", least=0, most=59),
    _Field(name="hours", least=0, most=23),
    _Field(name="day of the month", least=1, most=31, marks=r"L|LW|[0-9]{1,2}W", open=True),
    _Field(name="month", least=1, most=12, words=MONTHS),
    _Field(
        name="day of the week",
        least=1,
        most=7,
        words=DAYS,
        marks=rf"L|([1-7]|{'|'.join(DAYS)})(L|#[1-5])",
        open=True,
    ),
    _Field(name="year", least=1970, most=2199),
)


def schedule_fault(text: str) -> str | None:
    """What is wrong with a schedule expression, in a few words; None when nothing is."""
    form = _FORM.fullmatch(text)
    if form is None:
        return "is no schedule expression"
    kind, content = form.groups()
    return {"cron": _cron_fault, "rate": _rate_fault, "at": _at_fault}[kind](content)


@cache
def time_zones() -> frozenset[str]:
    """Every IANA time zone that this machine knows; none where it has no time zone data."""
    return frozenset(available_timezones()) - {"Factory", "localtime"}


def nearest_time_zone(text: str) -> str | None:
    """Return the IANA zone of an abbreviation, a city alone or a misspelling; None for others."""
    word = text.strip()
    for zone, abbreviations in _ABBREVIATIONS.items():
        if word.upper() in abbreviations.split():
            return zone
    places = sorted(zone for zone in time_zones() if "/" in zone)
    city = word.replace(" ", "_").lower()
    named = [
        zone for zone in places if zone.lower() == city or zone.rsplit("/", 1)[1].lower() == city
    ]
    return named[0] if named else nearest(word, [*places, "UTC"], cutoff=0.75)


def _cron_fault(content: str) -> str | None:
    fields = content.split()
    if len(fields) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        return f"has {len(fields)} fields, and cron(…) has six: {names}"
    for field, text in zip(_FIELDS, fields, strict=True):
        if not field.takes(text):
            bounds = f"{field.least} to {field.most}" + (
                f", or {field.words[0]} to {field.words[-1]}" if field.words else ""
            )
            return f"says {text} for the {field.name}, which takes {bounds}"
    return _day_fault(fields)


def _day_fault(fields: Sequence[str]) -> str | None:
    open_days = (fields[2] == "?") + (fields[4] == "?")
    return (
        None
        if open_days == 1
        else "must say ? for exactly one of the day of the month and the day of the week"
    )


def _rate_fault(content: str) -> str | None:
    rate = _RATE.fullmatch(content)
    if rate is None:
        return "is no rate: a whole number above 0, then minutes, hours or days"
    value, unit, plural = rate.groups()
    if (value == "1") == bool(plural):
        return f"says {content}, and {value} takes {unit}{'' if value == '1' else 's'}"
    return None


def _at_fault(content: str) -> str | None:
    try:
        is_time = _AT.fullmatch(content) is not None and datetime.fromisoformat(content) is not None
    except ValueError:
        is_time = False
    return None if is_time else "names no time: at(yyyy-mm-ddThh:mm:ss)"
