"""Rules of the variants of one endpoint."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.aws_limits import LEAST_WEIGHT, VARIANT_COUNT
from onboarding.document import Place
from onboarding.fault import Fault
from onboarding.nearest import comma_list
from onboarding.rules.rule import JoiningModel, VariantsCase, rule, rules_of


@rule()
def variants_are_at_most_ten(case: VariantsCase) -> Iterator[Fault]:
    """SageMaker's limit of an endpoint config."""
    for model in case.sharing[VARIANT_COUNT - 1 :]:
        yield model.document.at("endpoint", "joins").fault(
            f"'endpoint.joins' makes more than {VARIANT_COUNT} variants behind endpoint "
            f"{case.name}",
            value=case.name,
            allowed=f"{VARIANT_COUNT - 1} models that join, since the endpoint's own counts",
            way_out="describe an endpoint of the model's own, or take another model out",
        )


@rule()
def shadow_is_alone(case: VariantsCase) -> Iterator[Fault]:
    """SageMaker takes one shadow, beside one production variant."""
    for model in case.shadows[1:]:
        yield _role(model).fault(
            f"a second shadow of endpoint {case.name}, beside {case.shadows[0].name}",
            value="role: shadow",
            allowed="one shadow",
            way_out="take one of the two out",
        )
    if case.shadows and case.sharing:
        beside = comma_list(model.name for model in case.sharing)
        yield _role(case.shadows[0]).fault(
            f"a shadow of endpoint {case.name}, where {beside} takes a share of the traffic",
            value="role: shadow",
            allowed="a shadow beside the endpoint's own model alone",
            way_out="take either the shadow or the other variants out",
        )


@rule("rollout")
def rolling_has_one_variant(case: VariantsCase) -> Iterator[Fault]:
    """SageMaker's rolling deployments exclude endpoints of several variants."""
    if case.spec.rollout == "rolling" and case.joined:
        yield case.document.at("rollout").fault(
            "'endpoint.rollout' rolling takes one variant, and "
            f"{comma_list(model.name for model in case.joined)} joins",
            value="rolling",
            allowed="canary, linear, all-at-once",
            way_out="choose one of these, or give the other models endpoints of their own",
        )


@rule("weight")
def some_variant_has_weight(case: VariantsCase) -> Iterator[Fault]:
    """Some variant has a weight above 0."""
    if case.spec.weight == 0 and all(model.spec.weight == 0 for model in case.sharing):
        variants = (
            "variant"
            if not case.sharing
            else f"variants, {comma_list(model.name for model in case.sharing)} included,"
        )
        yield case.document.at("weight").fault(
            f"every weight of endpoint {case.name}'s {variants} is 0, so nothing answers",
            allowed="a weight above 0 for at least one",
            way_out="raise one of the weights",
        )


@rule("weight")
def weights_are_not_next_to_nothing(case: VariantsCase) -> Iterator[Fault]:
    """SageMaker takes 32 bits of a weight: 1.0e-50 is 0 there."""
    places = [(case.spec.weight, case.document.at("weight"))]
    places += [
        (model.spec.weight, model.document.at("endpoint", "weight")) for model in case.joined
    ]
    for weight, place in places:
        if 0 < weight < LEAST_WEIGHT:
            yield place.fault(
                f"'endpoint.weight' behind endpoint {case.name} is next to nothing",
                value=f"{weight:g}",
                allowed=f"0, or {LEAST_WEIGHT} to 1000",
                way_out="write 0, or raise every weight in proportion",
            )


@rule("weight")
def shadow_gets_no_more_than_there_is(case: VariantsCase) -> Iterator[Fault]:
    """A shadow gets its weight's share of the endpoint's own weight, at most all of it."""
    for model in case.shadows:
        if model.spec.weight > case.spec.weight > 0:
            yield model.document.at_change(("endpoint", "weight"), ("endpoint",)).fault(
                f"'endpoint.weight' of a shadow is above that of {case.name}, which is all of "
                "the traffic",
                value=f"{model.spec.weight:g}",
                allowed=f"at most {case.spec.weight:g}",
                way_out="lower it: its share of the other weight is the share of requests that "
                "is copied",
            )


@rule("asynchronous")
def asynchronous_has_one_variant(case: VariantsCase) -> Iterator[Fault]:
    """SageMaker has neither shadow tests nor several variants for asynchronous endpoints."""
    if case.spec.asynchronous is not None:
        for model in case.joined:
            yield model.document.at("endpoint", "joins").fault(
                f"'endpoint.joins' names {case.name}, whose endpoint is asynchronous and so "
                "has one variant",
                value=case.name,
                allowed="a model whose endpoint answers at once",
                way_out="describe an endpoint of the model's own, or take `asynchronous` out "
                f"of {case.name}",
            )


def _role(model: JoiningModel) -> Place:
    return model.document.at("endpoint", "role")


RULES = rules_of(globals())
