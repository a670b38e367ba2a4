"""Onboarding trees that benchmarks build from, this repository's with changes, and the builder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from benchmarks.context import Context
from roundhouse.processes import Command

MODEL = "sentence-embedder"
PYTHON_SERVER = {
    "server": "python",
    "dynamic_batching": {"preferred_batch_sizes": [], "max_queue_delay_us": 0},
}
"""The shipped model's `serving` on the Python server, which waits for no fuller batch."""
SEARCH = "models/data/search-sentences.txt"


def tree_with(
    root: Path, folder: Path, changes: dict[str, Any], *, environment: str = "local"
) -> Path:
    """Write a copy of the onboarding tree that holds one model, with changes, and one environment.

    The environment keeps what names its account and platform.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "models/data", folder / "models/data")
    on_cpu = {"endpoint": {"instance_type": "ml.c7i.large"}} if environment == "local" else {}
    spec = merge(read_yaml(root / f"models/{MODEL}.yaml"), on_cpu | changes)
    write_yaml(folder / f"models/{MODEL}.yaml", spec)
    file = f"environments/{environment}.yaml"
    kept = {"name", "account", "region", "platform"}
    values = {key: value for key, value in read_yaml(root / file).items() if key in kept}
    write_yaml(folder / file, values)
    return folder


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping of a YAML file."""
    spec: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return spec


def write_yaml(path: Path, spec: dict[str, Any]) -> None:
    """Write a mapping as YAML, in its own order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with changes: mappings are merged, None removes a key, the rest is replaced."""
    result = dict(base)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result


def build_command(
    context: Context, tree: Path, out: Path, store: Path, *more: str, environment: str = "local"
) -> Command:
    """Return the command that builds the model of a tree into `out`, and publishes to `store`."""
    folders = ("--root", str(tree), "--out", str(out), "--publish", str(store))
    subject = ("--environment", environment, "--model", MODEL, "--format", "json")
    argv = (str(context.paths.venv_python("builder")), "-m", "engine_build", *subject, *folders)
    return Command(argv=(*argv, *more), folder=context.paths.code, environment=context.variables)
