"""One instance of a variant.

A container started from its model's archive, and the client that asks it.
"""

from __future__ import annotations

import http.client
import re
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cloud.containers.archive import ArchiveError, s3_location, unpack_model
from local_cloud.containers.container import SERVER_PORT, Container, ContainerSpec, start_container
from local_cloud.containers.images import ImageError, LocalImage, local_image
from local_cloud.containers.server_client import ServerClient
from local_cloud.ministack.account import read_object
from local_cloud.sagemaker.checks import containers, number
from local_cloud.sagemaker.hosting.multi_model import TargetModels
from local_cloud.settings import Settings

STARTUP_SECONDS = 60.0
STOP_SECONDS = 5.0
PINGS_MISSED = 3


@dataclass(kw_only=True, eq=False)
class Instance:
    """A running instance; a multi-model one also knows its target models.

    `in_flight` belongs to its fleet's lock.
    """

    variant: str
    instance_type: str
    model_name: str
    place: Path
    container: Container
    client: ServerClient
    target_models: TargetModels | None = None
    in_flight: int = 0
    pings_missed: int = 0

    @property
    def log(self) -> Path:
        """Everything that its server said."""
        return self.container.spec.log

    def has_ended(self) -> bool:
        """Whether its server is gone."""
        return self.container.exit_status() is not None

    def is_sick(self) -> bool:
        """Asks `/ping`; one that refused three times in a row is sick.

        A server too busy to answer is not.
        """
        answered = ping(self.client)
        self.pings_missed = 0 if answered in (200, None) else self.pings_missed + 1
        return self.pings_missed >= PINGS_MISSED

    def stop(self, drain_seconds: float) -> None:
        """Lets what is in flight finish, then ends the server and removes its folder."""
        deadline = time.monotonic() + drain_seconds
        while self.in_flight and not self.has_ended() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.client.close()
        self.container.stop(STOP_SECONDS if drain_seconds else 0.0)
        shutil.rmtree(self.place, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What one instance is started from.

    Its variant as the endpoint config has it, its type and its model's record.

    `given_up` tells that nobody wants it any more.
    """

    variant: Mapping[str, Any]
    instance_type: str
    model: Mapping[str, Any]
    place: Path
    given_up: threading.Event

    @property
    def definition(self) -> Mapping[str, Any]:
        """The model's first container, the one that answers."""
        return containers(self.model)[0]

    @property
    def is_multi_model(self) -> bool:
        """Whether target models are loaded when they are asked for."""
        return self.definition.get("Mode") == "MultiModel"


def start_instance(launch: Launch, settings: Settings) -> Instance:
    """Starts an instance and waits until it is healthy; ServerError says why it never was."""
    model_folder = launch.place / "model"
    try:
        model_folder.mkdir(parents=True)
        image = local_image(str(launch.definition["Image"]), settings)
        if not launch.is_multi_model and launch.definition.get("ModelDataUrl") is not None:
            fetch_model(str(launch.definition["ModelDataUrl"]), model_folder)
        container = start_container(_container_spec(launch, image, model_folder, settings))
    except (ImageError, ArchiveError, OSError) as error:
        raise ServerError(str(error)) from error
    client = ServerClient(container.connection)
    name = str(launch.variant["VariantName"])
    try:
        wait_until_healthy(
            name, container, client, _startup_seconds(launch.variant, image), launch.given_up
        )
    except ServerError as error:
        container.stop(0)
        raise ServerError(f"{error}{keep_log(container.spec.log, launch.place.parent)}") from error
    except BaseException:
        container.stop(0)
        raise
    return Instance(
        variant=name,
        instance_type=launch.instance_type,
        model_name=str(launch.model["ModelName"]),
        place=launch.place,
        container=container,
        client=client,
        target_models=_target_models(launch, client),
    )


def fetch_model(url: str, folder: Path) -> None:
    """Downloads a model archive from S3 and unpacks it."""
    content = read_object(*s3_location(url))
    if content is None:
        raise ServerError(
            f'Failed to download model data for container "container_1" from URL: "{url}". '
            "Please ensure that there is an "
            "object located at the URL and that the role passed to CreateModel has permissions "
            "to download the object."
        )
    unpack_model(content, folder, url)


def _target_models(launch: Launch, client: ServerClient) -> TargetModels | None:
    if not launch.is_multi_model:
        return None
    return TargetModels(
        client=client, prefix=str(launch.definition["ModelDataUrl"]), folder=launch.place / "models"
    )


def _container_spec(
    launch: Launch, image: LocalImage, model_folder: Path, settings: Settings
) -> ContainerSpec:
    given = {
        str(name): str(value)
        for name, value in (launch.definition.get("Environment") or {}).items()
    }
    multi_model = {"SAGEMAKER_MULTI_MODEL": "true"} if launch.is_multi_model else {}
    return ContainerSpec(
        command=image.command,
        environment={
            **image.base_environment(settings.root),
            "HOME": str(launch.place),
            **multi_model,
            **given,
            "SM_MODEL_DIR": str(model_folder),
            "SAGEMAKER_BIND_TO_PORT": str(SERVER_PORT),
            "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        },
        folder=launch.place,
        log=launch.place / "server.log",
    )


def _startup_seconds(variant: Mapping[str, Any], image: LocalImage) -> float:
    requested = number(variant.get("ContainerStartupHealthCheckTimeoutInSeconds", STARTUP_SECONDS))
    return requested if image.startup_seconds is None else image.startup_seconds


POLL_SECONDS = 0.03
PING_SECONDS = 2.0
COMPLAINT = re.compile(r"error|refus|fail|cannot|exception", re.IGNORECASE)


class ServerError(Exception):
    """A variant's server did not become healthy; the message is the endpoint's failure reason."""


def wait_until_healthy(
    variant: str,
    container: Container,
    client: ServerClient,
    seconds: float,
    given_up: threading.Event,
) -> None:
    """Waits until the server answers `/ping` with 200.

    One that ends or takes too long is refused with its last words.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if given_up.is_set():
            raise ServerError(
                f"production variant {variant} was stopped while an instance of it started."
            )
        if ping(client) == 200:
            return
        status = container.exit_status()
        if status is not None:
            raise ServerError(_reason(variant, container, f"its server ended with status {status}"))
        time.sleep(POLL_SECONDS)
    raise ServerError(
        _reason(variant, container, f"its server was not healthy within {seconds:g} s")
    )


def ping(client: ServerClient) -> int | None:
    """What the server answers to `/ping`.

    0 when it takes no connection, None when it takes longer than it should.
    """
    try:
        return client.request("GET", "/ping", timeout_seconds=PING_SECONDS).status
    except TimeoutError:
        return None
    except (OSError, http.client.HTTPException):
        return 0


def _reason(variant: str, container: Container, happened: str) -> str:
    complaint = last_complaint(container.spec.log.read_text(encoding="utf-8", errors="replace"))
    return (
        f"The primary container for production variant {variant} did not pass the ping health "
        f"check: {happened}. "
        f"Its log's last sentence: {complaint}"
    )


def last_complaint(log: str) -> str:
    """The last of a log's final lines that complains, or simply the last one."""
    lines = [line.strip() for line in log.split("\n") if line.strip()][-20:]
    complaints = [line for line in lines if COMPLAINT.search(line)]
    return (complaints or lines or ["(nothing)"])[-1]


def keep_log(log: Path, folder: Path) -> str:
    """Copies an instance's log out of the fleet's folder; returns a sentence with its path."""
    if not log.exists():
        return ""
    place = folder.with_name(f"{folder.name}.{log.parent.name}.log")
    place.write_bytes(log.read_bytes())
    return f" (log: {place})"
