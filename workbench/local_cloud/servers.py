"""The servers of one endpoint config: a container per production variant, each started from its model's archive."""

from __future__ import annotations

import http.client
import random
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.local_cloud.account import read_object
from workbench.local_cloud.archive import ArchiveError, s3_location, unpack_model
from workbench.local_cloud.checks import containers, number
from workbench.local_cloud.container import SERVER_PORT, Container, ContainerSpec, start_container
from workbench.local_cloud.images import ImageError, LocalImage, local_image
from workbench.local_cloud.multi_model import TargetModels
from workbench.local_cloud.server_client import ServerClient
from workbench.local_cloud.settings import Settings

STARTUP_SECONDS = 60.0
STOP_SECONDS = 5.0
DRAIN_SECONDS = 10.0
POLL_SECONDS = 0.03
COMPLAINT = re.compile(r"error|refus|fail|cannot|exception", re.IGNORECASE)


class ServersStopped(Exception):
    """These servers take no more requests: an update has put others in their place."""


class ServerError(Exception):
    """A variant's server did not become healthy; the message is the endpoint's failure reason."""


@dataclass(kw_only=True)
class VariantServer:
    """One running server; multi-model servers also know their target models."""

    name: str
    weight: float
    container: Container
    client: ServerClient
    target_models: TargetModels | None
    in_flight: int = 0


@dataclass(kw_only=True)
class EndpointServers:
    """All servers of one endpoint config, and the folder they live in."""

    folder: Path
    variants: list[VariantServer] = field(default_factory=list)
    stopped: bool = False
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def serving(self, variant_name: str | None) -> Iterator[VariantServer | None]:
        """Picks a variant, by name or by weight, and keeps it from being stopped meanwhile; None when none has that name.

        Raises ServersStopped when they are being stopped already.
        """
        candidates = [variant for variant in self.variants if variant_name in (None, variant.name)]
        if not candidates:
            yield None
            return
        weights = [variant.weight for variant in candidates]
        chosen = random.choices(candidates, weights if any(weights) else None)[0]
        with self._turn:
            if self.stopped:
                raise ServersStopped
            chosen.in_flight += 1
        try:
            yield chosen
        finally:
            with self._turn:
                chosen.in_flight -= 1

    def stop(self, drain_seconds: float = DRAIN_SECONDS) -> None:
        """Takes no more requests, lets those in flight finish, then stops every server and removes their folder."""
        with self._turn:
            self.stopped = True
        deadline = time.monotonic() + drain_seconds
        while any(variant.in_flight for variant in self.variants) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        for variant in self.variants:
            variant.client.close()
            variant.container.stop(STOP_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)


def start_servers(
    variants: Sequence[Mapping[str, Any]], models: Mapping[str, Mapping[str, Any]], folder: Path, settings: Settings
) -> EndpointServers:
    """Starts a server per variant and waits until each is healthy; on failure stops all and says why."""
    servers = EndpointServers(folder=folder)
    try:
        for variant in variants:
            servers.variants.append(_start_variant(variant, models[variant["ModelName"]], folder, settings))
    except ServerError as error:
        kept = _keep_log(folder)
        servers.stop()
        raise ServerError(f"{error}{kept}") from error
    except BaseException:
        servers.stop()
        raise
    return servers


def _start_variant(variant: Mapping[str, Any], model: Mapping[str, Any], folder: Path, settings: Settings) -> VariantServer:
    definition = containers(model)[0]
    place = folder / str(variant["VariantName"])
    model_folder = place / "model"
    model_folder.mkdir(parents=True)
    try:
        image = local_image(str(definition["Image"]), settings)
        multi_model = definition.get("Mode") == "MultiModel"
        if not multi_model and definition.get("ModelDataUrl") is not None:
            fetch_model(str(definition["ModelDataUrl"]), model_folder)
    except (ImageError, ArchiveError) as error:
        raise ServerError(str(error)) from error
    container = start_container(_container_spec(definition, image, place, model_folder, settings))
    server = VariantServer(
        name=str(variant["VariantName"]),
        weight=number(variant.get("InitialVariantWeight", 1)),
        container=container,
        client=ServerClient(container.connection),
        target_models=None,
    )
    try:
        _wait_until_healthy(server, _startup_seconds(variant, image))
    except BaseException:
        container.stop(0)
        raise
    if multi_model:
        server.target_models = TargetModels(client=server.client, prefix=str(definition["ModelDataUrl"]), folder=place / "models")
    return server


def fetch_model(url: str, folder: Path) -> None:
    """Downloads a model archive from S3 and unpacks it."""
    content = read_object(*s3_location(url))
    if content is None:
        raise ServerError(
            f'Failed to download model data for container "container_1" from URL: "{url}". Please ensure that there is an '
            "object located at the URL and that the role passed to CreateModel has permissions to download the object."
        )
    unpack_model(content, folder, url)


def _container_spec(
    definition: Mapping[str, Any], image: LocalImage, place: Path, model_folder: Path, settings: Settings
) -> ContainerSpec:
    given = {str(name): str(value) for name, value in (definition.get("Environment") or {}).items()}
    multi_model = {"SAGEMAKER_MULTI_MODEL": "true"} if definition.get("Mode") == "MultiModel" else {}
    return ContainerSpec(
        command=image.command,
        environment={
            **image.base_environment(settings.root),
            "HOME": str(place),
            **multi_model,
            **given,
            "SM_MODEL_DIR": str(model_folder),
            "SAGEMAKER_BIND_TO_PORT": str(SERVER_PORT),
            "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        },
        folder=place,
        log=place / "server.log",
    )


def _startup_seconds(variant: Mapping[str, Any], image: LocalImage) -> float:
    asked = number(variant.get("ContainerStartupHealthCheckTimeoutInSeconds", STARTUP_SECONDS))
    return asked if image.startup_seconds is None else image.startup_seconds


def _wait_until_healthy(server: VariantServer, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_healthy(server.client):
            return
        if server.container.exit_status() is not None:
            raise ServerError(_reason(server, f"its server ended with status {server.container.exit_status()}"))
        time.sleep(POLL_SECONDS)
    raise ServerError(_reason(server, f"its server was not healthy within {seconds:g} s"))


def is_healthy(client: ServerClient) -> bool:
    """Whether the server answers `/ping` with 200."""
    try:
        return client.request("GET", "/ping", timeout_seconds=2).status == 200
    except (OSError, http.client.HTTPException):
        return False


def _reason(server: VariantServer, happened: str) -> str:
    said = last_complaint(server.container.spec.log.read_text(encoding="utf-8", errors="replace"))
    return (
        f"The primary container for production variant {server.name} did not pass the ping health check: {happened}. "
        f"Its log's last sentence: {said}"
    )


def last_complaint(log: str) -> str:
    """The last of a log's final lines that complains, or simply the last one."""
    lines = [line.strip() for line in log.split("\n") if line.strip()][-20:]
    complaints = [line for line in lines if COMPLAINT.search(line)]
    return (complaints or lines or ["(nothing)"])[-1]


def _keep_log(folder: Path) -> str:
    """Copies the logs of servers that are about to be removed beside their folder, and says where."""
    kept = []
    for log in sorted(folder.glob("*/server.log")):
        place = folder.with_name(f"{folder.name}.{log.parent.name}.log")
        shutil.copyfile(log, place)
        kept.append(str(place))
    return f" (log: {', '.join(kept)})" if kept else ""
