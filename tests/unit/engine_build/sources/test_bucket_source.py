"""Sources in S3 are read once, kept by digest, and read from there when their bucket is gone."""

from __future__ import annotations

import hashlib
import shutil
from functools import partial

import pytest

from engine_build.errors import SourceFault
from engine_build.sources.bucket_checkpoint import BucketAccess, bucket_checkpoint
from engine_build.sources.checkpoint import read_json
from engine_build.sources.network import bucket_network
from engine_build.sources.plugin_source import fetch_plugin
from engine_build.sources.source import FetchContext
from engine_build.store import FolderStore, S3Store
from onboarding.checkpoint import checkpoint_sha256, files_sha256
from onboarding.names import source_copy_path
from onboarding.plugin_spec import PluginSpec
from tests.shared_libraries import FIXTURE, of_aarch64
from tests.unit.engine_build.bucket import Bucket, client_error

CHECKPOINT = {"config.json": b"{}", "model.safetensors": b"weights", "1_Pooling/config.json": b"{}"}
BESIDE = {"tokenizer.json": b"words", "config.json": b"{}"}
NETWORK = {"net.onnx": b"network", **BESIDE}
SHA256 = hashlib.sha256(b"network").hexdigest()
LIBRARY = hashlib.sha256(FIXTURE.read_bytes()).hexdigest()
ADDRESS, FILE, PLUGIN = (f"s3://theirs/nlp/{name}" for name in ("one/", "net.onnx", "libscale.so"))


def write(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def theirs(tmp_path):
    """The bucket of another team, as a folder."""
    write(tmp_path / "theirs/nlp/one", {**CHECKPOINT, ".cache/x": b"hidden"})
    library = {"libscale.so": FIXTURE.read_bytes()}
    write(tmp_path / "theirs/nlp", {**NETWORK, **library, "data/w.bin": b"weights"})
    return tmp_path / "theirs"


@pytest.fixture
def copies(tmp_path):
    return FolderStore(tmp_path / "ours")


@pytest.fixture
def digest(tmp_path):
    """That of the checkpoint."""
    return checkpoint_sha256(write(tmp_path / "same", CHECKPOINT))


def access_to(folder, copies=None, **changes):
    store = folder if isinstance(folder, S3Store) else FolderStore(folder)
    return BucketAccess(bucket=lambda place: store, copies=copies, **changes)


def s3(**changes):
    return S3Store("theirs", region="us-east-1", client=Bucket(**changes))


def folder_for(tmp_path, name="work"):
    folder = tmp_path / name
    folder.mkdir()
    return folder


def read(folder):
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def plugin(access, folder, *, file=PLUGIN, sha256=LIBRARY, root=None):
    spec = PluginSpec(file=file, sha256=sha256, operators=("Scale",))
    fetching = FetchContext(root=root or folder, folder=folder, runner=None, access=access)
    return fetch_plugin(spec, "10.16.1.11", fetching)


def test_checkpoint_is_read_whole_and_again_when_its_bucket_is_gone(
    tmp_path, theirs, copies, digest
):
    first = bucket_checkpoint(ADDRESS, digest, access_to(theirs, copies), folder_for(tmp_path))
    assert read(first) == CHECKPOINT
    names = copies.names(f"source-copies/{digest}/")
    assert [name.rsplit("/", 1)[-1] for name in names if "SHA256SUMS" in name] == ["SHA256SUMS"]
    gone = access_to(tmp_path / "nothing", copies)
    assert read(bucket_checkpoint(ADDRESS, digest, gone, folder_for(tmp_path, "b"))) == CHECKPOINT


@pytest.mark.parametrize(
    "changes",
    [
        # A file above one upload, and a source of the builds' own bucket.
        {"largest_copy": len(b"weights") - 1},
        {"own": "s3://theirs"},
    ],
)
def test_checkpoint_that_is_not_kept_is_read_all_the_same(
    changes, tmp_path, theirs, copies, digest
):
    access = access_to(theirs, copies, **changes)
    assert read(bucket_checkpoint(ADDRESS, digest, access, folder_for(tmp_path))) == CHECKPOINT
    assert copies.names("") == ()
    # Another bucket's name, or a folder's, may only begin alike.
    assert access_to(theirs, copies, own="s3://their").keeps("s3://theirs/x")
    assert access_to(theirs, copies, own="/folder").keeps("s3://a/x")


@pytest.mark.parametrize("names", [(), ("data/w.bin",)])
def test_network_comes_with_its_files_and_again_from_its_copy(names, tmp_path, theirs, copies):
    files = NETWORK | dict.fromkeys(names, b"weights")
    sha256 = files_sha256(theirs / "nlp", (*names, "net.onnx")) if names else SHA256
    get = partial(bucket_network, FILE, sha256, external_names=lambda path: names)
    assert read(get(access_to(theirs, copies), folder_for(tmp_path)).parent) == files
    gone = access_to(tmp_path / "nothing", copies)
    assert read(get(gone, folder_for(tmp_path, "later")).parent) == files
    copies.path(f"source-copies/{sha256}/{(*names, 'net.onnx')[0]}").write_bytes(b"forged")
    with pytest.raises(SourceFault, match="does not exist; upload it"):
        get(gone, folder_for(tmp_path, "forged"))


def test_library_is_read_once_and_kept_by_digest(tmp_path, theirs, copies):
    path = plugin(access_to(theirs, copies), folder_for(tmp_path))
    copied = source_copy_path(LIBRARY, "libscale.so")
    assert path.read_bytes() == copies.read(copied) == FIXTURE.read_bytes()
    gone = access_to(tmp_path / "nothing", copies)
    assert plugin(gone, folder_for(tmp_path, "b")).read_bytes() == FIXTURE.read_bytes()
    own = FolderStore(tmp_path / "own")
    access = access_to(theirs, own, own="s3://theirs")
    plugin(access, folder_for(tmp_path, "c"))
    assert own.read(copied) is None


def test_copy_of_other_bytes_counts_for_none(tmp_path, theirs, copies, digest):
    forged = dict.fromkeys(("net.onnx", "SHA256SUMS", "config.json"), b"forged")
    for sha256 in (digest, SHA256):
        write(copies.path(f"source-copies/{sha256}"), forged)
    access = access_to(theirs, copies)
    assert read(bucket_checkpoint(ADDRESS, digest, access, folder_for(tmp_path))) == CHECKPOINT
    found = bucket_network(FILE, SHA256, access, folder_for(tmp_path, "b"))
    assert found.read_bytes() == b"network"


def test_names_of_a_bucket_come_page_by_page():
    store = s3()
    store._given.objects = {f"nlp/{number}": b"" for number in range(5)} | {"other": b""}
    assert store.names("nlp/") == tuple(f"nlp/{number}" for number in range(5))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (ADDRESS, "has digest .*, but the model file pins 0000"),
        ("s3://theirs/nlp/none/", "holds no config.json; upload the checkpoint"),
    ],
)
def test_refuses_another_checkpoint(tmp_path, theirs, copies, address, message):
    with pytest.raises(SourceFault, match=message):
        bucket_checkpoint(address, "0" * 64, access_to(theirs, copies), folder_for(tmp_path))
    assert copies.names("") == ()


@pytest.mark.parametrize(
    "read_source",
    [
        partial(bucket_network, FILE, SHA256),
        partial(bucket_checkpoint, ADDRESS, SHA256),
        plugin,
    ],
)
def test_refuses_a_bucket_that_denies_with_who_must_allow_what(tmp_path, read_source):
    access = access_to(s3(refusal=client_error("AccessDenied", "not authorized")))
    message = r"AccessDenied \(not authorized\); the environment's `source_buckets` must name"
    with pytest.raises(SourceFault, match=message) as error:
        read_source(access, folder_for(tmp_path))
    assert "no engine was published" not in str(error.value)


def test_refuses_an_object_whose_name_leaves_the_folder(tmp_path):
    store = s3()
    names = ("nlp/one//etc/x", "nlp/one/../../x", "nlp/one/config.json")
    store._given.objects = dict.fromkeys(names, b"{}")
    with pytest.raises(SourceFault, match="no file of a folder; rename it"):
        bucket_checkpoint(ADDRESS, "0" * 64, access_to(store), folder_for(tmp_path))


@pytest.mark.parametrize(
    ("file", "data", "words"),
    [
        ("models/libnone.so", None, r"libnone\.so is no file under"),
        ("s3://theirs/none/libscale.so", None, "libscale.so does not exist; upload it"),
        (PLUGIN, None, f"has sha256 {LIBRARY}, but the model file pins 0000"),
        ("libscale.so", of_aarch64(FIXTURE), "another processor .*AArch64"),
        (
            "libscale.so",
            FIXTURE.read_bytes().replace(b"libnvinfer.so.10", b"libnvinfer.so.11"),
            "another Tens",
        ),
        ("libscale.so", b"no library", "is no ELF file; name the library"),
    ],
)
def test_refuses_a_library_that_is_not_the_pinned_one_or_does_not_fit(
    file, data, words, tmp_path, theirs
):
    root, sha256 = folder_for(tmp_path, "root"), "0" * 64
    if data is not None:
        (root / file).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
    with pytest.raises(SourceFault, match=words):
        plugin(access_to(theirs), folder_for(tmp_path), file=file, sha256=sha256, root=root)


def test_library_of_the_tree_is_copied(tmp_path, theirs):
    shutil.copyfile(FIXTURE, tmp_path / "libscale.so")
    path = plugin(access_to(theirs), folder_for(tmp_path), file="libscale.so", root=tmp_path)
    assert path == tmp_path / "work/libscale.so" and path.read_bytes() == FIXTURE.read_bytes()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *((text, r"holds \w+, not an object; fetch or") for text in ("[1]", '"x"', "null", "3")),
        *((text, "is no JSON") for text in ("{", "", "[" * 100_000)),
    ],
)
def test_refuses_a_configuration_that_is_no_object(content, words, tmp_path):
    assert read_json(tmp_path / "config.json", {}) == {}
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SourceFault, match=f"config.json of the checkpoint {words}"):
        read_json(tmp_path / "config.json", {})
