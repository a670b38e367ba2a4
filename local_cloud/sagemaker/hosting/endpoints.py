"""Endpoints.

Records whose fleets start, are replaced, scaled and stopped in the background, as SageMaker's are.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from local_cloud.containers.quotas import Capacity
from local_cloud.ministack.account import Scoped, account_id, in_background, region, sagemaker_arn
from local_cloud.protocol.errors import AwsError, validation_error
from local_cloud.sagemaker.hosting.endpoint import Endpoint, Traffic
from local_cloud.sagemaker.hosting.fleet import Fleet, Host, new_fleet
from local_cloud.sagemaker.hosting.health_monitor import HealthMonitor
from local_cloud.sagemaker.hosting.records import Record, Records
from local_cloud.sagemaker.hosting.rollout import rollout
from local_cloud.sagemaker.hosting.update import (
    FAILURES,
    AlarmStates,
    RollbackFailed,
    RolledBack,
    Update,
)
from local_cloud.sagemaker.hosting.update_request import (
    UpdateRequest,
    Wanted,
    apply_changes,
    check_changes,
    keep_properties,
)
from local_cloud.settings import Settings

WAIT_SECONDS = 4200.0
logger = logging.getLogger("roundhouse.endpoints")


class InProgress(AwsError):
    """Something is under way on the endpoint, so that nothing else can be begun."""


class Endpoints:
    """All endpoints of all accounts, and the records that they are made from."""

    def __init__(self, settings: Settings, alarm_states: AlarmStates) -> None:
        self.settings = settings
        self.records = Records()
        self.endpoints: MutableMapping[str, Endpoint] = Scoped()
        self._alarm_states = alarm_states
        self._host = Host(
            settings=settings,
            capacity=Capacity(settings.state),
            find_model=self.records.startable_model,
        )
        self._every: dict[int, Endpoint] = {}
        self._turn = threading.Lock()
        self._health_monitor = HealthMonitor(self._kept_fleets)
        self._health_monitor.start()

    def endpoint_named(self, name: str) -> Endpoint:
        """The endpoint of a name, or SageMaker's refusal."""
        endpoint = self.endpoints.get(name)
        if endpoint is None:
            raise validation_error(f'Could not find endpoint "{sagemaker_arn("endpoint", name)}".')
        return endpoint

    def users(self, config_name: str) -> tuple[str, ...]:
        """Names of the endpoints that use an endpoint config, or are about to."""
        used = {endpoint.name: _config_names(endpoint) for endpoint in self.endpoints.values()}
        return tuple(name for name, configs in used.items() if config_name in configs)

    def instances(self, endpoint_name: str) -> Mapping[str, tuple[int, int]]:
        """Present and desired instance counts of each production variant."""
        traffic = self.endpoint_named(endpoint_name).traffic
        if traffic is None:
            return {}
        return {
            name: (len(variant.instances), variant.desired)
            for name, variant in traffic.fleet.production.items()
        }

    def create(
        self, name: str, config_name: str, deployment_config: Mapping[str, Any] | None = None
    ) -> Endpoint:
        """Records a new endpoint and starts its fleet in the background."""
        with self._turn:
            arn, now = sagemaker_arn("endpoint", name), time.time()
            if name.lower() in {item.lower() for item in self.endpoints.keys()}:  # noqa: SIM118
                raise validation_error(f'Cannot create already existing endpoint "{arn}".')
            config = self.records.config(config_name)
            endpoint = Endpoint(
                name=name,
                arn=arn,
                config_name=config_name,
                status="Creating",
                created=now,
                modified=now,
                deployment_config=deployment_config,
            )
            self.endpoints[name] = self._every[id(endpoint)] = endpoint
        in_background(
            self._run_change, endpoint, functools.partial(self._create, config=config), "Failed"
        )
        return endpoint

    def update(self, request: UpdateRequest) -> Endpoint:
        """Begins to replace an endpoint's fleet by that of another endpoint config.

        The old one answers until it is.
        """
        with self._turn:
            endpoint = self._settled_endpoint(request.endpoint_name)
            config = self.records.config(request.config_name)
            if endpoint.traffic is None:
                raise validation_error(
                    f'Cannot update endpoint "{endpoint.arn}" in status {endpoint.status}: it '
                    "can only be deleted."
                )
            endpoint.deployment_config = request.deployment_config
            endpoint.become("Updating")
        in_background(
            self._run_change,
            endpoint,
            functools.partial(self._update, request=request, config=config),
            "InService",
        )
        return endpoint

    def scale(self, endpoint_name: str, variant_name: str, desired: int) -> None:
        """Begins to start or stop instances of one variant."""
        self.change(endpoint_name, {variant_name: Wanted(count=desired)})

    def change(self, endpoint_name: str, wanted: Mapping[str, Wanted]) -> Endpoint:
        """Begins to change weights and instance counts of variants."""
        with self._turn:
            endpoint = self._settled_endpoint(endpoint_name)
            check_changes(endpoint, wanted)
            endpoint.become("Updating")
        in_background(
            self._run_change, endpoint, functools.partial(apply_changes, wanted=wanted), "InService"
        )
        return endpoint

    def delete(self, name: str) -> Endpoint:
        """Stops an endpoint's fleets in the background; the endpoint is gone once they are."""
        with self._turn:
            endpoint = self._settled_endpoint(name)
            endpoint.become("Deleting")
        in_background(self._remove, endpoint)
        return endpoint

    def wait(self, endpoint: Endpoint) -> None:
        """Blocks until what was begun on an endpoint has ended."""
        endpoint.settled.wait(WAIT_SECONDS)

    def stop_all(self) -> None:
        """Stops every instance of every account, when the cloud itself ends."""
        self._health_monitor.stop()
        with self._turn:
            fleets = [fleet for endpoint in self._every.values() for fleet in endpoint.fleets]
        threads = [in_background(fleet.stop, 0.0) for fleet in fleets]
        for thread in threads:
            thread.join()

    def _settled_endpoint(self, name: str) -> Endpoint:
        endpoint = self.endpoint_named(name)
        if endpoint.is_in_progress:
            raise InProgress(
                "ValidationException", f'Cannot update in-progress endpoint "{endpoint.arn}".'
            )
        return endpoint

    def _kept_fleets(self) -> Iterable[Fleet]:
        """The fleets that answer for an endpoint.

        The new one of an update under way is watched by the update.
        """
        with self._turn:
            endpoints = list(self._every.values())
        return [
            fleet
            for endpoint in endpoints
            for fleet in endpoint.fleets[: 1 if endpoint.is_in_progress else None]
        ]

    def _run_change(
        self, endpoint: Endpoint, change: Callable[[Endpoint], None], status_on_failure: str
    ) -> None:
        """Runs a change to its final status; an error becomes the endpoint's FailureReason."""
        try:
            change(endpoint)
        except RollbackFailed as error:
            logger.warning("endpoint %s: %s", endpoint.name, error)
            endpoint.become("UpdateRollbackFailed", str(error))
        except (*FAILURES, RolledBack) as error:
            logger.warning("endpoint %s: %s", endpoint.name, error)
            endpoint.become(status_on_failure, str(error))
        except Exception as error:
            logger.exception("endpoint %s", endpoint.name)
            endpoint.become(status_on_failure, f"the local cloud failed: {error}")
        else:
            endpoint.become("InService")

    def _create(self, endpoint: Endpoint, config: Record) -> None:
        fleet = self._fleet(endpoint, config)
        endpoint.set_variant_status(fleet, "Creating")
        fleet.start()
        endpoint.route(Traffic(fleet=fleet))

    def _update(self, endpoint: Endpoint, request: UpdateRequest, config: Record) -> None:
        before = endpoint.traffic
        if before is None:
            raise RolledBack(f"endpoint {endpoint.name} has no fleet")
        fleet = self._fleet(endpoint, config)
        keep_properties(request, before.fleet, fleet)
        counts = {name: variant.desired for name, variant in fleet.production.items()}
        Update(
            before=before,
            new=fleet,
            plan=rollout(request.deployment_config, counts),
            settings=self.settings,
            alarm_states=self._alarm_states,
            route=endpoint.route,
            say=functools.partial(endpoint.set_variant_status, fleet),
        ).run()

    def _fleet(self, endpoint: Endpoint, config: Record) -> Fleet:
        owner = f"{account_id()}-{region()}-{endpoint.name}-{uuid.uuid4().hex[:8]}"
        return new_fleet(config, self._host, self.settings.state / "endpoints" / owner)

    def _remove(self, endpoint: Endpoint) -> None:
        fleets, endpoint.traffic = endpoint.fleets, None
        try:
            for fleet in fleets:
                fleet.stop()
        finally:
            self.endpoints.pop(endpoint.name, None)
            with self._turn:
                self._every.pop(id(endpoint), None)
            endpoint.become("Deleted")


def _config_names(endpoint: Endpoint) -> tuple[str, ...]:
    pending = endpoint.pending
    return (endpoint.config_name, *(() if pending is None else (pending.fleet.config_name,)))
