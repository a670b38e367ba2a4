"""Endpoints: a known instance type, ordered scaling."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.nearest import did_you_mean, listed
from onboarding.platform import instance_types
from onboarding.rules.rule import EndpointCase, rule


@rule("instance_type")
def instance_type_is_known(case: EndpointCase) -> Iterator[Fault]:
    """A type that has a row, so that its GPU is known."""
    name, known = case.spec.instance_type, instance_types()
    if name not in known:
        family = [row for row in known if row.split(".")[1:2] == name.split(".")[1:2]]
        yield case.document.at("instance_type").fault(
            "unknown instance type",
            value=name,
            allowed=listed(family if family else known),
            way_out=did_you_mean(name, known, "choose a row of onboarding/data/instance_types.yaml, or add one with its source"),
        )


@rule("scaling")
def scaling_is_ordered(case: EndpointCase) -> Iterator[Fault]:
    """min <= max."""
    scaling = case.spec.scaling
    if scaling.min > scaling.max:
        yield case.document.at_change(("scaling", "min"), ("scaling", "max"), ("scaling",)).fault(
            "'scaling.min' is above 'scaling.max'",
            value=scaling.min,
            allowed=f"at most {scaling.max}",
            way_out="lower min, or raise max",
        )


RULES = (instance_type_is_known, scaling_is_ordered)
