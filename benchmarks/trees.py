"""Onboarding trees that benchmarks build from: this repository's, with a few words changed."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import yaml

MODEL = "sentence-embedder"
SEARCH = "models/data/search-sentences.txt"


def tree_with(root: Path, folder: Path, changes: dict[str, Any], *, name: str = MODEL) -> Path:
    """A copy of the onboarding tree in which one model file is merged with `changes`.

    Other models are left out.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("models", "environments"):
        shutil.copytree(root / part, folder / part)
    spec = yaml.safe_load((root / f"models/{MODEL}.yaml").read_text(encoding="utf-8"))
    for other in (folder / "models").glob("*.yaml"):
        other.unlink()
    spec = merge(spec, {"name": name, "endpoint": {"instance_type": "ml.c7i.large"}, **changes})
    (folder / f"models/{name}.yaml").write_text(
        yaml.safe_dump(spec, sort_keys=False), encoding="utf-8"
    )
    (folder / "environments/local.yaml").write_text(_plain_environment(root), encoding="utf-8")
    for other in (folder / "environments").glob("*.yaml"):
        if other.name != "local.yaml":
            other.unlink()
    return folder


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` on top.

    Mappings are merge, None removes a key, the rest is replaced.
    """
    result = dict(base)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain_environment(root: Path) -> str:
    spec = yaml.safe_load((root / "environments/local.yaml").read_text(encoding="utf-8"))
    kept = ("name", "account", "region", "platform")
    return yaml.safe_dump({key: spec[key] for key in kept}, sort_keys=False)
