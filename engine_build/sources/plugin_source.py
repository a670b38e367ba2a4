"""A library of custom operators on this machine's disk: digest, processor, TensorRT checked."""

from __future__ import annotations

import shutil
from pathlib import Path

from engine_build.errors import PublishFailed, SourceFault
from engine_build.sources.bucket_checkpoint import Bucket, unreadable
from engine_build.sources.source import FetchContext
from onboarding.plugin_spec import PluginSpec
from onboarding.shared_library import read_shared_library, tensorrt_misfit
from onboarding.source_access import S3_SCHEME, split_s3


def fetch_plugin(plugin: PluginSpec, tensorrt: str, fetching: FetchContext) -> Path:
    """Return a copy of a plugin's library in a folder; nothing loads it. Raises SourceFault."""
    path, root = fetching.folder / plugin.name, fetching.root
    if plugin.file.startswith(S3_SCHEME):
        _download(plugin, fetching.bucket, path)
    elif not (root / plugin.file).is_file():
        raise SourceFault(
            f"plugin {plugin.file} is no file under {root}; add it, or correct the model file."
        )
    else:
        shutil.copyfile(root / plugin.file, path)
    _check(plugin, path, tensorrt)
    return path


def _download(plugin: PluginSpec, bucket: Bucket, path: Path) -> None:
    name, key = split_s3(plugin.file)
    try:
        is_there = bucket(f"{S3_SCHEME}{name}").download(key, path)
    except PublishFailed as error:
        raise unreadable(error) from error
    if not is_there:
        raise SourceFault(
            f"plugin {plugin.file} does not exist; upload it, or correct the model file."
        )


def _check(plugin: PluginSpec, path: Path, tensorrt: str) -> None:
    try:
        library = read_shared_library(path)
    except ValueError as error:
        raise SourceFault(
            f"plugin {plugin.file} {error}; name the library that the compiler made with -shared."
        ) from error
    if library.sha256 != plugin.sha256:
        raise SourceFault(
            f"plugin {plugin.file} has sha256 {library.sha256}, but the model file pins "
            f"{plugin.sha256}; check which is right."
        )
    misfit = tensorrt_misfit(library, tensorrt)
    if misfit is not None:
        raise SourceFault(f"plugin {plugin.file} {misfit}.")
