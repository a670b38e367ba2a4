"""Endpoints: known instance types, pools in one order, features that SageMaker has together."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.aws_limits import INSTANCE_POOL_COUNT, REAL_TIME_SECONDS
from onboarding.deployment import pool_priorities
from onboarding.document import KeyPath, Place
from onboarding.fault import Fault
from onboarding.nearest import comma_list, did_you_mean
from onboarding.platform import InstanceType, instance_types
from onboarding.rules.rule import EndpointCase, rule, rules_of


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
def instance_pool_priorities_are_distinct(case: EndpointCase) -> Iterator[Fault]:
    """Two types of one priority have no order; the endpoint's own type is always 1."""
    (own, _), *pools = pool_priorities(case.spec)
    seen = {own: "the endpoint's own instance type"}
    for index, (priority, name) in enumerate(pools):
        place = case.document.at("instance_pools", index, "priority")
        if priority > INSTANCE_POOL_COUNT:
            yield place.fault(
                f"'instance_pools[{index}]' comes after a pool of priority "
                f"{INSTANCE_POOL_COUNT}, the last there is",
                allowed=f"2 to {INSTANCE_POOL_COUNT}",
                way_out="lower the priority of the pools before it",
            )
        elif priority in seen:
            yield place.fault(
                f"'instance_pools[{index}].priority' is that of {seen[priority]}",
                value=priority,
                allowed=f"2 to {INSTANCE_POOL_COUNT}, each once",
                way_out="choose another, or leave every priority out: the order as written holds",
            )
        seen.setdefault(priority, name)


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


@rule("metrics", "instance_type")
def gpu_limits_have_gpus_and_metrics(case: EndpointCase) -> Iterator[Fault]:
    """Without detailed observability, or without a GPU, such an alarm would watch nothing."""
    metrics, instance = case.spec.metrics, instance_types().get(case.spec.instance_type)
    if metrics is None or not metrics.gpu_limits:
        return
    place = case.document.at_change(("metrics", "gpu_limits"), ("instance_type",))
    if metrics.detailed is not True:
        yield place.fault(
            "'metrics.gpu_limits' needs SageMaker's detailed observability",
            value=f"detailed: {str(metrics.detailed).lower()}",
            allowed="detailed: true",
            way_out="add `detailed: true`, or take the limits out",
        )
    if instance is not None and not instance.is_gpu:
        yield place.fault(
            f"'metrics.gpu_limits' is of GPUs, and {instance.name} has none",
            value=", ".join(metrics.gpu_limits),
            way_out="take it out, or override it in the files of the environments that serve "
            "from GPUs",
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


RULES = rules_of(globals())
