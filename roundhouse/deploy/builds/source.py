"""What a build is given: the tree's sources as a zip in the environment's bucket."""

from __future__ import annotations

from pathlib import PurePosixPath

from onboarding.checkpoint import checkpoint_files
from onboarding.names import artifact_bucket
from roundhouse.aws.clients import bucket_exists, calling, object_exists
from roundhouse.deploy.builds.source_zip import source_path, source_zip
from roundhouse.errors import NotReadyError
from roundhouse.processes import Command
from roundhouse.session import Session, valid_tree

BESIDE_ONNX = ("tokenizer.json", "config.json")
"""What a text network brings along: its tokenizer, and its class names."""


def upload_source(session: Session) -> str:
    """Publishes the source zip and returns `bucket/key`. Raises NotReadyError."""
    tree = valid_tree(session.paths)
    networks = [spec.source.onnx for spec in tree.models.values() if spec.source.onnx is not None]
    checkpoints = [
        spec.source.checkpoint
        for spec in tree.models.values()
        if spec.source.checkpoint is not None
    ]
    files = [
        f"{folder}/{name}"
        for folder in checkpoints
        for name in checkpoint_files(session.paths.tree / folder)
    ]
    beside = [
        PurePosixPath(network).with_name(name).as_posix()
        for network in networks
        for name in BESIDE_ONNX
    ]
    zipped = source_zip(
        session.paths.code, session.paths.tree, (*tree.dataset_digests, *networks, *beside, *files)
    )
    return publish_source(session, zipped, "the build's sources")


def publish_source(session: Session, zipped: bytes, what: str) -> str:
    """Puts a zip into the bucket under its content's address, unless it is there, and returns
    `bucket/key`. Raises NotReadyError.
    """
    bucket, key, s3 = (
        artifact_bucket(session.environment),
        source_path(zipped),
        session.clients("s3"),
    )
    if not bucket_exists(s3, bucket):
        command = f"`roundhouse deploy --env {session.environment.name}`"
        raise NotReadyError(
            f"s3://{bucket}: is not there yet; {command} makes it, then builds and deploys what is missing."
        )
    if not object_exists(s3, bucket, key):
        with calling(f"Publishing {what} to s3://{bucket}/{key}"):
            s3.put_object(Bucket=bucket, Key=key, Body=zipped)
    return f"{bucket}/{key}"


def commit(session: Session) -> str:
    """The commit of the code that builds; "unknown" outside git."""
    outcome = session.run(
        Command(
            argv=("git", "rev-parse", "HEAD"),
            folder=session.paths.code,
            environment=session.variables,
        )
    )
    return outcome.output.strip() if outcome.code == 0 else "unknown"
