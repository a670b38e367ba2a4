"""Plugins' libraries: of the tree, of a bucket, kept by digest, refused unread by any loader."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from engine_build.errors import SourceFault
from engine_build.sources.bucket_checkpoint import BucketAccess
from engine_build.sources.plugin_source import fetch_plugin
from engine_build.sources.source import FetchContext
from engine_build.store import FolderStore, S3Store
from onboarding.names import source_copy_path
from onboarding.plugin_spec import PluginSpec
from tests.shared_libraries import FIXTURE, of_aarch64
from tests.unit.engine_build.bucket import Bucket, client_error

SHA256 = hashlib.sha256(FIXTURE.read_bytes()).hexdigest()
BUILD = "10.16.1.11"
ADDRESS = "s3://theirs/nlp/libscale.so"


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root/models"
    folder.mkdir(parents=True)
    shutil.copyfile(FIXTURE, folder / "libscale.so")
    return folder.parent


@pytest.fixture
def fetch(tmp_path, root):
    (tmp_path / "work").mkdir()

    def fetch(file="models/libscale.so", sha256=SHA256, access=None):
        plugin = PluginSpec(file=file, sha256=sha256, operators=("Scale",))
        access = BucketAccess(bucket=lambda place: FolderStore(root)) if access is None else access
        fetching = FetchContext(root=root, folder=tmp_path / "work", runner=None, access=access)
        return fetch_plugin(plugin, BUILD, fetching)

    return fetch


@pytest.fixture
def theirs(tmp_path):
    folder = tmp_path / "theirs/nlp"
    folder.mkdir(parents=True)
    shutil.copyfile(FIXTURE, folder / "libscale.so")
    return folder.parent


def test_library_of_the_tree_is_copied(fetch, tmp_path):
    path = fetch()
    assert path == tmp_path / "work/libscale.so"
    assert path.read_bytes() == FIXTURE.read_bytes()


def test_library_of_a_bucket_is_read_once_and_kept_by_digest(fetch, theirs, tmp_path):
    copies = FolderStore(tmp_path / "ours")
    fetch(ADDRESS, access=BucketAccess(bucket=lambda place: FolderStore(theirs), copies=copies))
    assert copies.read(source_copy_path(SHA256, "libscale.so")) == FIXTURE.read_bytes()
    gone = BucketAccess(bucket=lambda place: FolderStore(tmp_path / "nothing"), copies=copies)
    assert fetch(ADDRESS, access=gone).read_bytes() == FIXTURE.read_bytes()


def test_library_of_the_builds_own_bucket_is_not_kept_again(fetch, theirs, tmp_path):
    copies = FolderStore(tmp_path / "ours")
    access = BucketAccess(
        bucket=lambda place: FolderStore(theirs), copies=copies, keeps=lambda address: False
    )
    fetch(ADDRESS, access=access)
    assert copies.read(source_copy_path(SHA256, "libscale.so")) is None


def test_refuses_a_library_that_is_not_there(fetch, tmp_path):
    with pytest.raises(SourceFault, match="libnone\\.so is no file under"):
        fetch("models/libnone.so")
    empty = BucketAccess(bucket=lambda place: FolderStore(tmp_path / "nothing"))
    with pytest.raises(SourceFault, match=f"{ADDRESS} does not exist; upload it"):
        fetch(ADDRESS, access=empty)


def test_refuses_a_library_that_builds_may_not_read(fetch):
    denied = Bucket(refusal=client_error("AccessDenied", "no"))
    access = BucketAccess(bucket=lambda place: S3Store("theirs", region="us-east-1", client=denied))
    with pytest.raises(SourceFault, match="`source_buckets` must name the bucket"):
        fetch(ADDRESS, access=access)


def test_refuses_another_digest(fetch):
    with pytest.raises(SourceFault, match=f"has sha256 {SHA256}, but the model file pins 0000"):
        fetch(sha256="0" * 64)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (of_aarch64(FIXTURE), "another processor .*AArch64"),
        (FIXTURE.read_bytes().replace(b"libnvinfer.so.10", b"libnvinfer.so.11"), "another Tens"),
        (b"no library", "is no ELF file; name the library"),
    ],
)
def test_refuses_a_library_that_does_not_fit(fetch, root, data, words):
    (root / "models/libscale.so").write_bytes(data)
    with pytest.raises(SourceFault, match=words):
        fetch(sha256=hashlib.sha256(data).hexdigest())
