"""Rules of a rollout's time, and of the instance count that it begins with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from template_rules import hosting
from template_rules.endpoint_rules import ROUTING
from template_rules.finding import Problem
from template_rules.rule import rule
from template_rules.scaling_rules import TARGET, VARIANT_DIMENSIONS, variant_id
from template_rules.template import Template
from template_rules.values import at, boolean, fields, number, objects, text


@rule("RH152", "a rollout has the time that its own waits take")
def rollout_without_time(template: Template) -> Iterator[Problem]:
    for endpoint in template.of_type(hosting.ENDPOINT):
        update = fields(at(endpoint.properties, "DeploymentConfig", "BlueGreenUpdatePolicy"))
        routing = fields(at(endpoint.properties, *ROUTING))
        most = number(update.get("MaximumExecutionTimeoutInSeconds"))
        wait = number(routing.get("WaitIntervalInSeconds"))
        after = number(update.get("TerminationWaitInSeconds", 0))
        steps = _waits(routing)
        if most is None or wait is None or after is None or steps is None:
            continue
        waits = steps * wait + after
        if most <= waits:
            path = "DeploymentConfig.BlueGreenUpdatePolicy.MaximumExecutionTimeoutInSeconds"
            what = "the rollout is ended before its own waits are over"
            yield Problem(
                resource=endpoint.logical_id,
                path=path,
                what=what,
                value=f"{most:g} s",
                allowed=f"more than {waits:g} s",
                way_out="raise it, by the time too that new instances take to start",
            )


@rule("RH153", "an update keeps the count of a variant that is scaled", "warning")
def update_resets_count(template: Template) -> Iterator[Problem]:
    for target in template.of_type(TARGET):
        match = variant_id(target)
        endpoint = None if match is None else hosting.endpoint_named(template, match["endpoint"])
        if (
            endpoint is None
            or text(target.properties.get("ScalableDimension")) != VARIANT_DIMENSIONS[0]
        ):
            continue
        left_out = objects(endpoint.properties.get("ExcludeRetainedVariantProperties"))
        excluded = [
            index
            for index, each in left_out
            if text(each.get("VariantPropertyType")) == "DesiredInstanceCount"
        ]
        where = partial(
            Problem, resource=endpoint.logical_id, way_out="retain DesiredInstanceCount"
        )
        what = "an update begins with InitialInstanceCount again, however many instances are in use"
        if boolean(endpoint.properties.get("RetainAllVariantProperties", False)) is False:
            yield where(path="RetainAllVariantProperties", what=what, value="false", allowed="true")
        elif excluded:
            yield where(
                path=f"ExcludeRetainedVariantProperties[{excluded[0]}]",
                what=what,
                value="DesiredInstanceCount",
            )


@rule("RH154", "traffic that moves in steps waits between them", "warning")
def steps_without_wait(template: Template) -> Iterator[Problem]:
    for endpoint in template.of_type(hosting.ENDPOINT):
        routing = at(endpoint.properties, *ROUTING)
        if (
            text(fields(routing).get("Type")) in ("CANARY", "LINEAR")
            and "WaitIntervalInSeconds" not in routing
        ):
            path, what = (
                f"{'.'.join(ROUTING)}.WaitIntervalInSeconds",
                "UpdateEndpoint needs it, and no alarm has time without",
            )
            yield Problem(
                resource=endpoint.logical_id,
                path=path,
                what=what,
                allowed="0 to 3600",
                way_out="write how long",
            )


def _waits(routing: dict[str, object]) -> int | None:
    """How often a rollout waits; None when that is not known."""
    kind, size = text(routing.get("Type")), fields(routing.get("LinearStepSize"))
    if kind in ("ALL_AT_ONCE", "CANARY"):
        return 1
    share = number(size.get("Value"))
    if (
        kind == "LINEAR"
        and text(size.get("Type")) == "CAPACITY_PERCENT"
        and share is not None
        and 0 < share <= 100
    ):
        return math.ceil(100 / share)
    return None
