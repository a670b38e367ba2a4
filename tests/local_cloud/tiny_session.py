"""A session with one tiny model.

Its own onboarding tree, its own local cloud, everything real, in seconds.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console

from container.wire import text_request
from local_cloud import lifecycle
from local_cloud.settings import SECONDS_PER_MINUTE
from onboarding.lock import LockEntry, read_lock, write_lock_entry
from onboarding.names import artifact_bucket
from roundhouse import invocation
from roundhouse.aws.clients import object_bytes
from roundhouse.deploy import deployment
from roundhouse.paths import Paths
from roundhouse.processes import Run
from roundhouse.report import Report
from roundhouse.session import LOCAL, Session, cloud_folder, open_session
from tests.local_cloud.account import MOMENT_SECONDS, processes_with, until
from tests.local_cloud.synthesis import run_synthesis_here

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURE = REPOSITORY / "tests" / "fixtures" / "tiny_embedder"
MODEL = """\
name: tiny
task: text-embedding
source: {{onnx: models/tiny/model.onnx, sha256: {sha256}}}
engine:
  precision: {precision}
  optimization_profiles: [{{batch: [1, 2, 4], sequence: [2, 8, 16]}}]
  calibration: {{dataset: models/data/calibration.txt, samples: 12}}
accuracy:
  dataset: models/data/sentences.txt
  budget: {{mean: {mean}}}
serving: {{server: python}}
endpoint: {endpoint}
"""
ALONE = "{instance_type: ml.c7i.large}"
PAUSE_SECONDS = 0.15
PACE = "0.3"
"""Seconds of a minute: an update waits for ten minutes, which nobody watches here."""
QUESTION = text_request(["a red train"])[0]
SHARED = (
    "name: shared\nserver: triton\ninstance_type: ml.c7i.large\nlatency_slo_ms: "
    "50\nscaling: {min: 1, max: 1}\n"
)
ENVIRONMENT = """\
name: local
account: "000000000000"
region: us-east-1
platform: triton-24.10-cpu
locks: build/local/locks
builds: {at_once: 2, poll_seconds: 1}
"""
WORDS = (
    "bird",
    "sat",
    "mat",
    "fast",
    "red",
    "train",
    "ran",
    "over",
    "green",
    "track",
    "under",
    "blue",
    "signal",
    "house",
)


@dataclass(frozen=True, kw_only=True)
class TinySession:
    """The paths of a tiny session, and what runs its commands; its cloud may be stopped."""

    paths: Paths
    run: Run = run_synthesis_here

    def start(self) -> Session:
        """The session, its local cloud started when it is not up."""
        lifecycle.start(self.paths.code, cloud_folder(self.paths))
        report = Report(console=Console(file=io.StringIO()))
        return open_session(self.paths, report, LOCAL, self.run)

    def stop(self) -> None:
        """Nothing of it is left."""
        lifecycle.stop(cloud_folder(self.paths))

    def write_model(
        self, network: bytes, *, precision: str = "fp32", mean: float = 0.99, endpoint: str = ALONE
    ) -> None:
        """The model file and its network.

        Other bytes are another engine, and so is another precision or budget.
        """
        folder = self.paths.tree / "models" / "tiny"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(network)
        shutil.copyfile(FIXTURE / "tokenizer.json", folder / "tokenizer.json")
        (folder.parent / "tiny.yaml").write_text(
            MODEL.format(
                sha256=hashlib.sha256(network).hexdigest(),
                precision=precision,
                mean=mean,
                endpoint=endpoint,
            )
        )

    def write_sharing_models(self, *names: str) -> None:
        """A multi-model endpoint, and models of the same network that join it."""
        (self.paths.tree / "endpoints" / "shared.yaml").write_text(SHARED)
        for name in names:
            self.write_like(name, "shared")

    def write_like(self, name: str, endpoint: str, *, serving: str | None = None) -> Path:
        """A model of the same network, with an endpoint of its own or another's; the file."""
        lines = (self.paths.tree / "models" / "tiny.yaml").read_text().splitlines()
        common = [line for line in lines if not line.startswith(("name:", "serving:", "endpoint:"))]
        own = [
            f"name: {name}",
            *common,
            *([] if serving is None else [f"serving: {serving}"]),
            f"endpoint: {endpoint}",
        ]
        path = self.paths.tree / "models" / f"{name}.yaml"
        path.write_text("\n".join(own) + "\n")
        return path

    @property
    def lock(self) -> Path:
        """The tiny model's lock."""
        return self.paths.tree / "build" / "local" / "locks" / "tiny.lock.yaml"


def new_tiny_session(place: Path, run: Run = run_synthesis_here) -> TinySession:
    """Writes the onboarding tree of a tiny session."""
    paths = Paths(code=REPOSITORY, tree=place, build=place / "build")
    session = TinySession(paths=paths, run=run)
    for folder in ("models/data", "endpoints", "environments"):
        (place / folder).mkdir(parents=True)
    texts = {
        " ".join((WORDS[i], WORDS[j], WORDS[(i + j) % len(WORDS)]))
        for i in range(12)
        for j in range(12)
    }
    (place / "models" / "data" / "sentences.txt").write_text("\n".join(sorted(texts)) + "\n")
    (place / "models" / "data" / "calibration.txt").write_text(
        "".join(f"{word} {word} the\n" for word in WORDS)
    )
    (place / "environments" / "local.yaml").write_text(ENVIRONMENT)
    session.write_model(sound_network())
    return session


@contextlib.contextmanager
def session_at(
    place: Path, *, seconds_per_minute: str = PACE, run: Run = run_synthesis_here
) -> Iterator[TinySession]:
    """A tiny session at some pace.

    Afterwards no process of it is left, and the environment is as it was.
    """
    tiny = new_tiny_session(place, run)
    with mock.patch.dict(os.environ, {SECONDS_PER_MINUTE: seconds_per_minute}):
        try:
            yield tiny
        finally:
            tiny.stop()
    assert wait_for_processes(place)


def sound_network() -> bytes:
    return (FIXTURE / "model.onnx").read_bytes()


def weighted_network() -> bytes:
    """A sound network that loses something in INT8."""
    return (FIXTURE / "weighted.onnx").read_bytes()


def deploy_all(session: Session, *, rebuild_gone: bool = False) -> deployment.DeployResult:
    options = deployment.DeployOptions(yes=True, concurrency=4, rebuild_gone=rebuild_gone)
    return deployment.deploy(session, options)


def vector(session: Session) -> invocation.Vector:
    """What the endpoint answers now."""
    address = invocation.Address(endpoint="local-tiny", target_model=None)
    return invocation.invoke_texts(session.clients("sagemaker-runtime"), address, ["a red train"])[
        0
    ]


def with_another_engine(data: bytes) -> bytes:
    """The archive, with other bytes in its engine file."""
    result = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as source,
        tarfile.open(fileobj=result, mode="w") as target,
    ):
        for member in source.getmembers():
            content = source.extractfile(member)
            body = b"" if content is None else content.read()
            if member.name.endswith("model.onnx"):
                body = body[:-1] + bytes([body[-1] ^ 1])
            target.addfile(member, io.BytesIO(body))
    return gzip.compress(result.getvalue(), mtime=0)


def lock_entry(tiny: TinySession) -> LockEntry:
    """The one engine of the tiny model's lock."""
    (entry,) = read_lock(tiny.lock.parent, "tiny").engines.values()
    return entry


def archive_bytes(session: Session, entry: LockEntry) -> bytes:
    """An engine's archive in S3."""
    return object_bytes(
        session.clients("s3"), artifact_bucket(session.environment), entry.archive.path
    )


def publish(session: Session, entry: LockEntry, data: bytes) -> None:
    """Puts other bytes in the place of an engine's archive."""
    session.clients("s3").put_object(
        Bucket=artifact_bucket(session.environment), Key=entry.archive.path, Body=data
    )


@contextlib.contextmanager
def sick_engine(session: Session, tiny: TinySession, **measured: float) -> Iterator[None]:
    """The engine in S3 is not the one its manifest names.

    Lock and digest agree, so that only a new server sees it.

    `measured` are fields of its manifest that change with it.
    """
    entry = lock_entry(tiny)
    good = archive_bytes(session, entry)
    bad, manifest = with_another_engine(good), entry.manifest.model_copy(update=measured)
    changed = {
        "sha256": hashlib.sha256(bad).hexdigest(),
        "size_bytes": len(bad),
        "manifest_sha256": manifest.sha256(),
    }
    sick = {"archive": entry.archive.model_copy(update=changed), "manifest": manifest}
    publish(session, entry, bad)
    write_lock_entry(tiny.lock.parent, "tiny", entry.model_copy(update=sick))
    try:
        yield
    finally:
        publish(session, entry, good)
        write_lock_entry(tiny.lock.parent, "tiny", entry)


class Caller:
    """Asks endpoints by a client over the wire, for `steady_load`.

    An answer is greeted by the variant that gave it.
    """

    def __init__(self, clients: Callable[[str], Any]) -> None:
        self.runtime = clients("sagemaker-runtime")
        self.waiting = threading.Event()

    def invoke(self, endpoint: str, body: bytes = QUESTION, **options: Any) -> dict[str, Any]:
        # A pause leaves the machine to the deploy that is tested.
        self.waiting.wait(PAUSE_SECONDS)
        answer = self.runtime.invoke_endpoint(
            EndpointName=endpoint, ContentType="application/json", Body=body, **options
        )
        outputs = json.loads(answer["Body"].read())["outputs"]
        return {"greeting": answer["InvokedProductionVariant"], "rows": outputs[0]["shape"][0]}


def wait_for_processes(place: Path, but: Collection[int] = ()) -> bool:
    """Waits until no process, but those, names a folder.

    One that was killed is gone a moment later.
    """
    return bool(until(lambda: not (set(processes_of(place)) - set(but)), MOMENT_SECONDS))


def processes_of(place: Path) -> list[int]:
    """Processes whose command line names a folder."""
    return processes_with("cmdline", str(place))
