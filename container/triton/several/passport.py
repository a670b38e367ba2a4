"""The passport of an archive with engines for several compute capabilities, as its tokenizer inside
Triton reads it.

Carried as `passport.py` into such an archive, with the `passport.py` of one engine beside it as
`one_passport.py`: the carried
tokenizer is the one that the engines were published with, and does not know the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from one_passport import (  # type: ignore[import-not-found]
    MANIFEST_NAME,
    PIN,
    Refused,
    longest_sequence,
    read_manifest,
    refuse_changed_files,
    refuse_foreign_runtime,
    running_compute_capability,
    running_tensorrt,
    sequence_buckets,
)

__all__ = [
    "Refused",
    "longest_sequence",
    "refuse_foreign_runtime",
    "running_compute_capability",
    "running_tensorrt",
    "sequence_buckets",
    "verified_manifest",
]
"""What the tokenizer asks of a passport."""


def verified_manifest(
    archive: Path, running: Callable[[], str | None] = running_compute_capability
) -> dict[str, Any]:
    """The manifest of the engine for this GPU, of an archive whose every byte is the one it names.

    Raises Refused.
    """
    manifest = read_manifest(archive, os.environ.get(PIN) or None)
    refuse_changed_files(archive, manifest["files"])
    engines = json.loads((archive / MANIFEST_NAME).read_bytes())["engines"]
    return {**manifest, **_engine(engines, running())}


def _engine(engines: Mapping[str, Any], capability: str | None) -> dict[str, str]:
    """What differs between the engines.

    No driver to ask, as in the passport of one engine: nothing to refuse.
    """
    if capability is None:
        capability = min(engines)
    if capability not in engines:
        held = " and ".join(sorted(engines, key=_number))
        sentence = f"the archive holds engines for compute capability {held}, this server runs {capability}"
        raise Refused(f"Refused: {sentence}; add one for this target, or deploy on those.")
    return {"compute_capability": capability, "engine_file": engines[capability]["engine_file"]}


def _number(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split(".")))
