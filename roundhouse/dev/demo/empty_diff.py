"""The demos' check that files which nobody edited change nothing when they are deployed again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roundhouse.deploy.builds.source import folder_digest
from roundhouse.deploy.deployment import DeployResult
from roundhouse.errors import DeployFailedError

if TYPE_CHECKING:
    from local_cloud.address import CloudAddress


def require_empty_diff(folder: Path, cloud: CloudAddress, sources: str, done: DeployResult) -> None:
    """Raise DeployFailedError where the same sources in the same cloud changed a stack again.

    `folder` holds the record of the last demo, `sources` is the fingerprint of all that counts.
    """
    file = folder / "deployed.json"
    state = json.dumps({"cloud": [cloud.pid, cloud.pid_started], "sources": sources})
    is_same = file.is_file() and file.read_text(encoding="utf-8") == state
    if is_same and done.deployed.changed and not done.built:
        changed = ", ".join(done.deployed.changed)
        raise DeployFailedError(
            f"Nothing was edited since the last demo, and yet cdk deploy changed {changed}."
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(state, encoding="utf-8")


def fingerprint(code: Path, sources: Sequence[str]) -> str:
    """Return a digest of folders of the repository and of its CDK application."""
    digest = hashlib.sha256(folder_digest(code, sources).encode())
    for name in ("app.py", "cdk.json"):
        digest.update((code / name).read_bytes())
    return digest.hexdigest()
