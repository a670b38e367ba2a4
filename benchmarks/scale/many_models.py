"""Onboarding trees of many models: one YAML file, one lock and one endpoint each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.scale.lock_entries import lock_entry
from benchmarks.scale.measured_records import measured_records
from benchmarks.trees import MODEL, merged
from onboarding.deployment import Deployment, Target
from onboarding.lock import Lock, LockEntry, lock_path, lock_text
from onboarding.resolve import deployments, runtime_identity
from onboarding.tree import read_tree

Built = Callable[[Deployment, Target], LockEntry]


def measured_entry(deployment: Deployment, target: Target, **archive: Any) -> LockEntry:
    """A lock entry as long as a real one, of an archive that is nowhere unless `archive` tells its
    digest and size.
    """
    runtime = runtime_identity(deployment.platform, target.instance_type).name
    return lock_entry(deployment, target, **archive, **measured_records(target, runtime))


@dataclass(frozen=True, kw_only=True)
class ManyModels:
    """A tree of copies of the shipped model under other names, in one environment; `built` writes
    what their locks say.
    """

    root: Path
    environment: str
    built: Built = measured_entry

    def change(self, name: str, changes: Mapping[str, Any]) -> None:
        """Merges changes onto one model file, and locks the engine that it now needs."""
        path = self.root / "models" / f"{name}.yaml"
        spec = merged(yaml.safe_load(path.read_text(encoding="utf-8")), dict(changes))
        path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
        self.write_locks(name)

    def write_locks(self, *names: str) -> None:
        """Writes the lock of every target of these endpoints, or of all."""
        for deployment in deployments(read_tree(self.root), self.environment, names):
            for target in deployment.targets:
                lock = Lock(
                    model=target.model.name,
                    engines={target.engine_key: self.built(deployment, target)},
                )
                path = lock_path(self.root / deployment.environment.locks, target.model.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(lock_text(lock), encoding="utf-8")


def many_models(
    source: Path,
    root: Path,
    count: int,
    *,
    environment: str,
    changes: Mapping[str, Any] | None = None,
    built: Built = measured_entry,
) -> ManyModels:
    """Writes such a tree into an empty folder: the model of `source` with `changes`, its datasets,
    an environment.
    """
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source / "models" / "data", root / "models" / "data")
    spec = merged(
        yaml.safe_load((source / "models" / f"{MODEL}.yaml").read_text(encoding="utf-8")),
        dict(changes or {}),
    )
    for name in model_names(count):
        (root / "models" / f"{name}.yaml").write_text(
            yaml.safe_dump({**spec, "name": name}, sort_keys=False), encoding="utf-8"
        )
    facts = yaml.safe_load(
        (source / "environments" / f"{environment}.yaml").read_text(encoding="utf-8")
    )
    kept = {key: value for key, value in facts.items() if key not in ("models", "endpoints")}
    (root / "environments").mkdir()
    (root / "environments" / f"{environment}.yaml").write_text(
        yaml.safe_dump(kept, sort_keys=False), encoding="utf-8"
    )
    tree = ManyModels(root=root, environment=environment, built=built)
    tree.write_locks()
    return tree


def model_names(count: int) -> Iterator[str]:
    """model-001 and on."""
    return (f"model-{number:03d}" for number in range(1, count + 1))
