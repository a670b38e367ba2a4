"""What one instance of a variant costs."""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.deployment import Variant

WHERE = "prices of us-east-1"
"""Of onboarding/data/instance_types.yaml, whatever the region."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """USD an hour of one instance, of the cheapest and of the dearest of a variant's instance
    types.
    """

    least: float
    most: float


def instance_prices(variant: Variant) -> Prices | None:
    """None where the price of any of its instance types is not known: nobody can tell which of them
    it runs on.
    """
    prices = [pool.instance_type.usd_per_hour for pool in variant.pools]
    known = [price for price in prices if price is not None]
    return (
        Prices(least=min(known), most=max(known)) if known and len(known) == len(prices) else None
    )
