"""Schedule expressions as Application Auto Scaling takes them: cron(…), rate(…), at(…).

Sources: Application Auto Scaling `PutScheduledAction`; EventBridge, "Cron expressions reference".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from zoneinfo import available_timezones

EXAMPLES = "cron(0 6 ? * MON-FRI *), rate(2 hours), at(2027-01-31T06:00:00)"

_FORM = re.compile(r"(cron|rate|at)\((.*)\)")
_RATE = re.compile(r"([1-9][0-9]*) (minute|hour|day)(s?)")
_NUMBER = re.compile("[0-9]+")
_AT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


_FIELDS = (
    ("minutes", 0, 59, ()),
    ("hours", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of the week", 1, 7, DAYS),
    ("year", 1970, 2199, ()),
)
_PART = re.compile(r"(\*|[0-9]{1,4}(?:-[0-9]{1,4})?)(?:/[1-9][0-9]{0,3})?")
_OF_DAYS = {
    "day of the month": re.compile(r"L|LW|([0-9]{1,2})W"),
    "day of the week": re.compile(r"L|([0-9])(?:L|#[1-5])"),
}
"""Forms of a part that only these fields have beside `?`, no particular one."""


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


def _cron_fault(content: str) -> str | None:
    fields = content.split()
    if len(fields) != len(_FIELDS):
        names = ", ".join(name for name, *_ in _FIELDS)
        return f"has {len(fields)} fields, and cron(…) has six: {names}"
    for (name, least, most, words), text in zip(_FIELDS, fields, strict=True):
        if not _is_taken(text, name, range(least, most + 1), words):
            named = f", or {words[0]} to {words[-1]}" if words else ""
            return f"says {text} for the {name}, which takes {least} to {most}{named}"
    if (fields[2] == "?") == (fields[4] == "?"):
        return "must say ? for exactly one of the day of the month and the day of the week"
    return None


def _is_taken(text: str, name: str, bounds: range, words: Sequence[str]) -> bool:
    """True when every part of a comma-separated list is a value, a range or a step."""
    if text == "?":
        return name in _OF_DAYS
    text = text.upper()
    for number, word in enumerate(words, 1):
        text = text.replace(word, str(number))
    for part in text.split(","):
        form = _PART.fullmatch(part)
        if form is None and name in _OF_DAYS:
            form = _OF_DAYS[name].fullmatch(part)
        if form is None or any(int(n) not in bounds for n in _NUMBER.findall(form[1] or "")):
            return False
    return True


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
