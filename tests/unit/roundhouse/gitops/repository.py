"""A git repository of onboarding files with locks, whose `main` a change is compared with."""

from __future__ import annotations

import copy
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from roundhouse.gitops.compare import plan_against_git
from roundhouse.gitops.plan_document import EndpointChange, EnvironmentPlan, Plan
from roundhouse.paths import Paths, find_paths
from roundhouse.processes import Processes
from tests.fixtures.many_models import ManyModels, many_models

ROOT = Path(__file__).parents[4]
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.com")
BUDGET = {"accuracy": {"budget": {"mean": 0.985}}}
"""A change of a model that gives it another engine."""
SCALED = {"endpoint": {"scaling": {"min": 2, "max": 4}}}


def git(folder: Path, *arguments: str) -> str:
    result = subprocess.run(
        ("git", *IDENTITY, *arguments), cwd=folder, check=True, capture_output=True, text=True
    )
    return result.stdout.strip()


class Repository:
    """`dev` with two models, both built, committed on main."""

    def __init__(self, folder: Path) -> None:
        self.models: ManyModels = many_models(ROOT, folder, 2, environment="dev", changes=SCALED)
        self.root = folder
        git(folder, "init", "-q", "-b", "main", "--template=")
        self.commit()

    def copy(self, folder: Path) -> Repository:
        """The same files and commits in another folder."""
        found = copy.copy(self)
        found.root = Path(shutil.copytree(self.root, folder))
        found.models = replace(self.models, root=folder)
        return found

    @property
    def paths(self) -> Paths:
        return find_paths(ROOT, self.root)

    def commit(self, message: str = "a") -> str:
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "--allow-empty", "-m", message)
        return git(self.root, "rev-parse", "HEAD")

    def edit(self, file: str, changes: dict[str, Any]) -> None:
        """Merge keys into one YAML file, without building what it then needs."""
        path = self.root / file
        spec = yaml.safe_load(path.read_text())
        _merge(spec, changes)
        path.write_text(yaml.safe_dump(spec, sort_keys=False))

    def plan(self, against: str | None = None) -> Plan:
        return plan_against_git(self.paths, against, (), Processes())

    def changes(self) -> EnvironmentPlan:
        (environment,) = self.plan().environments
        return environment

    def only_endpoint(self) -> EndpointChange:
        (endpoint,) = self.changes().endpoints
        return endpoint


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        elif value is None:
            base.pop(key, None)
        else:
            base[key] = value
