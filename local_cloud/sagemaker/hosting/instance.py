"""One instance of a variant: a container started from its model's archive, and its client."""

from __future__ import annotations

import contextvars
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from local_cloud.account import object_keys, read_object
from local_cloud.containers.archive import ArchiveError, s3_location, unpack_model
from local_cloud.containers.container import SERVER_PORT, Container, ContainerSpec, start_container
from local_cloud.containers.images import ImageError, LocalImage, local_image
from local_cloud.containers.server_client import ServerClient
from local_cloud.sagemaker.definitions import containers
from local_cloud.sagemaker.hosting.multi_model import TargetModels
from local_cloud.settings import Settings

STARTUP_SECONDS = 60.0
STOP_SECONDS = 5.0
POLL_SECONDS = 0.03
PING_SECONDS = 2.0
STARTED_AT_ONCE = 4
COMPLAINT = re.compile(r"error|refus|fail|cannot|exception", re.IGNORECASE)


class NoInstance(Exception):
    """There is no instance that takes the request."""


class ServerError(Exception):
    """A variant's server did not become healthy; the message is the endpoint's failure reason."""


@dataclass(kw_only=True, eq=False)
class Instance:
    """A running instance; `in_flight` is guarded by its fleet's lock."""

    variant: str
    instance_type: str
    model_name: str
    folder: Path
    container: Container
    client: ServerClient
    target_models: TargetModels | None = None
    in_flight: int = 0
    release: Callable[[], object] | None = None
    """Frees its room on the instance that it is a copy on."""

    @property
    def log(self) -> Path:
        """Its server's output."""
        return self.container.spec.log

    def has_ended(self) -> bool:
        """Whether its server is gone."""
        return self.container.exit_status() is not None

    @property
    def processes(self) -> tuple[int, ...]:
        """The first processes of what runs on it."""
        return (self.container.process.pid,)

    @property
    def is_unused(self) -> bool:
        """Whether it can be spared: a model's own instance never is."""
        return False

    def terminate(self, grace_seconds: float) -> None:
        """Send SIGTERM with requests in flight, end what is left later, and remove its folder."""
        self.client.close()
        self.container.stop(grace_seconds, first_process_only=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.release is not None:
            self.release()

    def stop(self, drain_seconds: float) -> None:
        """Let requests in flight finish, then end the server and remove its folder."""
        deadline = time.monotonic() + drain_seconds
        while self.in_flight and not self.has_ended() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.terminate(STOP_SECONDS if drain_seconds else 0.0)


@contextmanager
def in_use(
    instances: Callable[[], Collection[Instance]],
    avoided: Collection[Instance],
    routing: Mapping[str, Any],
    turn: threading.Lock,
) -> Iterator[Instance]:
    """Pick an instance by the routing strategy: any, or a least busy one. Raises NoInstance.

    It is not stopped while it is in use. `turn` guards the instances.
    """
    with turn:
        candidates = [instance for instance in instances() if instance not in avoided]
        if not candidates:
            raise NoInstance
        if routing.get("RoutingStrategy", "RANDOM") != "RANDOM":
            least = min(instance.in_flight for instance in candidates)
            candidates = [item for item in candidates if item.in_flight == least]
        chosen = random.choice(candidates)
        chosen.in_flight += 1
    try:
        yield chosen
    finally:
        with turn:
            chosen.in_flight -= 1


def start_together(
    start: Callable[[], Instance], count: int, end: Callable[[list[Instance]], None]
) -> list[Instance]:
    """Start instances; where one fails, end the others and raise its error."""
    if count <= 0:
        return []
    with ThreadPoolExecutor(min(count, STARTED_AT_ONCE), thread_name_prefix="start") as starters:
        futures = [starters.submit(contextvars.copy_context().run, start) for _ in range(count)]
    started = [future.result() for future in futures if future.exception() is None]
    for error in filter(None, (future.exception() for future in futures)):
        end(started)
        raise error
    return started


def end_together(ends: Sequence[Callable[[], None]]) -> None:
    """Call what ends instances, all at once, and wait for it."""
    threads = [threading.Thread(target=end, daemon=True) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What one instance is started from; `given_up` is set when its fleet is stopped."""

    variant: Mapping[str, Any]
    instance_type: str
    model: Mapping[str, Any]
    folder: Path
    given_up: threading.Event

    @property
    def name(self) -> str:
        """The variant's name."""
        return str(self.variant["VariantName"])

    @property
    def definition(self) -> Mapping[str, Any]:
        """The model's first container, which takes the requests."""
        return containers(self.model)[0]

    @property
    def is_multi_model(self) -> bool:
        """Whether target models are loaded at their first request."""
        return self.definition.get("Mode") == "MultiModel"


def start_instance(launch: Launch, settings: Settings) -> Instance:
    """Start an instance and wait until it is healthy. Raises ServerError."""
    model_folder = launch.folder / "model"
    url = model_data_url(launch.definition)
    try:
        model_folder.mkdir(parents=True)
        image = local_image(str(launch.definition["Image"]), settings)
        if not launch.is_multi_model and url is not None:
            fetch_model_data(url, model_folder)
        container = start_container(_container_spec(launch, image, model_folder, settings))
    except (ImageError, ArchiveError, OSError) as error:
        raise ServerError(str(error)) from error
    client = ServerClient(container.connection)
    try:
        _wait_until_healthy(launch, container, client)
    except ServerError as error:
        container.stop(0)
        raise ServerError(
            f"{error}{_keep_log(container.spec.log, launch.folder.parent)}"
        ) from error
    except BaseException:
        container.stop(0)
        raise
    target_models = TargetModels(
        client=client, prefix=str(url), folder=launch.folder / "models", read=read_object
    )
    return Instance(
        variant=launch.name,
        instance_type=launch.instance_type,
        model_name=str(launch.model["ModelName"]),
        folder=launch.folder,
        container=container,
        client=client,
        target_models=target_models if launch.is_multi_model else None,
    )


def _container_spec(
    launch: Launch, image: LocalImage, model_folder: Path, settings: Settings
) -> ContainerSpec:
    return ContainerSpec(
        command=image.command,
        environment={
            **image.base_environment(settings.root),
            "HOME": str(launch.folder),
            **({"SAGEMAKER_MULTI_MODEL": "true"} if launch.is_multi_model else {}),
            **(launch.definition.get("Environment") or {}),
            "SM_MODEL_DIR": str(model_folder),
            "SAGEMAKER_BIND_TO_PORT": str(SERVER_PORT),
            "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        },
        folder=launch.folder,
        log=launch.folder / "server.log",
    )


def _wait_until_healthy(launch: Launch, container: Container, client: ServerClient) -> None:
    """Wait until the server answers `/ping` with 200; its last log line explains a failure."""
    seconds = launch.variant.get("ContainerStartupHealthCheckTimeoutInSeconds", STARTUP_SECONDS)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if launch.given_up.is_set():
            raise ServerError(
                f"production variant {launch.name} was stopped while an instance of it started."
            )
        if client.is_healthy(PING_SECONDS):
            return
        status = container.exit_status()
        if status is not None:
            raise _unhealthy(launch, container, f"its server ended with status {status}")
        time.sleep(POLL_SECONDS)
    raise _unhealthy(launch, container, f"its server was not healthy within {seconds:g} s")


def _unhealthy(launch: Launch, container: Container, cause: str) -> ServerError:
    complaint = last_complaint(container.spec.log.read_text(encoding="utf-8", errors="replace"))
    return ServerError(
        f"The primary container for production variant {launch.name} did not pass the ping health "
        f"check: {cause}. Its log's last sentence: {complaint}"
    )


def last_complaint(log: str) -> str:
    """Return the last error among a log's final lines, or simply the last line."""
    lines = [line.strip() for line in log.split("\n") if line.strip()][-20:]
    complaints = [line for line in lines if COMPLAINT.search(line)]
    return (complaints or lines or ["(nothing)"])[-1]


def _keep_log(log: Path, folder: Path) -> str:
    """Copy an instance's log out of the fleet's folder; return a sentence with its path."""
    if not log.exists():
        return ""
    path = folder.with_name(f"{folder.name}.{log.parent.name}.log")
    path.write_bytes(log.read_bytes())
    return f" (log: {path})"


def model_data_url(definition: Mapping[str, Any]) -> str | None:
    """Return where a container's model data lies; one that ends with / is a prefix."""
    source = (definition.get("ModelDataSource") or {}).get("S3DataSource") or {}
    url = definition.get("ModelDataUrl") or source.get("S3Uri")
    return None if url is None else str(url)


def fetch_model_data(url: str, folder: Path) -> None:
    """Unpack an archive, or copy the files of a prefix. Raises ArchiveError."""
    bucket, key = s3_location(url)
    names = object_keys(bucket, key) if url.endswith("/") else ()
    content = None if url.endswith("/") else read_object(bucket, key)
    if content is not None:
        unpack_model(content, folder, url)
    elif names:
        for name in names:
            _copy_file(bucket, name, folder, name.removeprefix(key))
    else:
        raise ArchiveError(
            f'Failed to download model data for container "container_1" from URL: "{url}". Please '
            "ensure that there is an object located at the URL and that the role passed to "
            "CreateModel has permissions to download the object."
        )


def _copy_file(bucket: str, key: str, folder: Path, name: str) -> None:
    if ".." in PurePosixPath(name).parts:
        raise ArchiveError(f"the model data s3://{bucket}/{key} lies outside its prefix")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(read_object(bucket, key) or b"")
