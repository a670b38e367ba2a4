"""Records of Application Auto Scaling, by account and region."""

from __future__ import annotations

import threading
from collections.abc import Collection, MutableMapping

from local_cloud.application_autoscaling.policy_alarms import delete_alarms
from local_cloud.application_autoscaling.records import (
    Activity,
    Description,
    Key,
    Policy,
    Target,
)
from local_cloud.ministack.account import Scoped
from local_cloud.protocol.errors import AwsError


def not_found(message: str) -> AwsError:
    """Return the refusal of a record that does not exist."""
    return AwsError("ObjectNotFoundException", message)


class Registry:
    """Targets, policies, scheduled actions and open activities; `turn` is their lock."""

    def __init__(self) -> None:
        self.targets: MutableMapping[Key, Target] = Scoped()
        self.policies: MutableMapping[tuple[Key, str], Policy] = Scoped()
        self.scheduled: MutableMapping[tuple[Key, str], Description] = Scoped()
        self._activities: MutableMapping[str, list[Activity]] = Scoped()
        self.turn = threading.RLock()

    @property
    def activities(self) -> list[Activity]:
        """The open activities of the present account and region."""
        return self._activities.setdefault("open", [])

    @property
    def scopes(self) -> list[tuple[str, str]]:
        """The accounts and regions that have targets."""
        return sorted({key[:2] for key in list(self.targets._data)})  # type: ignore[attr-defined]

    def target(self, key: Key) -> Target:
        """Return a target. Raises AwsError where it is not registered."""
        target = self.targets.get(key)
        if target is None:
            raise not_found(f"No scalable target registered for {key.text}")
        return target

    def variants(self, endpoint: str) -> frozenset[str]:
        """Return the variants of an endpoint that are scalable targets."""
        return frozenset(key.variant for key in self.targets if key.endpoint == endpoint)

    def scales_component(self, name: str) -> bool:
        """Whether an inference component is a scalable target."""
        return any(key.component == name for key in self.targets)

    def policies_of(self, key: Key) -> list[Policy]:
        """Return the policies of one target."""
        return [policy for policy in self.policies.values() if policy.key == key]

    def forget_scheduled(self, key: Key, but: Collection[str] = ()) -> None:
        """Remove the scheduled actions of one target, apart from some names."""
        for owner, name in list(self.scheduled):
            if owner == key and name not in but:
                del self.scheduled[(owner, name)]

    def forget(self, key: Key) -> None:
        """Remove a target, its policies with their alarms, and its scheduled actions."""
        for policy in self.policies_of(key):
            delete_alarms(policy)
            del self.policies[(key, policy.name)]
        self.forget_scheduled(key)
        self.targets.pop(key, None)
