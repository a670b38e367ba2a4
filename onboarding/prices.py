"""What AWS charges, by region: rows of onboarding/data/prices.yaml; None is "unknown", never 0."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal

from pydantic import Field

from onboarding.values import Value
from onboarding.yaml_text import load_yaml

PRICES_FILE = "prices.yaml"
HOURS_A_MONTH = 730
"""As AWS's own calculators count them."""

Purpose = Literal["hosting", "training", "codebuild"]


class RegionPrices(Value):
    """One region's prices in USD: an hour of an instance, a minute of a CodeBuild build."""

    date: str
    source: str
    hosting: dict[str, float] = Field(default_factory=dict)
    training: dict[str, float] = Field(default_factory=dict)
    codebuild: dict[str, float] = Field(default_factory=dict)


class PriceList(Value):
    """The whole price file."""

    regions: dict[str, RegionPrices]


@cache
def price_list() -> PriceList:
    """Return the prices that are shipped or were last updated."""
    text = resources.files("onboarding.data").joinpath(PRICES_FILE).read_text(encoding="utf-8")
    return PriceList.model_validate(load_yaml(text))


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
