"""Rules of endpoints: instance types and pools, scaling and its schedules, variants and weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from zoneinfo import available_timezones

from onboarding.aws_limits import (
    REAL_TIME_SECONDS,
    VARIANT_COUNT,
)
from onboarding.document import KeyPath, Place
from onboarding.fault import Fault
from onboarding.nearest import comma_list, did_you_mean
from onboarding.platform import InstanceType, instance_types
from onboarding.rules.rule import EndpointCase, JoiningModel, ScalingCase, VariantsCase, rule

SCHEDULE = re.compile(r"cron\(.+\)|rate\([0-9]+ (minute|hour|day)s?\)|at\([0-9-]{10}T[0-9:]{8}\)")
CRON_FIELDS = "minutes, hours, day of the month, month, day of the week, year"


@cache
def time_zones() -> frozenset[str]:
    """Return every IANA time zone that this machine knows; none without time zone data."""
    return frozenset(available_timezones()) - {"Factory", "localtime"}


@rule("instance_type")
def instance_type_is_known(case: EndpointCase) -> Iterator[Fault]:
    """A type that has a row, so that its GPU is known."""
    if case.spec.instance_type not in instance_types():
        yield unknown_instance_type(case.document.at("instance_type"), case.spec.instance_type)


@rule("instance_pools")
def instance_pool_types_are_known(case: EndpointCase) -> Iterator[Fault]:
    """A type that has a row, so that its GPU is known."""
    for index, pool in enumerate(case.spec.instance_pools):
        if pool.instance_type not in instance_types():
            yield unknown_instance_type(
                case.document.at("instance_pools", index, "instance_type"), pool.instance_type
            )


@rule("instance_type", "instance_pools")
def instance_pool_types_are_distinct(case: EndpointCase) -> Iterator[Fault]:
    """A second pool of the same type adds no capacity."""
    seen = {case.spec.instance_type}
    for index, pool in enumerate(case.spec.instance_pools):
        if pool.instance_type in seen:
            path: KeyPath = ("instance_pools", index, "instance_type")
            yield case.document.at_change(path, ("instance_type",)).fault(
                f"'instance_pools[{index}].instance_type' is there already",
                value=pool.instance_type,
                allowed="each instance type once, the endpoint's own included",
                way_out="remove the pool, or choose another type",
            )
        seen.add(pool.instance_type)


@rule("instance_type", "instance_pools")
def instance_pools_are_of_one_kind(case: EndpointCase) -> Iterator[Fault]:
    """One container image serves every pool, and a GPU needs another one than a CPU."""
    own = instance_types().get(case.spec.instance_type)
    for index, pool in enumerate(case.spec.instance_pools):
        other = instance_types().get(pool.instance_type)
        if own is not None and other is not None and own.is_gpu != other.is_gpu:
            path: KeyPath = ("instance_pools", index, "instance_type")
            yield case.document.at_change(path, ("instance_type",)).fault(
                f"'instance_pools[{index}].instance_type' is {_kind(other)}, and the "
                f"endpoint's own {own.name} is {_kind(own)}",
                value=other.name,
                allowed=f"types of {'GPUs' if own.is_gpu else 'CPUs'}",
                way_out="choose another type, or serve the other kind as a model of its own "
                "that joins this one",
            )


@rule("instance_pools")
def instance_pools_hold_one_model(case: EndpointCase) -> Iterator[Fault]:
    """SageMaker has instance pools for single-model endpoints and inference components."""
    if case.multi_model and case.spec.instance_pools:
        yield case.document.at("instance_pools").fault(
            "a multi-model endpoint has no instance pools",
            way_out="remove them, or give each model an endpoint of its own",
        )


@rule("asynchronous")
def asynchronous_holds_one_model(case: EndpointCase) -> Iterator[Fault]:
    """A queued request names no target model."""
    if case.multi_model and case.spec.asynchronous is not None:
        yield case.document.at("asynchronous").fault(
            "a multi-model endpoint cannot be asynchronous",
            way_out="remove it, or give each model an endpoint of its own",
        )


@rule("latency_slo_ms", "asynchronous")
def slo_is_within_the_invocation_timeout(case: EndpointCase) -> Iterator[Fault]:
    """SageMaker ends a real-time invocation after 60 seconds: a later answer never arrives."""
    slo, most = case.spec.latency_slo_ms, 1000 * REAL_TIME_SECONDS
    if slo is not None and slo > most and case.spec.asynchronous is None:
        way_out = "lower it" if case.multi_model else "lower it, or add `asynchronous: {}`"
        yield case.document.at_change(("latency_slo_ms",), ("asynchronous",)).fault(
            f"'latency_slo_ms' is above the {REAL_TIME_SECONDS} seconds after which SageMaker "
            "ends a "
            "real-time invocation",
            value=f"{slo:g}",
            allowed=f"at most {most}",
            way_out=way_out,
        )


def unknown_instance_type(place: Place, name: str) -> Fault:
    """The fault of a type that has no row."""
    known = instance_types()
    family = [row for row in known if row.split(".")[1:2] == name.split(".")[1:2]]
    return place.fault(
        "unknown instance type",
        value=name,
        allowed=comma_list(family if family else known),
        way_out=did_you_mean(
            name,
            known,
            "choose a row of onboarding/data/instance_types.yaml, or add one with its source",
        ),
    )


def _kind(instance: InstanceType) -> str:
    return "a GPU" if instance.is_gpu else "a CPU"


@rule("scaling")
def scaling_is_ordered(case: ScalingCase) -> Iterator[Fault]:
    """Bounds are ordered: min <= max."""
    scaling = case.scaling
    if scaling.min > scaling.max:
        yield case.document.at_change(("scaling", "min"), ("scaling", "max"), ("scaling",)).fault(
            "'scaling.min' is above 'scaling.max'",
            value=scaling.min,
            allowed=f"at most {scaling.max}",
            way_out="lower min, or raise max",
        )


@rule("scaling")
def zero_instances_have_one_model(case: ScalingCase) -> Iterator[Fault]:
    """SageMaker scales inference components and queues to none, and both have one model."""
    least: list[tuple[str, KeyPath, int]] = [("scaling.min", ("scaling", "min"), case.scaling.min)]
    least += [
        (f"scaling.schedule[{index}].min", ("scaling", "schedule", index, "min"), floor.min)
        for index, floor in enumerate(case.scaling.schedule)
    ]
    for name, path, count in least:
        if count == 0 and case.of != "an endpoint of one model":
            yield case.document.at(*path).fault(
                f"'{name}' is 0, and {case.of} never scales to none: inference components and "
                "queues do, which have one model",
                allowed="1 or more",
                way_out="raise it to 1, or give the model an endpoint of its own",
            )


@rule("scaling", "asynchronous", "instance_pools", "data_capture")
def components_have_one_type_and_no_capture(case: EndpointCase) -> Iterator[Fault]:
    """A copy runs one engine, and what AWS captures of inference components is not documented."""
    spec = case.spec
    for key, is_given, reason in (
        ("instance_pools", spec.instance_pools, "whose copies run one engine"),
        ("data_capture", spec.data_capture, "which AWS documents no data capture of"),
    ):
        if is_given and spec.is_component and not case.multi_model:
            yield case.document.at_change((key,), ("scaling",)).fault(
                f"'{key}' stands beside a 'scaling' to none, which makes the model an inference "
                f"component, {reason}",
                way_out="take it out, raise scaling.min to 1, or add `asynchronous: {}`, whose "
                "queue holds the requests meanwhile",
            )


@rule("scaling")
def schedule_is_an_expression(case: ScalingCase) -> Iterator[Fault]:
    """The form alone: Application Auto Scaling judges the numbers when the stack is deployed."""
    for index, floor in enumerate(case.scaling.schedule):
        fields, wrong = len(floor.schedule.split()), None
        if SCHEDULE.fullmatch(floor.schedule) is None:
            wrong = "is no schedule expression"
        elif floor.schedule.startswith("cron") and fields != 6:
            wrong = f"has {fields} fields, and cron(…) has six: {CRON_FIELDS}"
        if wrong is not None:
            yield case.document.at("scaling", "schedule", index, "schedule").fault(
                f"'scaling.schedule[{index}].schedule' {wrong}",
                value=floor.schedule,
                allowed="cron(…), rate(…) or at(…), such as cron(0 6 ? * MON-FRI *), "
                "rate(2 hours), at(2027-01-31T06:00:00)",
                way_out="correct it",
            )


@rule("scaling")
def schedule_bounds_are_ordered(case: ScalingCase) -> Iterator[Fault]:
    """A floor above the ceiling that holds at that time."""
    for index, floor in enumerate(case.scaling.schedule):
        most = case.scaling.max if floor.max is None else floor.max
        if floor.min > most:
            named = "'scaling.max'" if floor.max is None else "its own max"
            path = ("scaling", "schedule", index, "min")
            yield case.document.at_change(path, ("scaling", "max")).fault(
                f"'scaling.schedule[{index}].min' is above {named}",
                value=floor.min,
                allowed=f"at most {most}",
                way_out="lower min, or give the schedule a `max:` of its own",
            )


@rule("scaling")
def time_zone_is_known(case: ScalingCase) -> Iterator[Fault]:
    """A name of the IANA data base; unchecked where this machine has no such data."""
    for index, floor in enumerate(case.scaling.schedule):
        if floor.timezone is not None and time_zones() and floor.timezone not in time_zones():
            yield case.document.at("scaling", "schedule", index, "timezone").fault(
                f"'scaling.schedule[{index}].timezone' is no IANA time zone",
                value=floor.timezone,
                allowed="names such as UTC, Europe/Berlin, America/New_York",
                way_out=did_you_mean(
                    floor.timezone,
                    sorted(time_zones()),
                    "choose one of the IANA data base, or leave it out for UTC",
                ),
            )


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


@rule("asynchronous", "scaling")
def queues_and_components_have_one_variant(case: VariantsCase) -> Iterator[Fault]:
    """SageMaker has neither shadow tests nor several variants for asynchronous endpoints.

    The variant of an inference component has no model that another could share its traffic with.
    """
    kind, way_out = "is asynchronous", f"take `asynchronous` out of {case.name}"
    if case.spec.is_component:
        kind, way_out = "scales to none", f"raise scaling.min of {case.name} to 1"
    for model in case.joined:
        if case.spec.asynchronous is not None or case.spec.is_component:
            yield model.document.at("endpoint", "joins").fault(
                f"'endpoint.joins' names {case.name}, whose endpoint {kind} and so has one variant",
                value=case.name,
                allowed="a model whose endpoint answers at once, and keeps an instance",
                way_out=f"describe an endpoint of the model's own, or {way_out}",
            )


def _role(model: JoiningModel) -> Place:
    return model.document.at("endpoint", "role")
