"""A local cloud of a benchmark's own, in which every model server only answers its health check."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.scale.many_models import measured_entry
from local_cloud import lifecycle
from local_cloud.containers.images import OVERRIDES_FILE
from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry
from onboarding.names import artifact_bucket, engine_archive_path
from roundhouse.deploy import cdk
from roundhouse.deploy.deployment import EARLY_STACKS
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import LOCAL, Session, cloud_folder, open_session

PROGRAM = Path(__file__).parent / "programs" / "answers_ping.py"


@dataclass(frozen=True, kw_only=True)
class LocalDeployments:
    """A tree, and the folder beside it that holds its local cloud."""

    paths: Paths

    def session(self, *endpoints: str) -> Session:
        """Return the session of these endpoints, or of all; its report is dropped."""
        report = Report(console=Console(file=io.StringIO()))
        return open_session(self.paths, report, LOCAL, endpoints=endpoints)

    @contextmanager
    def cloud(self) -> Iterator[None]:
        """Run the local cloud, its account bootstrapped and the foundation deployed."""
        state = cloud_folder(self.paths)
        state.mkdir(parents=True, exist_ok=True)
        stand_in = {"python-server": {"command": [sys.executable, "-I", "-S", str(PROGRAM)]}}
        (state / OVERRIDES_FILE).write_text(json.dumps(stand_in), encoding="utf-8")
        lifecycle.start(self.paths.code, state)
        try:
            session = self.session()
            cdk.bootstrap(session)
            assembly = cdk.synthesise(session, EARLY_STACKS)
            cdk.deploy(session, assembly, EARLY_STACKS, concurrency=4)
            yield
        finally:
            lifecycle.stop(state)

    def publish(self, *endpoints: str) -> None:
        """Put the archive of every engine where its lock says."""
        session = self.session(*endpoints)
        bucket, s3 = artifact_bucket(session.environment), session.clients("s3")
        for deployment in session.deployments():
            for target in deployment.targets:
                key = engine_archive_path(target.engine_key)
                s3.put_object(Bucket=bucket, Key=key, Body=archive(target))


def archived_entry(deployment: Deployment, target: Target) -> LockEntry:
    """Return a lock entry as long as a real one, of `archive`."""
    content = archive(target)
    digest = hashlib.sha256(content).hexdigest()
    return measured_entry(deployment, target, archive_sha256=digest, archive_bytes=len(content))


def archive(target: Target) -> bytes:
    """Return a tar.gz of the engine's key alone: the same target gives the same bytes."""
    content, packed = target.engine_key.encode(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as files:
        info = tarfile.TarInfo("engine")
        info.size = len(content)
        files.addfile(info, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)
