"""Rules of endpoints: instance types and pools, scaling and its schedules, variants and weights."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.aws_limits import REAL_TIME_SECONDS
from onboarding.document import Place
from onboarding.fault import Fault, comma_list, did_you_mean
from onboarding.model_spec import EndpointSpec, JoinSpec, ModelSpec, SharedEndpointSpec
from onboarding.platform import InstanceType, instance_types
from onboarding.validation import Checked


def instance_types_are_known_and_of_one_kind(endpoint: Checked[EndpointSpec]) -> Iterator[Fault]:
    """A type has a row, so that its GPU is known.

    A type twice adds no capacity; one image serves every pool, of GPUs or of CPUs.
    """
    own = instance_types().get(endpoint.spec.instance_type)
    seen = {endpoint.spec.instance_type}
    if own is None:
        yield unknown_instance_type(endpoint.at("instance_type"), endpoint.spec.instance_type)
    for index, pool in enumerate(endpoint.spec.instance_pools):
        path = f"instance_pools[{index}].instance_type"
        other = instance_types().get(pool.instance_type)
        if other is None:
            yield unknown_instance_type(endpoint.at(path), pool.instance_type)
        if pool.instance_type in seen:
            yield endpoint.fault(
                path,
                "is there already",
                allowed="each instance type once, the endpoint's own included",
                way_out="remove the pool, or choose another type",
                beside=["instance_type"],
            )
        seen.add(pool.instance_type)
        if own is not None and other is not None and own.is_gpu != other.is_gpu:
            yield endpoint.fault(
                path,
                f"is {_kind(other)}, and the endpoint's own {own.name} is {_kind(own)}",
                allowed=f"types of {'GPUs' if own.is_gpu else 'CPUs'}",
                way_out="choose another type, or serve the other kind as a model of its own "
                "that joins this one",
                beside=["instance_type"],
            )


def instance_pools_hold_one_model(endpoint: Checked[EndpointSpec]) -> Iterator[Fault]:
    """SageMaker has instance pools for single-model endpoints and inference components."""
    if isinstance(endpoint.spec, SharedEndpointSpec) and endpoint.spec.instance_pools:
        yield endpoint.at("instance_pools").fault(
            "a multi-model endpoint has no instance pools",
            way_out="remove them, or give each model an endpoint of its own",
        )


def requests_are_answered_in_time(endpoint: Checked[EndpointSpec]) -> Iterator[Fault]:
    """A queued request names no target model, and SageMaker ends a real-time one after 60 s."""
    is_shared = isinstance(endpoint.spec, SharedEndpointSpec)
    if is_shared and endpoint.spec.asynchronous is not None:
        yield endpoint.at("asynchronous").fault(
            "a multi-model endpoint cannot be asynchronous",
            way_out="remove it, or give each model an endpoint of its own",
        )
    slo, most = endpoint.spec.latency_slo_ms, 1000 * REAL_TIME_SECONDS
    if slo is not None and slo > most and endpoint.spec.asynchronous is None:
        yield endpoint.fault(
            "latency_slo_ms",
            f"is above the {REAL_TIME_SECONDS} seconds after which SageMaker ends a real-time "
            "invocation",
            allowed=f"at most {most}",
            way_out="lower it" if is_shared else "lower it, or add `asynchronous: {}`",
            beside=["asynchronous"],
        )


def scaling_is_ordered(endpoint: Checked[EndpointSpec] | Checked[JoinSpec]) -> Iterator[Fault]:
    """Bounds are ordered, those of schedules too: min <= max."""
    scaling = endpoint.spec.scaling
    if scaling is None:
        return
    if scaling.min > scaling.max:
        yield endpoint.fault(
            "scaling.min",
            "is above 'scaling.max'",
            allowed=f"at most {scaling.max}",
            way_out="lower min, or raise max",
            beside=["scaling.max", "scaling"],
        )
    for index, floor in enumerate(scaling.schedule):
        most = scaling.max if floor.max is None else floor.max
        if floor.min > most:
            yield endpoint.fault(
                f"scaling.schedule[{index}].min",
                "is above 'scaling.max'" if floor.max is None else "is above its own max",
                allowed=f"at most {most}",
                way_out="lower min, or give the schedule a `max:` of its own",
                beside=["scaling.max"],
            )


def zero_instances_have_one_model(
    endpoint: Checked[EndpointSpec] | Checked[JoinSpec],
) -> Iterator[Fault]:
    """SageMaker scales inference components and queues to none, and both have one model."""
    spec, scaling = endpoint.spec, endpoint.spec.scaling
    if isinstance(spec, SharedEndpointSpec):
        kind = "a multi-model endpoint"
    elif isinstance(spec, JoinSpec):
        kind = "a model that joins another"
    else:
        return
    rows = enumerate(() if scaling is None else scaling.schedule)
    floors = {f"scaling.schedule[{index}].min": row.min for index, row in rows}
    own = {} if scaling is None else {"scaling.min": scaling.min}
    for path in [path for path, least in {**own, **floors}.items() if least == 0]:
        yield endpoint.at(path).fault(
            f"'{path}' is 0, and {kind} never scales to none: inference components and queues do, "
            "which have one model",
            allowed="1 or more",
            way_out="raise it to 1, or give the model an endpoint of its own",
        )


def components_have_one_type_and_no_capture(endpoint: Checked[EndpointSpec]) -> Iterator[Fault]:
    """A copy runs one engine, and what AWS captures of inference components is not documented."""
    spec = endpoint.spec
    for key, reason in (
        ("instance_pools", "whose copies run one engine"),
        ("data_capture", "which AWS documents no data capture of"),
    ):
        is_shared = isinstance(spec, SharedEndpointSpec)
        if getattr(spec, key) and spec.is_component and not is_shared:
            yield endpoint.at(key, "scaling").fault(
                f"'{key}' stands beside a 'scaling' to none, which makes the model an inference "
                f"component, {reason}",
                way_out="take it out, raise scaling.min to 1, or add `asynchronous: {}`, whose "
                "queue holds the requests meanwhile",
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


Joined = tuple[tuple[JoinSpec, Checked[ModelSpec]], ...]
"""The models that join an endpoint."""


def shadow_is_alone(name: str, endpoint: Checked[EndpointSpec], joined: Joined) -> Iterator[Fault]:
    """SageMaker takes one shadow, beside one production variant."""
    shadows = [model for join, model in joined if join.role == "shadow"]
    sharing = [model.spec.name for join, model in joined if join.role == "variant"]
    for model in shadows[1:]:
        yield model.at("endpoint.role").fault(
            f"a second shadow of endpoint {name}, beside {shadows[0].spec.name}",
            value="role: shadow",
            allowed="one shadow",
            way_out="take one of the two out",
        )
    if shadows and sharing:
        yield (
            shadows[0]
            .at("endpoint.role")
            .fault(
                f"a shadow of endpoint {name}, where {comma_list(sharing)} takes a share of the "
                "traffic",
                value="role: shadow",
                allowed="a shadow beside the endpoint's own model alone",
                way_out="take either the shadow or the other variants out",
            )
        )


def rolling_has_one_variant(
    name: str, endpoint: Checked[EndpointSpec], joined: Joined
) -> Iterator[Fault]:
    """SageMaker's rolling deployments exclude endpoints of several variants."""
    if endpoint.spec.rollout == "rolling" and joined:
        yield endpoint.at("rollout").fault(
            "'endpoint.rollout' rolling takes one variant, and "
            f"{comma_list(model.spec.name for _, model in joined)} joins",
            value="rolling",
            allowed="canary, linear, all-at-once",
            way_out="choose one of these, or give the other models endpoints of their own",
        )


def some_variant_has_weight(
    name: str, endpoint: Checked[EndpointSpec], joined: Joined
) -> Iterator[Fault]:
    """Some variant has a weight above 0."""
    sharing = {model.spec.name: join for join, model in joined if join.role == "variant"}
    if endpoint.spec.weight == 0 and all(join.weight == 0 for join in sharing.values()):
        variants = f"variants, {comma_list(sharing)} included," if sharing else "variant"
        yield endpoint.at("weight").fault(
            f"every weight of endpoint {name}'s {variants} is 0, so nothing answers",
            allowed="a weight above 0 for at least one",
            way_out="raise one of the weights",
        )


def queues_and_components_have_one_variant(
    name: str, endpoint: Checked[EndpointSpec], joined: Joined
) -> Iterator[Fault]:
    """SageMaker has neither shadow tests nor several variants for asynchronous endpoints.

    The variant of an inference component has no model that another could share its traffic with.
    """
    is_component = endpoint.spec.is_component
    kind, way_out = "is asynchronous", f"take `asynchronous` out of {name}"
    if is_component:
        kind, way_out = "scales to none", f"raise scaling.min of {name} to 1"
    for _, model in joined if endpoint.spec.asynchronous is not None or is_component else ():
        yield model.fault(
            "endpoint.joins",
            f"names {name}, whose endpoint {kind} and so has one variant",
            allowed="a model whose endpoint answers at once, and keeps an instance",
            way_out=f"describe an endpoint of the model's own, or {way_out}",
        )


RULES = (
    instance_types_are_known_and_of_one_kind,
    instance_pools_hold_one_model,
    requests_are_answered_in_time,
    components_have_one_type_and_no_capture,
)
SCALING_RULES = (scaling_is_ordered, zero_instances_have_one_model)
VARIANT_RULES = (
    shadow_is_alone,
    rolling_has_one_variant,
    some_variant_has_weight,
    queues_and_components_have_one_variant,
)
