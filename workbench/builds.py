"""Builds the engines an environment lacks through its CodeBuild projects, and records them in the locks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from onboarding.checkpoint import checkpoint_files
from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry, write_lock_entry
from onboarding.names import artifact_bucket, builder_project, engine_archive_path, engine_record_path
from onboarding.platform import build_route
from workbench import codebuild
from workbench.aws import bucket_exists, calling, object_bytes, object_exists
from workbench.errors import BuildFailed, DeskError, RoundhouseError
from workbench.processes import Command
from workbench.road import Road, sound_tree
from workbench.source_zip import source_path, source_zip

AT_ONCE = 8
"""Builds at once in AWS; one on this machine, where they would only disturb each other's measurements."""

BESIDE_ONNX = ("tokenizer.json", "config.json")
"""What a text network brings along: its tokenizer, and its class names."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One engine that must be built, and why."""

    deployment: Deployment
    target: Target
    why: str


def wanted(road: Road, models: Collection[str] = ()) -> tuple[Wanted, ...]:
    """Engines with no lock entry, and those whose archive is gone from S3; of `models` only, when any are named."""
    pairs = [(deployment, target) for deployment in road.deployments() for target in deployment.targets]
    unknown = sorted(set(models) - {target.model.name for _, target in pairs})
    if unknown:
        known = ", ".join(target.model.name for _, target in pairs)
        raise RoundhouseError(f"--model {unknown[0]}: no such model in environment {road.environment.name}; allowed: {known}.")
    chosen = [(d, t) for d, t in pairs if not models or t.model.name in models]
    reasons = [(d, t, _why(road, t)) for d, t in chosen]
    return tuple(Wanted(deployment=d, target=t, why=why) for d, t, why in reasons if why is not None)


def waves(orders: Sequence[Wanted]) -> tuple[tuple[Wanted, ...], ...]:
    """Orders that may run together; who needs a network that an earlier one makes waits for it. Richest first."""
    left = sorted(orders, key=lambda order: (-len(order.target.network_keys), order.target.engine_key))
    made: set[str] = set()
    result: list[tuple[Wanted, ...]] = []
    while left:
        making: set[str] = set()
        wave: list[Wanted] = []
        for order in left:
            new = set(order.target.network_keys.values()) - made
            if not new & making:
                wave.append(order)
                making |= new
        left = [order for order in left if order not in wave]
        made |= making
        result.append(tuple(wave))
    return tuple(result)


def build_all(road: Road, orders: Sequence[Wanted]) -> tuple[LockEntry, ...]:
    """Builds every order and writes each lock as soon as its engine is published.

    Raises BuildFailed with the first reason, once the builds beside it have ended and are recorded.
    """
    if not orders:
        return ()
    source = upload_source(road)
    entries: list[LockEntry] = []
    for wave in waves(orders):
        at_once = 1 if road.is_local else AT_ONCE
        for begin in range(0, len(wave), at_once):
            entries.extend(_build_together(road, wave[begin : begin + at_once], source))
    return tuple(entries)


def upload_source(road: Road) -> str:
    """Publishes the source zip and returns `bucket/key`."""
    tree = sound_tree(road.places)
    networks = [spec.source.onnx for spec in tree.models.values() if spec.source.onnx is not None]
    checkpoints = [spec.source.checkpoint for spec in tree.models.values() if spec.source.checkpoint is not None]
    files = [f"{folder}/{name}" for folder in checkpoints for name in checkpoint_files(road.places.tree / folder)]
    beside = [PurePosixPath(network).with_name(name).as_posix() for network in networks for name in BESIDE_ONNX]
    zipped = source_zip(road.places.code, road.places.tree, (*tree.dataset_digests, *networks, *beside, *files))
    bucket, key = artifact_bucket(road.environment), source_path(zipped)
    s3 = road.clients("s3")
    if not bucket_exists(s3, bucket):
        command = f"`roundhouse deploy --env {road.environment.name}`"
        raise DeskError(f"s3://{bucket}: is not there yet; {command} makes it, then builds and deploys what is missing.")
    if not object_exists(s3, bucket, key):
        with calling(f"Publishing the build's sources to s3://{bucket}/{key}"):
            s3.put_object(Bucket=bucket, Key=key, Body=zipped)
    return f"{bucket}/{key}"


def _build_together(road: Road, orders: Sequence[Wanted], source: str) -> tuple[LockEntry, ...]:
    started: list[tuple[Wanted, str]] = []
    outcomes: list[LockEntry | BuildFailed] = []
    try:
        for order in orders:
            started.append((order, codebuild.start(road.clients("codebuild"), _order(road, order, source))))
        for order, build_id in started:
            outcomes.append(_finish(road, order, build_id))
    except KeyboardInterrupt:
        for _, build_id in started:
            codebuild.stop(road.clients("codebuild"), build_id)
        raise
    for outcome in outcomes:
        if isinstance(outcome, BuildFailed):
            raise outcome
    return tuple(outcome for outcome in outcomes if isinstance(outcome, LockEntry))


def _finish(road: Road, order: Wanted, build_id: str) -> LockEntry | BuildFailed:
    name = order.target.model.name
    try:
        with road.report.step(f"Building {name} ({order.why})") as step:
            every = 0.5 if road.is_local else 5.0
            codebuild.follow(road.clients, build_id, codebuild.Follower(every_seconds=every, on_line=step.update))
            entry = record(road, order)
            step.done(summary(entry))
            return entry
    except BuildFailed as error:
        return BuildFailed(f"{name}: {error}")


def record(road: Road, order: Wanted) -> LockEntry:
    """Reads what a build published about its engine and writes it into the model's lock."""
    bucket, key = artifact_bucket(road.environment), engine_record_path(order.target.engine_key)
    data = object_bytes(road.clients("s3"), bucket, key)
    if data is None:
        raise BuildFailed(
            f"{order.target.model.name}: the build ended well, but s3://{bucket}/{key} is not there: it built another key; "
            "are all files of the tree saved and readable by the build?"
        )
    entry = LockEntry.model_validate_json(data)
    write_lock_entry(road.places.tree / road.environment.locks, order.target.model.name, entry)
    return entry


def summary(entry: LockEntry) -> str:
    """An engine in a few words."""
    size = entry.archive.size_bytes / 1e6
    return f"{entry.manifest.precision} engine {entry.manifest.engine_key}, {size:.0f} MB"


def _why(road: Road, target: Target) -> str | None:
    if target.lock_entry is None:
        return "not in the lock"
    bucket = artifact_bucket(road.environment)
    if not object_exists(road.clients("s3"), bucket, engine_archive_path(target.engine_key)):
        return "in the lock, but gone from S3"
    return None


def _order(road: Road, order: Wanted, source: str) -> codebuild.BuildOrder:
    environment = order.deployment.environment
    route = build_route(order.deployment.instance_type.compute_capability, fleet=environment.gpu_fleet_arn is not None)
    if route == "training-job":
        raise BuildFailed(
            f"{order.target.model.name}: CodeBuild has no GPU of compute capability "
            f"{order.deployment.instance_type.compute_capability}; name a gpu_fleet_arn in environments/{environment.name}.yaml, "
            "or use an instance type with an A10G (ml.g5)."
        )
    return codebuild.BuildOrder(
        project=builder_project(environment, route),
        source=source,
        variables={"ROUNDHOUSE_MODEL": order.target.model.name, "ROUNDHOUSE_SOURCE_COMMIT": _commit(road)},
    )


def _commit(road: Road) -> str:
    outcome = road.run(Command(argv=("git", "rev-parse", "HEAD"), folder=road.places.code, environment=road.variables))
    return outcome.output.strip() if outcome.code == 0 else "unknown"
