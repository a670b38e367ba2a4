"""The file of an archive that names the key of its plan.

A file of its own: servers of before refuse a manifest with a field that they do not know. The
manifest lists its digest, so what signs the manifest signs the key.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath

from onboarding.manifest import Manifest

PLAN_KEY_NAME = "plan.json"


def plan_key_path(engine_file: str) -> str:
    """Return the archive path of the file, beside the engine file."""
    return str(PurePosixPath(engine_file).with_name(PLAN_KEY_NAME))


def plan_key_text(plan_key: str) -> str:
    """Return the content of the file: JSON."""
    return json.dumps({"plan_key": plan_key}) + "\n"


def is_of_plan(manifest: Manifest, plan_key: str) -> bool:
    """Return whether the plan in a manifest's archive has a key; False for archives of before."""
    digest = hashlib.sha256(plan_key_text(plan_key).encode()).hexdigest()
    return manifest.files.get(plan_key_path(manifest.engine_file)) == digest
