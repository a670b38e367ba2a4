"""An endpoint's traffic: one fleet takes it all, or two share it while an update shifts it from the
old to the new.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from local_cloud.fleet import Fleet
from local_cloud.instance import Instance
from local_cloud.variant_fleet import NoInstance, VariantFleet


@dataclass(frozen=True, kw_only=True)
class Served:
    """Who answers one request."""

    fleet: Fleet
    variant: VariantFleet
    instance: Instance


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Which fleet takes how much; a request that its fleet cannot take goes to the other one."""

    fleet: Fleet
    new: Fleet | None = None
    new_share: float = 0.0

    @property
    def fleets(self) -> tuple[Fleet, ...]:
        """The fleets that take any traffic, in the order in which the next request tries them."""
        if self.new is None:
            return (self.fleet,)
        return (
            (self.new, self.fleet) if random.random() < self.new_share else (self.fleet, self.new)
        )

    @contextmanager
    def serving(self, wanted: str | None, avoided: Collection[Instance] = ()) -> Iterator[Served]:
        """Picks who answers, and keeps it from being stopped meanwhile; NoInstance when nobody can."""
        with ExitStack() as held:
            yield self._picked(held, wanted, avoided)

    def _picked(self, held: ExitStack, wanted: str | None, avoided: Collection[Instance]) -> Served:
        for fleet in self.fleets:
            with suppress(NoInstance):
                variant, instance = held.enter_context(fleet.serving(wanted, avoided))
                return Served(fleet=fleet, variant=variant, instance=instance)
        raise NoInstance

    def knows(self, variant_name: str) -> bool:
        """Whether any fleet has a production variant of a name."""
        return any(variant_name in fleet.production for fleet in self.fleets)
