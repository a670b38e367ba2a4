"""One update of an inference component: batches of new copies take the place of old ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from local_cloud.sagemaker.components.component import Component, Spec
from local_cloud.sagemaker.components.copies import Copies
from local_cloud.sagemaker.hosting.changes import (
    FAILURES,
    AlarmStates,
    RolledBack,
    Watch,
    failure_reason,
)
from local_cloud.sagemaker.hosting.fleet import Fleet
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.hosting.rollout import Rollout


@dataclass(kw_only=True)
class CopyUpdate:
    """Each batch's new copies answer before the old ones end; `copies` are wanted at last."""

    component: Component
    specification: Spec
    copies: int
    plan: Rollout
    fleet: Fleet
    starter: Copies
    adapters: Sequence[Component]
    alarm_states: AlarmStates
    new: list[Instance] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin to watch."""
        self._watch = Watch(
            plan=self.plan,
            settings=self.starter.settings,
            alarm_states=self.alarm_states,
            trouble=self._trouble,
        )

    def run(self) -> None:
        """End with new copies alone. Raises RolledBack, with the old ones as before."""
        component, old = self.component, list(self.component.copies)
        before, had = component.specification, len(old)
        try:
            for batch in self.plan.batches or (self.copies,):
                self._watch.check()
                self._add(self.specification, batch)
                self._watch.bake()
                self._remove(old, len(old) if not self.plan.batches else batch)
            self._remove(old, len(old))
        except Exception as error:
            reason = failure_reason(error)
            self._roll_back(before, had - len(old), reason)
            raise RolledBack(reason) from error
        component.specification = self.specification

    def _add(self, specification: Spec, count: int) -> None:
        count = min(count, self.copies - len(self.new))
        started = self.starter.start(
            self.component, specification, self.fleet, count, self.adapters
        )
        self.new.extend(started)
        self.component.add(started)

    def _remove(self, copies: list[Instance], count: int) -> None:
        """Take the first copies of a list out of service and end them."""
        ending = copies[:count]
        del copies[:count]
        self.component.remove(ending)
        self.starter.end(ending, self.fleet)

    def _roll_back(self, before: Spec, missing: int, reason: str) -> None:
        """End as many new copies as old ones are missing, start those again, end the other new."""
        self._remove(self.new, missing)
        try:
            started = self.starter.start(self.component, before, self.fleet, missing, self.adapters)
        except FAILURES as error:
            raise RolledBack(f"{reason} The rollback failed too: {error}") from error
        self.component.add(started)
        self._remove(self.new, len(self.new))

    def _trouble(self) -> str | None:
        ended = any(copy.has_ended() for copy in self.new)
        return "new copies did not stay healthy." if ended else None
