"""One update of an endpoint: a rollout to a new fleet, or a rollback to the old one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from local_cloud.sagemaker.hosting.changes import (
    AlarmStates,
    RollbackFailed,
    RolledBack,
    Watch,
    failure_reason,
)
from local_cloud.sagemaker.hosting.endpoint import Traffic
from local_cloud.sagemaker.hosting.fleet import Fleet, VariantFleet, inspect
from local_cloud.sagemaker.hosting.instance import ServerError
from local_cloud.sagemaker.hosting.rollout import Rollout
from local_cloud.settings import Settings


@dataclass(kw_only=True)
class Update:
    """`route` shifts traffic; `place` moves the endpoint's inference components to a fleet."""

    before: Traffic
    new: Fleet
    plan: Rollout
    settings: Settings
    alarm_states: AlarmStates
    route: Callable[[Traffic], None]
    place: Callable[[Fleet], None] = lambda fleet: None

    def __post_init__(self) -> None:
        """Begin to watch."""
        self._watch = Watch(
            plan=self.plan,
            settings=self.settings,
            alarm_states=self.alarm_states,
            trouble=self._trouble,
        )

    def run(self) -> None:
        """Ends with the new fleet alone; raises RolledBack or RollbackFailed otherwise."""
        if self.plan.is_rolling and self.before.new is None and not self.new.hosts_components:
            self._roll()
        else:
            self._shift()

    def _shift(self) -> None:
        """Blue/green: the whole new fleet starts, then takes the traffic share by share."""
        try:
            self.new.start()
            self.place(self.new)
        except ServerError as error:
            self.new.stop()
            raise RolledBack(str(error)) from error
        try:
            for share in self.plan.shares:
                self._watch.check()
                self.route(Traffic(fleet=self.before.fleet, new=self.new, new_share=share))
                self._watch.bake()
        except BaseException:
            self.place(self.before.fleet)
            self.route(self.before)
            self.new.stop()
            raise
        self._finish()

    def _finish(self) -> None:
        """The new fleet answers alone; the old one ends after the termination wait."""
        self.route(Traffic(fleet=self.new))
        time.sleep(self.settings.scaled_wait(self.plan.termination_wait_seconds))
        self.before.fleet.stop()
        if self.before.new is not None:
            self.before.new.stop()

    def _roll(self) -> None:
        """Rolling: batches of new instances start, bake, and take the place of as many old ones."""
        ((name, young),) = self.new.production.items()
        old = self.before.fleet.production.get(name) or next(
            iter(self.before.fleet.production.values())
        )
        wanted, had = young.desired, old.desired
        try:
            self._roll_forward(young, old, wanted, had)
        except Exception as error:
            reason = failure_reason(error)
            self._roll_back(young, old, had, reason)
            raise RolledBack(reason) from error
        self._finish()

    def _roll_forward(self, young: VariantFleet, old: VariantFleet, wanted: int, had: int) -> None:
        young.desired = 0
        for shadow in self.new.shadow.values():
            shadow.fill()
        for batch in self.plan.batches:
            self._watch.check()
            young.desired += batch
            young.fill()
            self._share(young, old)
            self._watch.bake()
            old.desired = min(old.desired, math.floor(had * (1 - young.desired / wanted)))
            old.shrink()
            self._share(young, old)

    def _roll_back(self, young: VariantFleet, old: VariantFleet, had: int, reason: str) -> None:
        for batch in self.plan.rollback_batches:
            old.desired = min(had, old.desired + batch)
            try:
                old.fill()
            except ServerError as error:
                old.desired = len(old.instances)
                self._share(young, old)
                raise RollbackFailed(f"{reason} The rollback failed too: {error}") from error
            self._share(young, old)
            young.desired = max(0, young.desired - batch)
            young.shrink()
        self.route(self.before)
        self.new.stop()

    def _share(self, young: VariantFleet, old: VariantFleet) -> None:
        """Shares the traffic between both fleets by their instances."""
        together = len(young.instances) + len(old.instances)
        share = len(young.instances) / together if together else 0.0
        self.route(Traffic(fleet=self.before.fleet, new=self.new, new_share=share))

    def _trouble(self) -> str | None:
        inspect(self.new, pinging=False)
        if any(variant.lost for variant in self.new.variants):
            return f"instances of endpoint config {self.new.config_name} did not stay healthy."
        return None
