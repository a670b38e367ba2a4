"""/opt/ml of one training job: its inputs, and its results once it has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ministack.services import s3

from local_cloud.containers.archive import s3_location
from local_cloud.ministack.account import read_object, write_object

LONGEST_REASON = 1024
CHECKPOINTS = "/opt/ml/checkpoints"


class DownloadError(Exception):
    """A channel has no data; the message is SageMaker's failure reason."""


@dataclass(frozen=True, kw_only=True)
class OptMl:
    """The folder that stands for /opt/ml, and the request whose job it serves."""

    folder: Path
    request: Mapping[str, Any]

    def lay_out(self) -> None:
        """Write configuration, channels and checkpoints of an earlier job. Raises DownloadError."""
        for name in ("input/config", "input/data", "output/data", "model", "checkpoints"):
            (self.folder / name).mkdir(parents=True)
        values = json.dumps(dict(self.request.get("HyperParameters") or {}))
        (self.folder / "input/config/hyperparameters.json").write_text(values, encoding="utf-8")
        for channel in self.request.get("InputDataConfig") or ():
            _download(channel, self.folder / "input/data" / channel["ChannelName"])
        if self._checkpoints is not None:
            _copy_objects(self._checkpoints, self._checkpoint_folder)

    def keep(self) -> None:
        """Upload checkpoints, whatever came of the job; results and model, nobody reads here."""
        if self._checkpoints is not None:
            _upload_folder(self._checkpoint_folder, self._checkpoints)

    def failure(self) -> str:
        """Return the reason that the job left."""
        path = self.folder / "output/failure"
        if not path.is_file():
            return ""
        return path.read_text(encoding="utf-8", errors="replace")[:LONGEST_REASON].strip()

    @property
    def _checkpoints(self) -> str | None:
        config: Mapping[str, str] = self.request.get("CheckpointConfig") or {}
        return config.get("S3Uri")

    @property
    def _checkpoint_folder(self) -> Path:
        config: Mapping[str, str] = self.request.get("CheckpointConfig") or {}
        return self.folder / Path(config.get("LocalPath", CHECKPOINTS)).relative_to("/opt/ml")


def _download(channel: Mapping[str, Any], folder: Path) -> None:
    uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
    bucket, key = s3_location(uri)
    single = read_object(bucket, key)
    folder.mkdir(parents=True)
    if single is not None:
        (folder / Path(key).name).write_bytes(single)
    elif not _copy_objects(uri, folder):
        raise DownloadError(
            f'ClientError: Data download failed: No S3 objects found under S3 URL "{uri}" given '
            "in input data source."
        )


def _copy_objects(uri: str, folder: Path) -> int:
    """Copies what lies under an S3 prefix; how many objects."""
    bucket, prefix = s3_location(uri)
    below = prefix.rstrip("/") + "/"
    objects = s3._buckets.get(bucket, {"objects": {}})["objects"]
    keys = sorted(key for key in objects if key.startswith(below))
    for key in keys:
        path = folder / key.removeprefix(below)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(read_object(bucket, key) or b"")
    return len(keys)


def _upload_folder(folder: Path, uri: str) -> None:
    bucket, prefix = s3_location(uri)
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    for path in sorted(files):
        key = f"{prefix.rstrip('/')}/{path.relative_to(folder).as_posix()}"
        write_object(bucket, key, path.read_bytes(), "application/octet-stream")
