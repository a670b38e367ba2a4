"""Copies of inference components: started on an instance, given their adapters, and ended."""

from __future__ import annotations

import contextvars
import http.client
import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from local_cloud.containers.archive import ArchiveError
from local_cloud.protocol.errors import AwsError
from local_cloud.sagemaker.components.component import Component, Spec
from local_cloud.sagemaker.components.placement import Placement, machines
from local_cloud.sagemaker.hosting.fleet import STARTED_AT_ONCE, Fleet
from local_cloud.sagemaker.hosting.instance import Instance, Launch, ServerError, start_instance
from local_cloud.sagemaker.hosting.model_data import fetch_model_data
from local_cloud.settings import Settings

GRACE_SECONDS = 30.0
"""Between SIGTERM and SIGKILL. Source: SageMaker developer guide,
your-algorithms-inference-code.
"""
ADAPTER_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Starts and ends copies; `find_model` raises AwsError."""

    settings: Settings
    find_model: Callable[[str], Mapping[str, Any]]
    placement: Placement = field(default_factory=Placement)

    def start(
        self,
        component: Component,
        specification: Spec,
        fleet: Fleet,
        count: int,
        adapters: Sequence[Component] = (),
    ) -> list[Instance]:
        """Start copies, or none where one fails. Raises ServerError or InsufficientCapacity."""

        def run() -> Instance:
            return self._start(component, specification, fleet, adapters)

        if count <= 0:
            return []
        with ThreadPoolExecutor(min(count, STARTED_AT_ONCE), thread_name_prefix="copy") as starters:
            futures = [starters.submit(contextvars.copy_context().run, run) for _ in range(count)]
        started = [future.result() for future in futures if future.exception() is None]
        for future in futures:
            error = future.exception()
            if error is not None:
                self.end(started, fleet, 0.0)
                raise error
        return started

    def _start(
        self,
        component: Component,
        specification: Spec,
        fleet: Fleet,
        adapters: Sequence[Component],
    ) -> Instance:
        with self.placement.reserve(component, specification, fleet) as reservation:
            launch = Launch(
                variant={
                    "VariantName": component.variant,
                    **(specification.get("StartupParameters") or {}),
                },
                instance_type=reservation.machine.instance_type,
                model=self._model(specification),
                folder=reservation.machine.folder / f"{component.name}-{next(component.numbers)}",
                given_up=component.given_up,
            )
            copy = start_instance(launch, self.settings)
            try:
                for adapter in adapters:
                    load_adapter(copy, adapter)
            except BaseException:
                copy.terminate(0.0)
                raise
            reservation.take(copy)
            return copy

    def _model(self, specification: Spec) -> Mapping[str, Any]:
        """The model that a component names, or one of its own container."""
        name, container = specification.get("ModelName"), specification.get("Container")
        if container is None:
            try:
                return self.find_model(str(name))
            except AwsError as error:
                raise ServerError(error.message) from error
        definition = {"Image": container["Image"], "Environment": container.get("Environment")}
        url = container.get("ArtifactUrl")
        definition |= {} if url is None else {"ModelDataUrl": url}
        return {"ModelName": "", "PrimaryContainer": definition}

    def end(
        self, copies: Collection[Instance], fleet: Fleet, grace_seconds: float = GRACE_SECONDS
    ) -> None:
        """Send SIGTERM to copies, end what is left of them later, and free their room."""
        threads = [
            threading.Thread(target=copy.terminate, args=(grace_seconds,), daemon=True)
            for copy in copies
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for variant in fleet.production.values():
            for machine in machines(variant):
                for copy in copies:
                    machine.placed.pop(copy, None)


def load_adapter(copy: Instance, adapter: Component) -> None:
    """Give a copy an adapter's files through its own route. Raises ServerError."""
    url = str(adapter.specification["Container"]["ArtifactUrl"])
    folder = copy.folder / "adapters" / adapter.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fetch_model_data(url, folder)
    except (ArchiveError, OSError) as error:
        raise ServerError(str(error)) from error
    body = json.dumps({"name": adapter.name, "src": str(folder)}).encode()
    _adapter_request(copy, "POST", "/adapters", body)


def unload_adapter(copy: Instance, adapter: Component) -> None:
    """Make a copy forget an adapter. Raises ServerError."""
    _adapter_request(copy, "DELETE", f"/adapters/{adapter.name}", b"")


def _adapter_request(copy: Instance, method: str, path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    try:
        response = copy.client.request(method, path, body, headers, ADAPTER_SECONDS)
    except (OSError, http.client.HTTPException) as error:
        raise ServerError(f"The container did not answer {method} {path} ({error}).") from error
    if response.status >= 300:
        reply = response.body.decode(errors="replace")[:300]
        raise ServerError(f"The container answered {method} {path} with {response.status}: {reply}")
