"""Sources in S3 are read once, kept by digest, and read from there when their bucket is gone."""

from __future__ import annotations

import hashlib

import pytest

from engine_build.errors import SourceFault
from engine_build.sources.bucket_checkpoint import BucketAccess, bucket_checkpoint
from engine_build.sources.checkpoint import read_json
from engine_build.sources.source import bucket_network
from engine_build.steps.fetch import is_of_another
from engine_build.store import FolderStore, S3Store
from onboarding.checkpoint import checkpoint_sha256, files_sha256
from tests.unit.engine_build.bucket import Bucket, client_error

CHECKPOINT = {"config.json": b"{}", "model.safetensors": b"weights", "1_Pooling/config.json": b"{}"}
NETWORK = {"net.onnx": b"network", "tokenizer.json": b"words", "config.json": b"{}"}
SHA256 = hashlib.sha256(b"network").hexdigest()
ADDRESS = "s3://theirs/nlp/one/"


@pytest.fixture
def theirs(tmp_path):
    """The bucket of another team, as a folder."""
    for name, data in {**CHECKPOINT, ".cache/x": b"hidden"}.items():
        path = tmp_path / "theirs/nlp/one" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for name, data in NETWORK.items():
        (tmp_path / "theirs/nlp" / name).write_bytes(data)
    return tmp_path / "theirs"


@pytest.fixture
def copies(tmp_path):
    return FolderStore(tmp_path / "ours")


def access_to(theirs, copies=None, **changes):
    return BucketAccess(bucket=lambda place: FolderStore(theirs), copies=copies, **changes)


def folder_for(tmp_path, name="work"):
    folder = tmp_path / name
    folder.mkdir()
    return folder


def digest_of(tmp_path):
    folder = tmp_path / "same"
    for name, data in CHECKPOINT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return checkpoint_sha256(folder)


def read(folder):
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_checkpoint_with_a_file_above_one_upload_is_read_and_not_kept(tmp_path, theirs, copies):
    access = access_to(theirs, copies, largest_copy=len(b"weights") - 1)
    folder = bucket_checkpoint(ADDRESS, digest_of(tmp_path), access, folder_for(tmp_path))
    assert read(folder) == CHECKPOINT and copies.names("source-copies/") == ()


def test_checkpoint_is_read_whole_and_again_when_its_bucket_is_gone(tmp_path, theirs, copies):
    digest = digest_of(tmp_path)
    first = bucket_checkpoint(ADDRESS, digest, access_to(theirs, copies), folder_for(tmp_path))
    assert read(first) == CHECKPOINT
    gone = access_to(tmp_path / "nothing", copies)
    again = bucket_checkpoint(ADDRESS, digest, gone, folder_for(tmp_path, "later"))
    assert read(again) == CHECKPOINT
    names = copies.names(f"source-copies/{digest}/")
    assert [name.rsplit("/", 1)[-1] for name in names if "SHA256SUMS" in name] == ["SHA256SUMS"]


def test_network_comes_with_what_lies_beside_it_and_again_from_its_copy(tmp_path, theirs, copies):
    address = "s3://theirs/nlp/net.onnx"
    expected = {"net.onnx": b"network", "tokenizer.json": b"words", "config.json": b"{}"}
    first = bucket_network(address, SHA256, access_to(theirs, copies), folder_for(tmp_path))
    assert read(first.parent) == expected
    gone = access_to(tmp_path / "nothing", copies)
    again = bucket_network(address, SHA256, gone, folder_for(tmp_path, "later"))
    assert read(again.parent) == expected


def test_data_files_of_a_network_are_copied_with_it(tmp_path, theirs, copies):
    (theirs / "nlp/data").mkdir()
    (theirs / "nlp/data/w.bin").write_bytes(b"weights")
    address, names = "s3://theirs/nlp/net.onnx", lambda path: ("data/w.bin",)
    digest = files_sha256(theirs / "nlp", ("data/w.bin", "net.onnx"))
    bucket_network(address, digest, access_to(theirs, copies), folder_for(tmp_path), names)
    gone = access_to(tmp_path / "nothing", copies)
    again = bucket_network(address, digest, gone, folder_for(tmp_path, "later"), names)
    assert again.read_bytes() == b"network"
    assert (again.parent / "data/w.bin").read_bytes() == b"weights"
    copies.path(f"source-copies/{digest}/data/w.bin").write_bytes(b"forged")
    with pytest.raises(SourceFault, match="does not exist; upload it"):
        bucket_network(address, digest, gone, folder_for(tmp_path, "forged"), names)


def test_copy_of_other_bytes_counts_for_none(tmp_path, theirs, copies):
    digest = digest_of(tmp_path)
    for kind in ("net.onnx", "SHA256SUMS", "config.json"):
        for sha256 in (digest, SHA256):
            path = copies.path(f"source-copies/{sha256}/{kind}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"forged")
    access = access_to(theirs, copies)
    assert read(bucket_checkpoint(ADDRESS, digest, access, folder_for(tmp_path))) == CHECKPOINT
    found = bucket_network("s3://theirs/nlp/net.onnx", SHA256, access, folder_for(tmp_path, "b"))
    assert found.read_bytes() == b"network"


def test_source_of_the_own_bucket_is_not_copied(tmp_path, theirs, copies):
    access = access_to(theirs, copies, keeps=lambda address: is_of_another(address, "s3://theirs"))
    bucket_checkpoint(ADDRESS, digest_of(tmp_path), access, folder_for(tmp_path))
    assert copies.names("") == ()
    assert is_of_another("s3://theirs/x", "s3://their") and is_of_another("s3://a/x", "/folder")


def test_names_of_a_bucket_come_page_by_page():
    bucket = Bucket()
    bucket.objects = {f"nlp/{number}": b"" for number in range(5)} | {"other": b""}
    store = S3Store("theirs", region="us-east-1", client=bucket)
    assert store.names("nlp/") == tuple(f"nlp/{number}" for number in range(5))


@pytest.mark.parametrize(
    ("address", "sha256", "message"),
    [
        (ADDRESS, "0" * 64, "has digest .*, but the model file pins 0000"),
        ("s3://theirs/nlp/none/", "0" * 64, "holds no config.json; upload the checkpoint"),
    ],
)
def test_refuses_another_checkpoint(tmp_path, theirs, copies, address, sha256, message):
    with pytest.raises(SourceFault, match=message):
        bucket_checkpoint(address, sha256, access_to(theirs, copies), folder_for(tmp_path))
    assert copies.names("") == ()


@pytest.mark.parametrize("read_source", [bucket_network, bucket_checkpoint])
def test_refuses_a_bucket_that_denies_with_who_must_allow_what(tmp_path, read_source):
    refusing = Bucket(refusal=client_error("AccessDenied", "not authorized"))
    store = S3Store("theirs", region="us-east-1", client=refusing)
    access = BucketAccess(bucket=lambda place: store)
    message = r"AccessDenied \(not authorized\); the environment's `source_buckets` must name"
    with pytest.raises(SourceFault, match=message) as error:
        read_source(ADDRESS, "0" * 64, access, folder_for(tmp_path))
    assert "no engine was published" not in str(error.value)


def test_refuses_an_object_whose_name_leaves_the_folder(tmp_path, copies):
    bucket = Bucket()
    bucket.objects = {"nlp/one//etc/x": b"", "nlp/one/../../x": b"", "nlp/one/config.json": b"{}"}
    store = S3Store("theirs", region="us-east-1", client=bucket)
    with pytest.raises(SourceFault, match="no file of a folder; rename it"):
        bucket_checkpoint(
            ADDRESS, "0" * 64, BucketAccess(bucket=lambda place: store), folder_for(tmp_path)
        )


def test_a_file_that_is_not_there_is_the_default(tmp_path):
    assert read_json(tmp_path / "config.json", {}) == {}


@pytest.mark.parametrize("content", ["[1, 2]", '"text"', "null", "3"])
def test_refuses_a_configuration_that_is_no_object(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    words = r"config.json of the checkpoint holds \w+, not an object; fetch or save it again"
    with pytest.raises(SourceFault, match=words):
        read_json(tmp_path / "config.json", {})


@pytest.mark.parametrize("content", ["{", "", "[" * 100_000])
def test_refuses_a_file_that_is_no_json(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SourceFault, match=r"config.json of the checkpoint is no JSON"):
        read_json(tmp_path / "config.json", {})
