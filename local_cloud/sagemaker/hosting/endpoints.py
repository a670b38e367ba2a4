"""Models, endpoint configs, and endpoints whose fleets start, change and stop in the background."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any, TypeVar

from local_cloud.account import (
    Scoped,
    account_id,
    in_background,
    of_every_account,
    region,
    sagemaker_arn,
)
from local_cloud.protocol.errors import validation_error
from local_cloud.sagemaker.hosting.changes import AlarmStates, Monitor, RolledBack, Watch
from local_cloud.sagemaker.hosting.endpoint import (
    COUNT,
    Endpoint,
    Record,
    Traffic,
    Wanted,
    apply_changes,
    check_changes,
    check_update,
    keep_properties,
)
from local_cloud.sagemaker.hosting.fleet import Fleet, new_fleet
from local_cloud.sagemaker.hosting.instance import ServerError
from local_cloud.sagemaker.hosting.rollout import rollout
from local_cloud.settings import Settings

R = TypeVar("R")
WORDS = {"Model": "model", "EndpointConfig": "endpoint configuration", "Endpoint": "endpoint"}
"""What refusals call a resource, by the noun of its operations."""


class Endpoints:
    """All endpoints of all accounts, and the models and endpoint configs that they use."""

    def __init__(self, settings: Settings, alarm_states: AlarmStates) -> None:
        self.settings = settings
        self.models: MutableMapping[str, Record] = Scoped()
        self.configs: MutableMapping[str, Record] = Scoped()
        self.endpoints: MutableMapping[str, Endpoint] = Scoped()
        self._alarm_states = alarm_states
        self.move_components: Callable[[Endpoint, Fleet], None] = lambda endpoint, fleet: None
        self._turn = threading.Lock()
        self._monitor = Monitor(self._monitored_fleets, _inspect)

    def model(self, name: str) -> Record:
        """Return the model of a name. Raises AwsError where there is none."""
        return _record(self.models, "Model", name)

    def config(self, name: str) -> Record:
        """Return the endpoint config of a name. Raises AwsError where there is none."""
        return _record(self.configs, "EndpointConfig", name)

    def endpoint_named(self, name: str) -> Endpoint:
        """Return the endpoint of a name. Raises AwsError where there is none."""
        return _record(self.endpoints, "Endpoint", name)

    def instances(self, endpoint_name: str) -> Mapping[str, tuple[int, int]]:
        """Return present and desired instance counts of each production variant."""
        traffic = self.endpoint_named(endpoint_name).traffic
        variants = {} if traffic is None else traffic.fleet.production
        return {name: (len(item.instances), item.desired) for name, item in variants.items()}

    def create(
        self, name: str, config_name: str, deployment_config: Mapping[str, Any] | None = None
    ) -> Endpoint:
        """Record a new endpoint and start its fleet in the background."""
        with self._turn:
            arn = sagemaker_arn("Endpoint", name)
            if name.lower() in {endpoint.name.lower() for endpoint in self.endpoints.values()}:
                raise validation_error(f'Cannot create already existing endpoint "{arn}".')
            config = self.config(config_name)
            endpoint = Endpoint(
                name=name,
                arn=arn,
                config_name=config_name,
                deployment_config=deployment_config,
            )
            self.endpoints[name] = endpoint
        endpoint.begin(partial(self._create, endpoint, config), "Failed")
        return endpoint

    def update(self, request: Record, scaled_variants: Collection[str]) -> Endpoint:
        """Begin to replace an endpoint's fleet by that of another endpoint config.

        The present config must still exist; `scaled_variants` are scalable targets.
        """
        with self._turn:
            endpoint = self._settled_endpoint(request["EndpointName"])
            self.config(endpoint.config_name)
            config = self.config(request["EndpointConfigName"])
            before = endpoint.live_traffic()
            check_update(request, before.fleet, config, scaled_variants)
            endpoint.deployment_config = request.get("DeploymentConfig")
            endpoint.become("Updating")
        endpoint.begin(partial(self._update, endpoint, before, request, config), "InService")
        return endpoint

    def scale(self, endpoint_name: str, variant_name: str, desired: int) -> None:
        """Begin to start or stop instances of one variant."""
        self.change(endpoint_name, {variant_name: {COUNT: desired}})

    def change(self, endpoint_name: str, wanted: Wanted) -> Endpoint:
        """Begin to change weights and instance counts of variants."""
        with self._turn:
            endpoint = self._settled_endpoint(endpoint_name)
            check_changes(endpoint, wanted)
            endpoint.become("Updating")
        endpoint.begin(partial(apply_changes, endpoint, wanted), "InService")
        return endpoint

    def delete(self, name: str) -> None:
        """Stop an endpoint's fleets in the background; the endpoint is gone once they are."""
        with self._turn:
            endpoint = self._settled_endpoint(name)
            endpoint.become("Deleting")
        in_background(self._remove, endpoint)

    def stop_all(self) -> None:
        """Stop every instance of every account, when the cloud itself ends."""
        self._monitor.stop()
        endpoints = of_every_account(self.endpoints)
        threads = [in_background(fleet.stop, 0.0) for item in endpoints for fleet in item.fleets]
        for thread in threads:
            thread.join()

    def _settled_endpoint(self, name: str) -> Endpoint:
        endpoint = self.endpoint_named(name)
        endpoint.require_settled("endpoint")
        return endpoint

    def _monitored_fleets(self) -> Iterator[Fleet]:
        """The fleets that answer; an update watches its new fleet itself."""
        for endpoint in of_every_account(self.endpoints):
            yield from endpoint.fleets[: 1 if endpoint.is_in_progress else None]

    def _create(self, endpoint: Endpoint, config: Record) -> None:
        fleet = self._fleet(endpoint, config)
        fleet.start()
        endpoint.route(Traffic(fleet=fleet))

    def _update(self, endpoint: Endpoint, before: Traffic, request: Record, config: Record) -> None:
        """Start the whole new fleet, then shift the traffic share by share; of rolling updates too.

        Raises RolledBack, with the old fleet alone as before.
        """
        new = self._fleet(endpoint, config)
        keep_properties(request, before.fleet, new)
        counts = {name: variant.desired for name, variant in new.production.items()}
        plan = rollout(endpoint.deployment_config, counts)
        watch = Watch(
            plan=plan,
            settings=self.settings,
            alarm_states=self._alarm_states,
            trouble=partial(_trouble, new),
        )
        try:
            new.start()
            self.move_components(endpoint, new)
        except ServerError as error:
            new.stop()
            raise RolledBack(str(error)) from error
        try:
            for share in plan.shares:
                watch.check()
                endpoint.route(Traffic(fleet=before.fleet, new=new, new_share=share))
                watch.bake()
        except BaseException:
            self.move_components(endpoint, before.fleet)
            endpoint.route(before)
            new.stop()
            raise
        endpoint.route(Traffic(fleet=new))
        time.sleep(self.settings.scaled_wait(plan.termination_wait_seconds))
        before.fleet.stop()

    def _fleet(self, endpoint: Endpoint, config: Record) -> Fleet:
        owner = f"{account_id()}-{region()}-{endpoint.name}-{uuid.uuid4().hex[:8]}"
        folder = self.settings.state / "endpoints" / owner
        return new_fleet(config, self.settings, self.model, folder)

    def _remove(self, endpoint: Endpoint) -> None:
        fleets, endpoint.traffic = endpoint.fleets, None
        try:
            for fleet in fleets:
                fleet.stop()
        finally:
            self.endpoints.pop(endpoint.name, None)
            endpoint.become("Deleted")


def _trouble(fleet: Fleet) -> str | None:
    """Why an update to a fleet must not go on."""
    fleet.drop_lost()
    if any(variant.lost for variant in fleet.variants):
        return f"instances of endpoint config {fleet.config_name} did not stay healthy."
    return None


def _inspect(fleet: Fleet) -> None:
    """Drop lost instances, and start others in their place."""
    fleet.drop_lost()
    for variant in fleet.variants:
        variant.mend()


def _record(records: Mapping[str, R], noun: str, name: str) -> R:
    record = records.get(name)
    if record is None:
        raise validation_error(f'Could not find {WORDS[noun]} "{sagemaker_arn(noun, name)}".')
    return record
