"""Deployments and lock entries for tests, made from the repository's own files."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path

from onboarding.deployment import Deployment, Target
from onboarding.lock import ArchiveRecord, LockEntry
from onboarding.manifest import BuilderRecord, Manifest
from onboarding.plan_source import plan_key_path, plan_key_text
from onboarding.resolve import deployments, runtime_identity
from onboarding.tree import read_tree

REPOSITORY = Path(__file__).resolve().parents[3]
ENGINE_FILE = "m/1/model.onnx"


def copied_tree(place: Path) -> Path:
    """A copy of the repository's onboarding tree, without locks."""
    for folder in ("models", "endpoints", "environments"):
        shutil.copytree(
            REPOSITORY / folder, place / folder, ignore=shutil.ignore_patterns("*.lock.yaml")
        )
    return place


def local_deployments(tree: Path) -> tuple[Deployment, ...]:
    return deployments(read_tree(tree), "local")


def entry_for(deployment: Deployment, target: Target, **changes) -> LockEntry:
    """A lock entry that fits; `changes` replace fields of its manifest."""
    manifest = Manifest(
        model=target.model.name,
        task=target.model.task,
        engine_key=target.engine_key,
        network_keys=target.network_keys,
        platform=deployment.platform.name,
        runtime=runtime_identity(target.model, deployment.platform, target.instance_type),
        compute_capability=target.instance_type.compute_capability,
        gpu=target.plan_gpu,
        requested_precision=target.model.engine.precision,
        precision="fp32",
        decision="a test",
        engine_file=ENGINE_FILE,
        inputs=(),
        outputs=(),
        optimization_profiles=(),
        max_batch_size=32,
        files=plan_files(ENGINE_FILE, target.plan_key),
        accuracy=(),
        compile_checks=(),
        benchmark=(),
        load_seconds=0.1,
        host_memory_mib=1.0,
        builder=BuilderRecord(machine="a test", built_at="2026-01-01T00:00:00Z"),
    ).model_copy(update=changes)
    path = f"engines/{target.engine_key}/model.tar.gz"
    archive = ArchiveRecord(
        path=path, sha256="a" * 64, size_bytes=10, manifest_sha256=manifest.sha256()
    )
    return LockEntry(archive=archive, manifest=manifest)


def plan_files(engine_file: str, plan_key: str | None) -> dict[str, str]:
    """What a manifest lists of the key of its plan; an ensemble has none."""
    if plan_key is None:
        return {}
    digest = hashlib.sha256(plan_key_text(plan_key).encode()).hexdigest()
    return {plan_key_path(engine_file): digest}


def with_entry(target: Target, entry: LockEntry | None) -> Target:
    return dataclasses.replace(target, lock_entry=entry)
