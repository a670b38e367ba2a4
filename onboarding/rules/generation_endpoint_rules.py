"""Rules of a text generator's endpoint: copies, routing, times to start."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.rules.generation_case import GenerationCase
from onboarding.rules.rule import rule, rules_of

LOAD_SECONDS_A_GIB, COMPILE_SECONDS = 1.0, 60.0
"""Assumed of a start: an 8B shape took 80 s on an H200, a 70B shape on two 113 s."""
SAFETY = 2.0
GIB = 1 << 30


@rule("endpoint")
def copies_are_possible(case: GenerationCase) -> Iterator[Fault]:
    """Fewest and most agree, and only inference components scale to no copy."""
    copies, kind = case.spec.endpoint.copies, case.spec.endpoint.kind
    if copies.min > copies.max:
        yield case.document.at("endpoint", "copies", "min").fault(
            "'endpoint.copies.min' is above 'endpoint.copies.max'",
            value=copies.min,
            allowed=f"at most {copies.max}",
            way_out="lower min, or raise max",
        )
    if copies.zero and kind != "inference-component":
        yield case.document.at("endpoint", "copies", "zero").fault(
            "only inference components scale to no copy",
            value="true",
            allowed="endpoint.kind: inference-component",
            way_out="change the kind, or take `zero` out",
        )
    if copies.zero != (copies.min == 0):
        yield case.document.at("endpoint", "copies", "min").fault(
            "'endpoint.copies.min' and 'zero' contradict each other",
            value=copies.min,
            allowed="min: 0 with zero: true, or min: 1 or more without",
            way_out="change one of the two",
        )


@rule("endpoint")
def routing_is_cloudformations(case: GenerationCase) -> Iterator[Fault]:
    """CloudFormation's RoutingConfig does not know every strategy of the API."""
    if case.spec.endpoint.routing == "kv-aware":
        yield case.document.at("endpoint", "routing").fault(
            "'endpoint.routing' kv-aware is not in CloudFormation's schema",
            value="kv-aware",
            allowed="least-outstanding, random, prefix-aware",
            way_out="choose prefix-aware, which keeps prompts of one beginning together",
        )


@rule("source", "endpoint")
def time_to_start_is_enough(case: GenerationCase) -> Iterator[Fault]:
    """An endpoint that is given up while it loads was paid for and answers nothing."""
    if case.headers is None:
        return
    given, size = case.spec.endpoint.start_up_seconds, case.headers.bytes / GIB
    seconds = SAFETY * (size * LOAD_SECONDS_A_GIB + COMPILE_SECONDS)
    if given < seconds:
        yield case.document.at("endpoint", "start_up_seconds").fault(
            "'endpoint.start_up_seconds' is less than twice what a checkpoint of "
            f"{size:.1f} GiB is expected to take",
            value=given,
            allowed=f"{seconds:.0f} or more",
            way_out="raise it, or serve a smaller checkpoint",
        )


RULES = rules_of(globals())
