"""An endpoint as DescribeEndpoint shows it, its traffic, and what updates change and refuse."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from local_cloud.protocol.errors import validation_error
from local_cloud.sagemaker.definitions import hosts_components, instance_types
from local_cloud.sagemaker.hosting.changes import Changing
from local_cloud.sagemaker.hosting.fleet import Fleet, VariantFleet
from local_cloud.sagemaker.hosting.instance import Instance, NoInstance

Record = Mapping[str, Any]
Wanted = Mapping[str, Record]
"""Of each variant the wanted weight and instance count, where they change."""
COUNT, WEIGHT = "DesiredInstanceCount", "DesiredWeight"


@dataclass(kw_only=True, eq=False)
class Endpoint(Changing):
    """An endpoint's state.

    `traffic` is None until it first answers and once it is deleted, at any moment: read it once.
    """

    config_name: str
    traffic: Traffic | None = None

    @property
    def fleets(self) -> tuple[Fleet, ...]:
        """The fleets that answer for it: none, one, or an update's old and new one."""
        traffic = self.traffic
        fleets = () if traffic is None else (traffic.fleet, traffic.new)
        return tuple(fleet for fleet in fleets if fleet is not None)

    def live_traffic(self) -> Traffic:
        """Return its traffic. Raises AwsError where no fleet answers, and none ever will."""
        if self.traffic is None:
            raise validation_error(
                f'Cannot update endpoint "{self.arn}" in status {self.status}: it can only be '
                "deleted."
            )
        return self.traffic

    @property
    def is_asynchronous(self) -> bool:
        """Whether it takes its requests from a queue."""
        traffic = self.traffic
        return traffic is not None and traffic.fleet.config.get("AsyncInferenceConfig") is not None

    def running(self, variant: str) -> int:
        """Return how many instances answer for a variant."""
        variants = (item for fleet in self.fleets for item in fleet.variants)
        return sum(len(item.instances) for item in variants if item.name == variant)

    def route(self, traffic: Traffic) -> None:
        """Set the traffic for the next request."""
        self.traffic = traffic
        self.config_name = traffic.fleet.config_name


@dataclass(frozen=True, kw_only=True)
class Served:
    """The fleet, variant and instance of one request."""

    fleet: Fleet
    variant: VariantFleet
    instance: Instance


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The shares of an old and a new fleet; a request that one cannot take goes to the other."""

    fleet: Fleet
    new: Fleet | None = None
    new_share: float = 0.0

    @property
    def fleets(self) -> tuple[Fleet, ...]:
        """The fleets in the order in which the next request tries them."""
        if self.new is None:
            return (self.fleet,)
        new_first = random.random() < self.new_share
        return (self.new, self.fleet) if new_first else (self.fleet, self.new)

    @contextmanager
    def serving(self, name: str | None, avoided: Collection[Instance] = ()) -> Iterator[Served]:
        """Pick an instance and keep it from being stopped. Raises NoInstance."""
        with ExitStack() as stack:
            yield self._pick(stack, name, avoided)

    def _pick(self, stack: ExitStack, name: str | None, avoided: Collection[Instance]) -> Served:
        for fleet in self.fleets:
            with suppress(NoInstance):
                variant, instance = stack.enter_context(fleet.serving(name, avoided))
                return Served(fleet=fleet, variant=variant, instance=instance)
        raise NoInstance

    def knows(self, variant_name: str) -> bool:
        """Whether any fleet has a production variant of a name."""
        return any(variant_name in fleet.production for fleet in self.fleets)


def check_update(
    request: Record, old: Fleet, config: Record, scaled_variants: Collection[str]
) -> None:
    """Refuse an update that SageMaker would refuse; `scaled_variants` are scalable targets."""
    if old.hosts_components != any(map(hosts_components, config["ProductionVariants"])):
        raise validation_error(
            f"AWS does not document whether endpoint {request['EndpointName']} can change between "
            "models of its variants and inference components: delete it, and create it again."
        )
    new = {variant["VariantName"]: variant for variant in config["ProductionVariants"]}
    if request.get("DeploymentConfig") and set(new) != set(old.production):
        raise validation_error(
            "When doing a blue/green or rolling deployment, the new endpoint configuration must "
            "have the same variant names as the old endpoint configuration: found "
            f"{', '.join(sorted(new))}, was {', '.join(sorted(old.production))}."
        )
    for name in sorted(set(new) & set(scaled_variants) & set(old.production)):
        before, after = instance_types(old.production[name].spec), instance_types(new[name])
        if before != after:
            raise validation_error(
                f"The instance type of variant {name} cannot be changed from {', '.join(before)} "
                f"to {', '.join(after)} while it is registered as a scalable target: delete its "
                "scaling policies and deregister it first."
            )


def keep_properties(request: Record, old: Fleet, new: Fleet) -> None:
    """Give variants of a new fleet what the request retains of those of the same names."""
    if not request.get("RetainAllVariantProperties"):
        return
    properties = request.get("ExcludeRetainedVariantProperties") or ()
    excluded = {item["VariantPropertyType"] for item in properties}
    before = _variants(old)
    for variant in new.variants:
        present = before.get(variant.name)
        if present is not None and COUNT not in excluded:
            variant.desired = present.desired
        if present is not None and WEIGHT not in excluded:
            variant.weight = present.weight


def check_changes(endpoint: Endpoint, wanted: Wanted) -> None:
    """Refuse unknown variants, and zero instances behind a real-time endpoint."""
    known = _variants(endpoint.live_traffic().fleet)
    for name, change in wanted.items():
        if name not in known:
            raise validation_error(
                f'Could not find variant "{name}" of endpoint "{endpoint.arn}": it has '
                f"{', '.join(known)}."
            )
        if change.get(COUNT) == 0 and not endpoint.is_asynchronous:
            raise validation_error(
                f'DesiredInstanceCount of variant "{name}" must be greater than or equal to 1: '
                "only an asynchronous endpoint scales to zero."
            )


def apply_changes(endpoint: Endpoint, wanted: Wanted) -> None:
    """Start and stop instances, then set the weights; one failure puts all counts back."""
    variants = _variants(endpoint.live_traffic().fleet)
    before = {name: variants[name].desired for name in wanted}
    try:
        for name, change in wanted.items():
            variants[name].desired = change.get(COUNT, before[name])
            variants[name].fill()
            variants[name].shrink()
    except Exception:
        endpoint.become("RollingBack")
        for name, count in before.items():
            variants[name].desired = count
            variants[name].shrink()
        raise
    for name, change in wanted.items():
        variants[name].weight = change.get(WEIGHT, variants[name].weight)


def _variants(fleet: Fleet) -> Mapping[str, VariantFleet]:
    return {variant.name: variant for variant in fleet.variants}
