"""Endpoints: records whose servers start, are replaced and stop in the background, as SageMaker's do."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from workbench.local_cloud.account import Scoped, account_id, in_background, region, sagemaker_arn
from workbench.local_cloud.aws_error import validation_error
from workbench.local_cloud.servers import EndpointServers, ServerError, start_servers
from workbench.local_cloud.settings import Settings

IN_PROGRESS = ("Creating", "Updating", "Deleting")
WAIT_SECONDS = 4200.0
logger = logging.getLogger("roundhouse.endpoints")


@dataclass(kw_only=True)
class Endpoint:
    """One endpoint as DescribeEndpoint shows it, and the servers that answer for it."""

    name: str
    arn: str
    config_name: str
    status: str
    created: float
    modified: float
    failure_reason: str | None = None
    deployment_config: Mapping[str, Any] | None = None
    servers: EndpointServers | None = None
    settled: threading.Event = field(default_factory=threading.Event)

    def become(self, status: str, failure_reason: str | None = None) -> None:
        """Moves to a status, and lets those who wait know when it is a final one."""
        self.status, self.failure_reason, self.modified = status, failure_reason, time.time()
        if status in IN_PROGRESS:
            self.settled.clear()
        else:
            self.settled.set()


class Endpoints:
    """All endpoints of all accounts, and the models and endpoint configs that they are made from."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.models: MutableMapping[str, Mapping[str, Any]] = Scoped()
        self.configs: MutableMapping[str, Mapping[str, Any]] = Scoped()
        self.endpoints: MutableMapping[str, Endpoint] = Scoped()
        self._all_servers: dict[int, EndpointServers] = {}
        self._turn = threading.Lock()

    def named(self, name: str) -> Endpoint:
        """The endpoint of a name, or SageMaker's refusal."""
        endpoint = self.endpoints.get(name)
        if endpoint is None:
            raise validation_error(f'Could not find endpoint "{sagemaker_arn("endpoint", name)}".')
        return endpoint

    def create(self, name: str, config_name: str, deployment_config: Mapping[str, Any] | None) -> Endpoint:
        """Records a new endpoint and starts its servers in the background."""
        with self._turn:
            arn, now = sagemaker_arn("endpoint", name), time.time()
            if name in self.endpoints:
                raise validation_error(f'Cannot create already existing endpoint "{arn}".')
            self.config(config_name)
            endpoint = Endpoint(
                name=name, arn=arn, config_name=config_name, status="Creating", created=now, modified=now,
                deployment_config=deployment_config,
            )  # fmt: skip
            self.endpoints[name] = endpoint
        in_background(self._change, endpoint, config_name, "Failed")
        return endpoint

    def update(self, name: str, config_name: str, deployment_config: Mapping[str, Any] | None) -> Endpoint:
        """Starts the servers of another endpoint config; the old ones answer until the new ones are healthy."""
        with self._turn:
            endpoint = self._settled(name)
            self.config(config_name)
            endpoint.deployment_config = deployment_config
            endpoint.become("Updating")
        in_background(self._change, endpoint, config_name, "InService" if endpoint.servers is not None else "Failed")
        return endpoint

    def delete(self, name: str) -> Endpoint:
        """Stops an endpoint's servers in the background; the endpoint is gone once they are."""
        with self._turn:
            endpoint = self._settled(name)
            endpoint.become("Deleting")
        in_background(self._remove, endpoint)
        return endpoint

    def wait(self, endpoint: Endpoint) -> None:
        """Blocks until what was begun on an endpoint has ended."""
        endpoint.settled.wait(WAIT_SECONDS)

    def config(self, name: str) -> Mapping[str, Any]:
        """The endpoint config of a name, or SageMaker's refusal."""
        config = self.configs.get(name)
        if config is None:
            raise validation_error(f'Could not find endpoint configuration "{sagemaker_arn("endpoint-config", name)}".')
        return config

    def users(self, config_name: str) -> tuple[str, ...]:
        """Names of the endpoints that use an endpoint config."""
        return tuple(endpoint.name for endpoint in self.endpoints.values() if endpoint.config_name == config_name)

    def stop_all(self) -> None:
        """Stops every server of every account, when the cloud itself ends."""
        with self._turn:
            remaining = list(self._all_servers.values())
        threads = [in_background(servers.stop, 0.0) for servers in remaining]
        for thread in threads:
            thread.join()

    def _settled(self, name: str) -> Endpoint:
        endpoint = self.named(name)
        if endpoint.status in IN_PROGRESS:
            raise validation_error(f'Cannot update in-progress endpoint "{endpoint.arn}".')
        return endpoint

    def _change(self, endpoint: Endpoint, config_name: str, status_on_failure: str) -> None:
        """Starts the new servers, then stops the old ones; a failure leaves the old ones in place."""
        try:
            servers = self._start(endpoint, config_name)
        except ServerError as error:
            logger.warning("endpoint %s: %s", endpoint.name, error)
            endpoint.become(status_on_failure, str(error))
            return
        except Exception as error:
            logger.exception("endpoint %s", endpoint.name)
            endpoint.become(status_on_failure, f"the local cloud failed: {error}")
            return
        old, endpoint.servers, endpoint.config_name = endpoint.servers, servers, config_name
        self._track(servers)
        endpoint.become("InService")
        if old is not None:
            self._stop(old)

    def _start(self, endpoint: Endpoint, config_name: str) -> EndpointServers:
        variants = self.config(config_name)["ProductionVariants"]
        models = {}
        for variant in variants:
            model = self.models.get(variant["ModelName"])
            if model is None:
                raise ServerError(f'Could not find model "{sagemaker_arn("model", variant["ModelName"])}".')
            models[variant["ModelName"]] = model
        owner = f"{account_id()}-{region()}-{endpoint.name}-{uuid.uuid4().hex[:8]}"
        return start_servers(variants, models, self.settings.state / "endpoints" / owner, self.settings)

    def _remove(self, endpoint: Endpoint) -> None:
        servers, endpoint.servers = endpoint.servers, None
        if servers is not None:
            self._stop(servers)
        self.endpoints.pop(endpoint.name, None)
        endpoint.become("Deleted")

    def _track(self, servers: EndpointServers) -> None:
        with self._turn:
            self._all_servers[id(servers)] = servers

    def _stop(self, servers: EndpointServers) -> None:
        servers.stop()
        with self._turn:
            self._all_servers.pop(id(servers), None)
