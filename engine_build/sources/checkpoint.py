"""The JSON files of a checkpoint folder: what they say about how the model is meant to be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine_build.errors import SourceFault


def configuration(folder: Path) -> dict[str, Any]:
    """config.json; empty when there is none."""
    config: dict[str, Any] = read_json(folder / "config.json", {})
    return config


def class_names(config: dict[str, Any]) -> tuple[str, ...] | None:
    """Class names in the order of the logits; None when the configuration has none."""
    names = config.get("id2label")
    if not isinstance(names, dict):
        return None
    missing = [index for index in range(len(names)) if str(index) not in names]
    if missing:
        raise SourceFault(
            f"config.json names {len(names)} classes, but not class {missing[0]}; number them from "
            "0."
        )
    return tuple(str(names[str(index)]) for index in range(len(names)))


def read_json(path: Path, default: Any) -> Any:
    """A file's content, of the default's kind, or the default where there is no file.

    Raises SourceFault.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default
    except (ValueError, RecursionError) as error:
        raise SourceFault(
            f"{path.name} of the checkpoint is no JSON ({error}); fetch or save it again."
        ) from error
    if not isinstance(found, type(default)):
        wanted = "an object" if isinstance(default, dict) else "a list"
        raise SourceFault(
            f"{path.name} of the checkpoint holds {type(found).__name__}, not {wanted}; fetch or "
            "save it again."
        )
    return found
