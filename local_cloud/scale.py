"""Weights and instance counts of a running endpoint's variants: what may be asked for, and how it
comes about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_cloud.aws_error import validation_error
from local_cloud.endpoint import Endpoint
from local_cloud.fleet import Fleet
from local_cloud.variant_fleet import VariantFleet


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A variant's wanted weight and instance count; None leaves it as it is."""

    weight: float | None = None
    count: int | None = None


def wanted_changes(asked: Sequence[Mapping[str, Any]]) -> Mapping[str, Wanted]:
    """What a request wants of each variant; one that it names twice is refused."""
    names = [str(each["VariantName"]) for each in asked]
    if len(set(names)) != len(names):
        raise validation_error(
            f"DesiredWeightsAndCapacities must name each variant once, found {', '.join(names)}."
        )
    return {
        name: Wanted(weight=each.get("DesiredWeight"), count=each.get("DesiredInstanceCount"))
        for name, each in zip(names, asked, strict=True)
    }


def check_wanted(endpoint: Endpoint, wanted: Mapping[str, Wanted]) -> None:
    """Refuses variants that are not there, and no instances behind an endpoint that answers at
    once.
    """
    if endpoint.traffic is None:
        raise validation_error(
            f'Cannot update endpoint "{endpoint.arn}" in status {endpoint.status}: it can only be deleted.'
        )
    known = _variants(endpoint.traffic.fleet)
    for name, each in wanted.items():
        if name not in known:
            raise validation_error(
                f'Could not find variant "{name}" of endpoint "{endpoint.arn}": it has {", ".join(known)}.'
            )
        if each.count == 0 and not endpoint.is_asynchronous:
            raise validation_error(
                f'DesiredInstanceCount of variant "{name}" must be greater than or equal to 1: '
                "only an asynchronous endpoint scales to zero."
            )


def scaled(endpoint: Endpoint, *, wanted: Mapping[str, Wanted]) -> None:
    """Starts and stops instances until the counts are as wanted, then sets the weights; one failure
    puts all counts back.
    """
    assert endpoint.traffic is not None
    variants = _variants(endpoint.traffic.fleet)
    before = {name: variants[name].desired for name in wanted}
    try:
        for name, each in wanted.items():
            _resize(variants[name], before[name] if each.count is None else each.count)
    except Exception:
        endpoint.become("RollingBack")
        for name, count in before.items():
            variants[name].desired = count
            variants[name].shrink()
        raise
    for name, each in wanted.items():
        if each.weight is not None:
            variants[name].weight = each.weight


def _resize(variant: VariantFleet, count: int) -> None:
    variant.desired = count
    variant.fill()
    variant.shrink()


def _variants(fleet: Fleet) -> Mapping[str, VariantFleet]:
    return {variant.name: variant for variant in fleet.variants}
