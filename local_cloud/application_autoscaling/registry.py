"""All that Application Auto Scaling keeps, by account and region."""

from __future__ import annotations

import threading
from collections.abc import Iterator, MutableMapping
from contextlib import suppress

from local_cloud.application_autoscaling.policy_alarms import delete_alarms
from local_cloud.application_autoscaling.records import (
    Activity,
    Key,
    Policy,
    ScheduledAction,
    Target,
)
from local_cloud.application_autoscaling.requests import not_found
from local_cloud.ministack.account import Scoped

Named = tuple[Key, str]


class Registry:
    """Targets, policies, scheduled actions and activities of one account and region.

    Activities are newest first. `turn` is the lock that guards all of them.
    """

    def __init__(self) -> None:
        self.targets: MutableMapping[Key, Target] = Scoped()
        self.policies: MutableMapping[Named, Policy] = Scoped()
        self.scheduled: MutableMapping[Named, ScheduledAction] = Scoped()
        self._activities: MutableMapping[str, list[Activity]] = Scoped()
        self.turn = threading.RLock()

    @property
    def activities(self) -> list[Activity]:
        """The activities of the account and region in hand."""
        return self._activities.setdefault("newest first", [])

    @property
    def scopes(self) -> list[tuple[str, str]]:
        """The accounts and regions that have targets."""
        return sorted({key[:2] for key in list(self.targets._data)})  # type: ignore[attr-defined]

    def target(self, key: Key) -> Target:
        """A target, or Application Auto Scaling's refusal."""
        target = self.targets.get(key)
        if target is None:
            raise not_found(f"No scalable target registered for {scalable_target_text(key)}")
        return target

    def policies_of(self, key: Key) -> Iterator[Policy]:
        """The policies of one target."""
        return (policy for (owner, _), policy in self.policies.items() if owner == key)

    def scheduled_of(self, key: Key) -> Iterator[ScheduledAction]:
        """The scheduled actions of one target."""
        return (action for (owner, _), action in self.scheduled.items() if owner == key)

    def forget(self, key: Key) -> None:
        """Drops a target, its policies with their alarms, and its scheduled actions."""
        for policy in list(self.policies_of(key)):
            delete_alarms(policy)
            del self.policies[(key, policy.name)]
        for action in list(self.scheduled_of(key)):
            del self.scheduled[(key, action.name)]
        with suppress(KeyError):
            del self.targets[key]


def scalable_target_text(key: Key) -> str:
    """What is scaled, as refusals say it."""
    return (
        f"service namespace: {key.namespace}, resource ID: {key.resource_id}, scalable "
        f"dimension: {key.dimension}"
    )
