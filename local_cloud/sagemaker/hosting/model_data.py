"""Model data in S3: one tar.gz, or the plain files of a prefix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from local_cloud.containers.archive import ArchiveError, s3_location, unpack_model
from local_cloud.ministack.account import object_keys, read_object

Definition = Mapping[str, Any]


def model_data_url(definition: Definition) -> str | None:
    """Return where a container's model data lies; one that ends with / is a prefix."""
    source = (definition.get("ModelDataSource") or {}).get("S3DataSource") or {}
    url = definition.get("ModelDataUrl") or source.get("S3Uri")
    return None if url is None else str(url)


def fetch_model_data(url: str, folder: Path) -> None:
    """Unpack an archive, or copy the files of a prefix. Raises ArchiveError."""
    bucket, key = s3_location(url)
    names = object_keys(bucket, key) if url.endswith("/") else ()
    content = None if url.endswith("/") else read_object(bucket, key)
    if content is not None:
        unpack_model(content, folder, url)
    elif names:
        for name in names:
            _copy_file(bucket, name, folder, name.removeprefix(key))
    else:
        raise ArchiveError(
            f'Failed to download model data for container "container_1" from URL: "{url}". Please '
            "ensure that there is an object located at the URL and that the role passed to "
            "CreateModel has permissions to download the object."
        )


def _copy_file(bucket: str, key: str, folder: Path, name: str) -> None:
    if ".." in PurePosixPath(name).parts:
        raise ArchiveError(f"the model data s3://{bucket}/{key} lies outside its prefix")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(read_object(bucket, key) or b"")
