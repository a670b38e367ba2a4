"""The sources that a build runs from: one zip in the environment's bucket, and its revision in git.

The same files give the same bytes, wherever and whenever they are zipped.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from onboarding.checkpoint import checkpoint_files
from onboarding.lock import LOCK_SUFFIX
from onboarding.names import SOURCES_PREFIX, adapter_path, artifact_bucket
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.tree import Tree
from roundhouse.aws.clients import bucket_exists, object_exists, write_once
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.paths import TREE_FOLDERS
from roundhouse.processes import Command, Outcome
from roundhouse.promoted_tree import model_files
from roundhouse.session import Session, valid_tree

BESIDE_ONNX = ("tokenizer.json", "config.json", "preprocessor_config.json")
"""Files beside a network: its tokenizer, its class names, and how images become its input."""
REVISION_DIGITS = 12
CODE_FOLDERS = ("onboarding", "engine_build", "container")
LEFT_OUT = ("__pycache__", ".pyc", ".lock.yaml")
EPOCH = (1980, 1, 1, 0, 0, 0)


def upload_source(session: Session) -> str:
    """Publish the source zip and return `bucket/key`. Raises NotReadyError."""
    data = source_zip(
        session.paths.code, session.paths.tree, named_files(valid_tree(session.paths))
    )
    return publish_source(session, data, "the build's sources")


def named_files(tree: Tree) -> list[str]:
    """Return the files of a tree that its models name, wherever they lie, without locks."""
    models = {*tree.models, *(name for view in tree.views.values() for name in view.generators)}
    paths = {path for model in models for path in model_files(tree, model)}
    paths |= {*tree.dataset_digests}
    named = [name for path in sorted(paths) for name in _files_of(tree.root, path)]
    beside = [PurePosixPath(name) for name in named if name.endswith(".onnx")]
    named += [str(path.with_name(name)) for path in beside for name in BESIDE_ONNX]
    return [name for name in named if not name.endswith(LOCK_SUFFIX)]


def _files_of(root: Path, path: str) -> tuple[str, ...]:
    """Return a file, or the files of a folder, such as a dataset's images or an adapter."""
    folder = root / path
    if not folder.is_dir():
        return (path,)
    return tuple(f"{path}/{name}" for name in checkpoint_files(folder))


def publish_adapters(session: Session, generators: Sequence[GenerationDeployment]) -> None:
    """Put the LoRA adapters of these endpoints where their components read them.

    Raises RoundhouseError.
    """
    from engine_build.packaging.archive import pack

    s3, bucket = session.clients("s3"), artifact_bucket(session.environment)
    for generator in generators:
        sources = {item.name: item.source for item in generator.spec.serving.adapters}
        for name, digest in generator.adapters.items():
            key = adapter_path(digest)
            if object_exists(s3, bucket, key):
                continue
            with tempfile.TemporaryDirectory(prefix="roundhouse-adapter-") as folder:
                path = Path(folder) / "adapter.tar.gz"
                source = session.paths.tree / sources[name]
                pack(source, path, checkpoint_files(source))
                title = f"Publishing adapter {name} to s3://{bucket}/{key}"
                write_once(s3, bucket, key, path.read_bytes(), title)


def publish_source(session: Session, data: bytes, title: str) -> str:
    """Put a zip into the bucket under its digest, unless it is there; return `bucket/key`.

    Raises NotReadyError.
    """
    s3, bucket, key = session.clients("s3"), artifact_bucket(session.environment), source_path(data)
    if not bucket_exists(s3, bucket):
        command = f"`roundhouse deploy --env {session.environment.name}`"
        raise NotReadyError(
            f"s3://{bucket}: is not there yet; {command} makes it, then builds and deploys what is "
            "missing."
        )
    if not object_exists(s3, bucket, key):
        write_once(s3, bucket, key, data, f"Publishing {title} to s3://{bucket}/{key}")
    return f"{bucket}/{key}"


def require_committed_sources(session: Session, *, allow_dirty: bool) -> tuple[str, bool]:
    """Return the commit of the files that build, "unknown" outside git, and whether it is dirty.

    Raises RoundhouseError where some are not committed, for AWS without `allow_dirty`.
    """
    head = _git(session, session.paths.repository, "rev-parse", "HEAD")
    if head.code != 0:
        return "unknown", False
    commit = head.output.strip()
    changed = [
        *_uncommitted(session, session.paths.repository, CODE_FOLDERS),
        *_uncommitted(session, session.paths.tree, TREE_FOLDERS),
    ]
    if changed and not session.is_local and not allow_dirty:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise RoundhouseError(
            f"Refused before building: {', '.join(changed[:3])}{more} of the build's sources "
            f"differ from commit {commit[:REVISION_DIGITS]}, so nobody could build the same engine "
            "again. Commit the files, or add --allow-dirty: the engine's manifest then names the "
            "commit as dirty."
        )
    return commit, bool(changed)


def source_revision(session: Session, source: str, *, allow_dirty: bool) -> str:
    """Return what a manifest records as its sources' commit.

    Of files that are not committed: `<commit>-dirty-<digest of the source zip>`.
    """
    commit, is_dirty = require_committed_sources(session, allow_dirty=allow_dirty)
    return f"{commit}-dirty-{PurePosixPath(source).stem[:REVISION_DIGITS]}" if is_dirty else commit


def _uncommitted(session: Session, root: Path, folders: Iterable[str]) -> list[str]:
    """Return the files of these folders that git does not have as they are, without locks."""
    status = _git(session, root, "status", "--porcelain", "--untracked-files=all", "--", *folders)
    paths = [line[3:].strip() for line in status.output.splitlines()] if status.code == 0 else []
    return [path for path in paths if not any(part in path for part in LEFT_OUT)]


def _git(session: Session, folder: Path, *arguments: str) -> Outcome:
    return session.run(
        Command(argv=("git", *arguments), folder=folder, environment=session.variables)
    )


def source_zip(code: Path, tree: Path, extra_files: Iterable[str] = ()) -> bytes:
    """Return the zip of the folders that build, and of `extra_files`, relative to the tree."""
    files = dict(_files(code, CODE_FOLDERS)) | dict(_files(tree, TREE_FOLDERS))
    files |= {name: tree / name for name in extra_files if (tree / name).is_file()}
    return zipped({name: path.read_bytes() for name, path in files.items()})


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of files by name, without their times and modes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def source_path(data: bytes) -> str:
    """Return the object key of a source zip: its content's digest."""
    return f"{SOURCES_PREFIX}/{hashlib.sha256(data).hexdigest()}.zip"


def _files(root: Path, folders: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for folder in folders:
        for path in (root / folder).rglob("*"):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not any(part in name for part in LEFT_OUT):
                yield name, path
