"""What AWS charges, by region: rows of onboarding/data/prices.yaml; None is "unknown", never 0."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError

from onboarding.fault import Fault, FaultsError
from onboarding.values import Value
from onboarding.yaml_text import compose_yaml, load_yaml

PRICES_FILE = "prices.yaml"
SHOWN_PATH = f"onboarding/data/{PRICES_FILE}"
HOURS_A_MONTH = 730
"""As AWS's own calculators count them."""

Purpose = Literal["hosting", "training", "codebuild"]
Rows = dict[str, Annotated[float, Field(gt=0)]]


class RegionPrices(Value):
    """One region's prices in USD: an hour of an instance, a minute of a CodeBuild build."""

    date: str
    source: str
    hosting: Rows = Field(default_factory=dict)
    training: Rows = Field(default_factory=dict)
    codebuild: Rows = Field(default_factory=dict)


class PriceList(Value):
    """The whole price file."""

    regions: dict[str, RegionPrices]


@cache
def price_list() -> PriceList:
    """Return the prices that are shipped or were last updated. Raises FaultsError."""
    try:
        text = resources.files("onboarding.data").joinpath(PRICES_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FaultsError([_fault(f"cannot be read: {error}")]) from error
    return parse_prices(text)


def parse_prices(text: str) -> PriceList:
    """Return the prices of a price file. Raises FaultsError, naming the line."""
    try:
        return PriceList.model_validate(load_yaml(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = None if mark is None else mark.line + 1
        raise FaultsError([_fault(f"is no YAML: {error.problem}", line)]) from error
    except ValidationError as error:
        faults = [
            _fault(f"{'.'.join(map(str, item['loc']))}: {item['msg']}", _line(text, item["loc"]))
            for item in error.errors(include_url=False)
        ]
        raise FaultsError(faults) from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise FaultsError([_fault(f"is no YAML: {error}")]) from error


def _fault(what: str, line: int | None = None) -> Fault:
    way_out = "correct it, or restore the file from git"
    return Fault(file=SHOWN_PATH, line=line, what=what, way_out=way_out)


def _line(text: str, path: Sequence[str | int]) -> int | None:
    """Return the line of a key, or of the last one above it that is there."""
    node, line = compose_yaml(text), None
    for step in path:
        if not isinstance(node, yaml.MappingNode):
            break
        found = next((pair for pair in node.value if pair[0].value == str(step)), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def price(region: str, purpose: Purpose, name: str) -> float | None:
    """Return what an instance type costs an hour, or a CodeBuild host a minute, in USD.

    None: the region has no row of it.
    """
    prices = price_list().regions.get(region)
    if prices is None:
        return None
    rows: dict[str, float] = getattr(prices, purpose)
    return rows.get(name)


def prices_date(region: str) -> str | None:
    """Return the date of a region's prices; None where there are none."""
    prices = price_list().regions.get(region)
    return None if prices is None else prices.date
