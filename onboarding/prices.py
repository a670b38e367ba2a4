"""What AWS charges, by region: rows of onboarding/data/prices.yaml; None is "unknown", never 0."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError

from onboarding.fault import Fault, FaultsError
from onboarding.values import Value
from onboarding.yaml_text import load_yaml

PRICES_FILE = "prices.yaml"
SHOWN_PATH = f"onboarding/data/{PRICES_FILE}"
HOURS_A_MONTH = 730
"""As AWS's own calculators count them."""

STALE_DAYS = 90
"""AWS changes prices a few times a year."""

Purpose = Literal["hosting", "training", "codebuild"]
Rows = dict[str, Annotated[float, Field(gt=0)]]


class PriceTable(Value):
    """Prices of a region by one source in USD: an instance's hour, a minute of a CodeBuild build.

    `date`: when AWS's list, or a bill, said so.
    """

    date: datetime.date
    source: str
    hosting: Rows = Field(default_factory=dict)
    training: Rows = Field(default_factory=dict)
    codebuild: Rows = Field(default_factory=dict)


class PriceList(Value):
    """The whole price file: of a row that several tables of a region have, the newest counts."""

    regions: dict[str, tuple[PriceTable, ...]]


@cache
def price_list() -> PriceList:
    """Return the prices that are shipped or were last updated. Raises FaultsError."""
    try:
        text = resources.files("onboarding.data").joinpath(PRICES_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FaultsError([_fault(f"cannot be read: {error}")]) from error
    return parse_prices(text)


def parse_prices(text: str) -> PriceList:
    """Return the prices of a price file. Raises FaultsError, naming the key."""
    try:
        return PriceList.model_validate_json(json.dumps(load_yaml(text), default=str))
    except ValidationError as error:
        faults = [
            _fault(f"{'.'.join(map(str, item['loc']))}: {item['msg']}")
            for item in error.errors(include_url=False)
        ]
        raise FaultsError(faults) from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise FaultsError([_fault(f"is no YAML: {error}")]) from error


def _fault(what: str) -> Fault:
    way_out = "correct it, or restore the file from git"
    return Fault(file=SHOWN_PATH, what=what, way_out=way_out)


def price_table(region: str, purpose: Purpose, name: str) -> PriceTable | None:
    """Return the newest table that has a row; None: the region has no row of it."""
    tables = price_list().regions.get(region, ())
    having = [table for table in tables if name in getattr(table, purpose)]
    return max(having, key=lambda table: table.date, default=None)


def price(region: str, purpose: Purpose, name: str) -> float | None:
    """Return what an instance type costs an hour, or a CodeBuild host a minute, in USD.

    None: the region has no row of it.
    """
    table = price_table(region, purpose, name)
    if table is None:
        return None
    rows: dict[str, float] = getattr(table, purpose)
    return rows[name]


def prices_date(region: str, instance_types: Iterable[str]) -> str | None:
    """Return the oldest date of these types' hosting prices; None where none has a price."""
    tables = (price_table(region, "hosting", name) for name in instance_types)
    dates = [table.date for table in tables if table is not None]
    return min(dates).isoformat() if dates else None


def stale_note(prices_date: str | None, today: datetime.date | None = None) -> str | None:
    """Return a sentence on prices that are more than STALE_DAYS old; None: they are not.

    `today`: default that of UTC.
    """
    if prices_date is None:
        return None
    today = datetime.datetime.now(datetime.UTC).date() if today is None else today
    age = (today - datetime.date.fromisoformat(prices_date)).days
    if age <= STALE_DAYS:
        return None
    return (
        f"Prices of {prices_date} are {age} days old, more than {STALE_DAYS}: `make prices` reads "
        "AWS's list."
    )
