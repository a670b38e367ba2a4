"""Checkpoints of a bucket of others: headers, builds, kept copies, and refusals."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import yaml

from local_cloud import lifecycle
from onboarding import names
from onboarding.checkpoint import checkpoint_files, checkpoint_sha256
from onboarding.text_generation.checkpoint import read_folder
from roundhouse.deploy.builds import engines
from roundhouse.deploy.builds.requests import missing_checkpoints
from tests.local_cloud.account import ROOT
from tests.text_generation.build.chat_tree import build, spec_of

FOREIGN, PREFIX = "acme-checkpoints", "chat/tiny/"
HEADERS = "models/data/far.headers.json"


def write_headers(root, model, **variables):
    """Run `roundhouse check --fetch-headers`; return how it ended."""
    command = (sys.executable, "-m", "roundhouse", "check", "--fetch-headers", model)
    command += ("--root", str(root))
    without = {name: text for name, text in os.environ.items() if name != "HF_TOKEN"}
    return subprocess.run(
        command, cwd=ROOT, env={**without, **variables}, capture_output=True, text=True
    )


def upload(session, folder):
    s3 = session.clients("s3")
    for name in checkpoint_files(folder):
        s3.upload_file(str(folder / name), FOREIGN, f"{PREFIX}{name}")


@pytest.fixture(scope="module")
def far(session):
    """A model whose checkpoint lies in a bucket that the environment names, with its headers."""
    root, checkpoint = session.paths.tree, session.paths.tree / "models/tiny"
    session.clients("s3").create_bucket(Bucket=FOREIGN)
    upload(session, checkpoint)
    source = {"checkpoint": f"s3://{FOREIGN}/{PREFIX}", "sha256": checkpoint_sha256(checkpoint)}
    spec = {**spec_of(root), "name": "far", "source": {**source, "headers": HEADERS}}
    path = root / "models/far.yaml"
    path.write_text(yaml.safe_dump(spec))
    ended = write_headers(root, "far", **lifecycle.environment(lifecycle.find(session.paths.build)))
    assert ended.returncode == 0, ended.stderr
    yield path
    path.unlink()


def object_names(session, prefix):
    listed = session.clients("s3").list_objects_v2(
        Bucket=names.artifact_bucket(session.environment), Prefix=prefix
    )
    return {item["Key"].removeprefix(prefix) for item in listed.get("Contents", ())}


def test_headers_of_a_bucket_are_those_of_the_files(session, far):
    found = read_folder(session.paths.tree / "models/tiny").document()
    assert (session.paths.tree / HEADERS).read_text() == found


def test_checkpoint_in_a_bucket_is_built_of_its_files(session, far):
    (request,) = (item for item in missing_checkpoints(session, ("far",)) if item.scheme == "int8")
    (built,) = build(session, [request])
    digest = checkpoint_sha256(session.paths.tree / "models/tiny")
    assert built.source_sha256 == digest and built.gate.tokens > 0
    assert object_names(session, built.prefix) == {file.path for file in built.files}
    assert "int8" not in {item.scheme for item in missing_checkpoints(session, ("far",))}


def test_checkpoint_that_changed_in_its_bucket_is_refused_and_nothing_is_published(session, far):
    text, lock = far.read_text(), session.paths.tree / "models/far.lock.yaml"
    pinned, before = "f" * 64, lock.read_bytes() if lock.exists() else None
    far.write_text(text.replace(checkpoint_sha256(session.paths.tree / "models/tiny"), pinned))
    published = object_names(session, "checkpoints/")
    try:
        request = missing_checkpoints(session, ("far",))[0]
        with pytest.raises(
            engines.EnginesNotBuiltError, match=f"has digest [0-9a-f]{{64}}, but .* pins {pinned}"
        ):
            build(session, [request])
    finally:
        far.write_text(text)
    assert object_names(session, "checkpoints/") == published
    assert (lock.read_bytes() if lock.exists() else None) == before

