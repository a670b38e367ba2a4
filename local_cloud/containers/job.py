"""A build or a training job: one container after another, ended when it is stopped."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_cloud.containers.container import Container, ContainerSpec, start_container
from local_cloud.containers.images import LocalImage
from local_cloud.settings import Settings, build_environment

STOP_SECONDS = 10.0


@dataclass(kw_only=True)
class Job:
    """A job and its record, as the API shows it."""

    record: dict[str, Any]
    account: str
    region: str
    folder: Path
    settings: Settings
    stopped: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    _container: Container | None = None

    def kill(self) -> None:
        """Kill the present container, and every later one at its start."""
        self.stopped.set()
        container = self._container
        if container is not None:
            container.process.kill()

    def environment(self, image: LocalImage) -> dict[str, str]:
        """Return the variables of a container, in which the job's own source is the only one."""
        home, cache = self.folder / "home", self.settings.state / "cache"
        for folder in (home, cache):
            folder.mkdir(parents=True, exist_ok=True)
        base = image.base_environment(self.settings.root)
        del base["PYTHONPATH"]
        return {
            **build_environment(),
            **base,
            "HOME": str(home),
            "XDG_CACHE_HOME": str(cache),
            "AWS_ENDPOINT_URL": self.settings.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.account,
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def run_container(
        self, spec: ContainerSpec, seconds: float, grace_seconds: float = 0.0
    ) -> int | None:
        """Return a container's exit code; None when it was ended because it took too long."""
        self._container = container = start_container(spec)
        if self.stopped.is_set():
            container.process.kill()
        try:
            return container.process.wait(seconds)
        except subprocess.TimeoutExpired:
            container.stop(grace_seconds)
            return None
        finally:
            container.process.kill()
            container.stop(0)
            self._container = None


def stop_jobs(jobs: Collection[Job]) -> None:
    """Kill every job that runs, when the cloud itself ends."""
    running = [job for job in jobs if not job.ended.is_set()]
    for job in running:
        job.kill()
    for job in running:
        job.ended.wait(STOP_SECONDS)
