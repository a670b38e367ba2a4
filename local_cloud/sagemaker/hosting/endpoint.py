"""An endpoint as DescribeEndpoint shows it, and the traffic between its fleets."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from local_cloud.protocol.errors import validation_error
from local_cloud.sagemaker.hosting.changes import Changing
from local_cloud.sagemaker.hosting.fleet import Fleet, VariantFleet
from local_cloud.sagemaker.hosting.instance import Instance, NoInstance


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
