"""What pins a source, of every kind of model: an exact version, a full commit, a path inside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from onboarding.document import Document
from onboarding.fault import Fault

PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?==[0-9][A-Za-z0-9.!+_-]*")
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+@[0-9a-f]{40}", re.ASCII)


def package_faults(document: Document, package: str | None) -> Iterator[Fault]:
    """Yield what is wrong with `source.python_package`: an open version changes tomorrow."""
    if package is not None and not PACKAGE.fullmatch(package):
        yield document.at("source", "python_package").fault(
            "unpinned source: 'source.python_package' has no exact version",
            value=package,
            allowed="name==1.2.3",
            way_out="add ==<version>",
        )


def repository_faults(document: Document, repository: str | None) -> Iterator[Fault]:
    """Yield what is wrong with `source.huggingface`: a branch or tag may move."""
    if repository is not None and not REPOSITORY.fullmatch(repository):
        yield document.at("source", "huggingface").fault(
            "unpinned source: 'source.huggingface' has no full commit",
            value=repository,
            allowed="owner/name@<40 hex digits>",
            way_out="add @<commit>, as the repository's history shows it",
        )


def path_faults(document: Document, path: str | None) -> Iterator[Fault]:
    """Yield what is wrong with `source.path`: it lies inside the source, whose digest covers it."""
    if path is not None and (
        PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts
    ):
        yield document.at("source", "path").fault(
            "'source.path' leaves the source",
            value=path,
            allowed="a folder inside the package or the repository, such as model",
            way_out="write it relative to the source's root, without ..",
        )
