"""All inference components: their copies start, change and end in the background.

An update is batches of new copies that take the place of old ones.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, MutableMapping
from functools import partial
from typing import Any

from local_cloud.account import Scoped, in_background, of_every_account, sagemaker_arn
from local_cloud.protocol.errors import validation_error
from local_cloud.sagemaker.components.component import Component, Spec
from local_cloud.sagemaker.components.copies import (
    GRACE_SECONDS,
    Copies,
    end_copies,
    load_adapter,
    unload_adapter,
)
from local_cloud.sagemaker.hosting.changes import (
    AlarmStates,
    Monitor,
    RolledBack,
    Watch,
    failure_reason,
)
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.endpoints import Endpoints
from local_cloud.sagemaker.hosting.fleet import RETRY_SECONDS, Fleet
from local_cloud.sagemaker.hosting.instance import Instance, ServerError
from local_cloud.sagemaker.hosting.rollout import rollout

logger = logging.getLogger("roundhouse.components")


class Components:
    """The components of all accounts; a monitor replaces copies that are lost."""

    def __init__(self, endpoints: Endpoints, alarm_states: AlarmStates) -> None:
        self.endpoints = endpoints
        self.components: MutableMapping[str, Component] = Scoped()
        self.copies = Copies(settings=endpoints.settings, find_model=endpoints.model)
        self._alarm_states = alarm_states
        self._turn = threading.Lock()
        endpoints.move_components = self.move
        self._monitor = Monitor(lambda: of_every_account(self.components), self._inspect)

    def component(self, name: str) -> Component:
        """Return the component of a name. Raises AwsError where there is none."""
        component = self.components.get(name)
        if component is None:
            arn = sagemaker_arn("InferenceComponent", name)
            raise validation_error(f'Could not find inference component "{arn}".')
        return component

    def of_endpoint(self, name: str) -> tuple[Component, ...]:
        """Return the components of an endpoint, adapters last."""
        found = [item for item in self.components.values() if item.endpoint == name]
        return tuple(sorted(found, key=lambda component: component.base is not None))

    def names_of(self, endpoint: str) -> tuple[str, ...]:
        """Return the names of an endpoint's components."""
        return tuple(component.name for component in self.of_endpoint(endpoint))

    def adapters_of(self, component: Component) -> tuple[Component, ...]:
        """Return the adapters that a component's copies serve."""
        return tuple(
            item
            for item in self.components.values()
            if item.base == component.name and item.status in ("InService", "Updating")
        )

    def serving_component(self, component: Component) -> Component:
        """Return whose copies answer: a component's own, or those of an adapter's base."""
        return component if component.base is None else self.component(component.base)

    def create(self, component: Component) -> None:
        """Record a component and start its copies in the background."""
        with self._turn:
            if component.name.lower() in {name.lower() for name in self.components}:
                raise validation_error(
                    f'Cannot create already existing inference component "{component.arn}".'
                )
            self.components[component.name] = component
        component.begin(partial(self._change, component, self._create), "Failed")

    def update(
        self,
        name: str,
        specification: Spec | None,
        copies: int | None,
        deployment: Mapping[str, Any] | None,
    ) -> Component:
        """Begin to replace a component's copies, to change their number, or both."""
        with self._turn:
            component = self.component(name)
            component.require_settled("inference component")
            desired = component.desired if copies is None else copies
            if specification is not None and specification != component.specification:
                component.deployment_config = deployment
                change = partial(self._replace, specification=specification, desired=desired)
            else:
                change = partial(self._scale, desired=desired)
            component.become("Updating")
        component.begin(partial(self._change, component, change), "InService")
        return component

    def scale(self, name: str, desired: int) -> None:
        """Begin to start or end copies of a component."""
        self.update(name, None, desired, None)

    def delete(self, name: str) -> None:
        """End a component's copies in the background; it is gone once they are."""
        component = self.component(name)
        adapters = [item.name for item in self.components.values() if item.base == name]
        if adapters:
            raise validation_error(
                f'Cannot delete inference component "{component.arn}": it is the base of '
                f"{', '.join(adapters)}."
            )
        component.given_up.set()
        component.become("Deleting")
        in_background(self._remove, component)

    def move(self, endpoint: Endpoint, fleet: Fleet) -> None:
        """Start the copies of an endpoint's components on another fleet, then end the present ones.

        Raises ServerError, with the present copies as they were.
        """
        for component in self.of_endpoint(endpoint.name):
            if component.base is not None:
                continue
            with component.changing:
                old = list(component.copies)
                self._start(component, component.specification, fleet, component.desired)
                self._end(component, old)

    def stop_all(self) -> None:
        """End every copy of every account, when the cloud itself ends."""
        self._monitor.stop()
        for component in of_every_account(self.components):
            component.given_up.set()
            for copy in tuple(component.copies):
                copy.terminate(0.0)

    def fleet(self, component: Component) -> Fleet:
        """Return the fleet on which a component's copies are placed. Raises ServerError."""
        endpoint = self.endpoints.endpoints.get(component.endpoint)
        traffic = None if endpoint is None else endpoint.traffic
        if traffic is None:
            raise ServerError(f"endpoint {component.endpoint} has no instances.")
        return traffic.fleet

    @staticmethod
    def _change(component: Component, change: Callable[[Component], None]) -> None:
        with component.changing:
            change(component)

    def _create(self, component: Component) -> None:
        if component.base is not None:
            for copy in tuple(self.component(component.base).copies):
                load_adapter(copy, component)
            return
        self._scale(component, component.desired)

    def _scale(self, component: Component, desired: int) -> None:
        """Start missing copies or none; end surplus ones, newest first."""
        fleet, before = self.fleet(component), component.desired
        missing, component.desired = desired - len(component.copies), desired
        try:
            self._start(component, component.specification, fleet, missing)
        except BaseException:
            component.desired = before
            raise
        self._end(component, component.copies[desired:])
        self.copies.release_unused(fleet)

    def _start(
        self, component: Component, specification: Spec, fleet: Fleet, count: int
    ) -> list[Instance]:
        """Start copies, which take requests then, or none. Raises ServerError."""
        adapters = self.adapters_of(component)
        started = self.copies.start(component, specification, fleet, count, adapters)
        component.add(started)
        return started

    @staticmethod
    def _end(
        component: Component, copies: Collection[Instance], grace_seconds: float = GRACE_SECONDS
    ) -> None:
        """Take copies out of service and end them."""
        component.remove(copies)
        end_copies(copies, grace_seconds)

    def _replace(self, component: Component, specification: Spec, desired: int) -> None:
        """Replace the copies of a component, or the files of an adapter."""
        if component.base is not None:
            for copy in tuple(self.component(component.base).copies):
                unload_adapter(copy, component)
            component.specification = specification
            self._create(component)
            return
        fleet = self.fleet(component)
        try:
            self._roll_out(component, specification, desired, fleet)
            component.desired = desired
        finally:
            self.copies.release_unused(fleet)

    def _roll_out(
        self, component: Component, specification: Spec, desired: int, fleet: Fleet
    ) -> None:
        """Start the new copies of each batch before the old ones end.

        Raises RolledBack, with the old copies as before.
        """
        plan = rollout(component.deployment_config, {"copies": desired})
        old, new = list(component.copies), list[Instance]()
        watch = Watch(
            plan=plan,
            settings=self.endpoints.settings,
            alarm_states=self._alarm_states,
            trouble=partial(_trouble, new),
        )
        replaced = 0
        try:
            for batch in plan.batches or (desired,):
                watch.check()
                new += self._start(component, specification, fleet, min(batch, desired - len(new)))
                watch.bake()
                ending = old[replaced : replaced + batch if plan.batches else None]
                replaced += len(ending)
                self._end(component, ending)
            self._end(component, old[replaced:])
        except Exception as error:
            reason = failure_reason(error)
            self._roll_back(component, new, fleet, replaced, reason)
            raise RolledBack(reason) from error
        component.specification = specification

    def _roll_back(
        self, component: Component, new: list[Instance], fleet: Fleet, missing: int, reason: str
    ) -> None:
        """End as many new copies as old ones are missing, start those again, end the other new."""
        self._end(component, new[:missing])
        try:
            self._start(component, component.specification, fleet, missing)
        except ServerError as error:
            raise RolledBack(f"{reason} The rollback failed too: {error}") from error
        self._end(component, new[missing:])

    def _remove(self, component: Component) -> None:
        try:
            with component.changing:
                self._end_copies(component)
        except Exception:
            logger.exception("inference component %s", component.name)
        finally:
            self.components.pop(component.name, None)
            component.become("Deleted")

    def _end_copies(self, component: Component) -> None:
        if component.base is not None:
            base = self.components.get(component.base)
            for copy in tuple(() if base is None else base.copies):
                unload_adapter(copy, component)
            return
        self._end(component, tuple(component.copies))
        self.copies.release_unused(self.fleet(component))

    def _inspect(self, component: Component) -> None:
        """Remove lost copies of one component; have them replaced, and again later on failure."""
        lost = [copy for copy in tuple(component.copies) if copy.has_ended()]
        for copy in lost:
            logger.warning("copy %s is lost (log: %s)", copy.folder.name, copy.log)
        self._end(component, lost, 0.0)
        is_short = component.base is None and len(component.copies) < component.desired
        is_due = time.monotonic() >= component.retry_at
        if is_short and component.status == "InService" and is_due:
            component.retry_at = time.monotonic() + RETRY_SECONDS
            in_background(self._mend, component)

    def _mend(self, component: Component) -> None:
        """Start as many copies again as were lost."""
        if not component.changing.acquire(blocking=False):
            return
        try:
            self._scale(component, component.desired)
        except ServerError as error:
            logger.warning("inference component %s: %s", component.name, error)
        finally:
            component.changing.release()


def _trouble(new: Collection[Instance]) -> str | None:
    """Why an update to new copies must not go on."""
    ended = any(copy.has_ended() for copy in new)
    return "new copies did not stay healthy." if ended else None
