"""Sources in S3, by digest: checkpoints, networks and plugins, or who must allow what."""

from __future__ import annotations

import hashlib
import shutil
from functools import partial

import pytest

from engine_build.errors import SourceFault
from engine_build.sources.bucket_checkpoint import pinned_checkpoint
from engine_build.sources.checkpoint import read_json
from engine_build.sources.network import bucket_network
from engine_build.sources.plugin_source import fetch_plugin
from engine_build.sources.source import FetchContext
from engine_build.store import FolderStore, S3Store
from onboarding.checkpoint import checkpoint_sha256
from onboarding.plugin_spec import PluginSpec
from tests.shared_libraries import FIXTURE, of_aarch64
from tests.unit.engine_build.bucket import Bucket, client_error

CHECKPOINT = {"config.json": b"{}", "model.safetensors": b"weights", "1_Pooling/config.json": b"{}"}
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
    write(tmp_path / "theirs/nlp", {"libscale.so": FIXTURE.read_bytes()})
    return lambda place: FolderStore(tmp_path / "theirs")


def s3(objects=(), **changes):
    store = S3Store("theirs", region="us-east-1", client=Bucket(**changes))
    store._given.objects = dict.fromkeys(objects, b"{}")
    return lambda place: store


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def checkpoint(bucket, work, *, address=ADDRESS, sha256="0" * 64):
    return pinned_checkpoint(address, sha256, work, bucket, work)


def plugin(bucket, folder, *, file=PLUGIN, sha256=LIBRARY, root=None):
    spec = PluginSpec(file=file, sha256=sha256, operators=("Scale",))
    fetching = FetchContext(root=root or folder, folder=folder, runner=None, bucket=bucket)
    return fetch_plugin(spec, "10.16.1.11", fetching)


def test_checkpoint_comes_whole_without_what_is_hidden(tmp_path, theirs, work):
    digest = checkpoint_sha256(write(tmp_path / "same", CHECKPOINT))
    folder = checkpoint(theirs, work, sha256=digest)
    paths = (path for path in folder.rglob("*") if path.is_file())
    assert {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths} == CHECKPOINT


def test_names_of_a_bucket_come_page_by_page():
    names = tuple(f"nlp/{number}" for number in range(5))
    assert s3((*names, "other"))("").names("nlp/") == names


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        (("nlp/one/config.json",), "has digest .*, but the model file pins 0000"),
        (("nlp/two/config.json",), "holds no config.json; upload the checkpoint"),
        (("nlp/one//etc/x", "nlp/one/../../x", "nlp/one/config.json"), "no file of a folder; ren"),
    ],
)
def test_refuses_another_checkpoint_and_names_that_leave_the_folder(objects, words, work):
    with pytest.raises(SourceFault, match=words):
        checkpoint(s3(objects), work)


@pytest.mark.parametrize("read_source", [partial(bucket_network, FILE), checkpoint, plugin])
def test_refuses_a_bucket_that_denies_with_who_must_allow_what(work, read_source):
    bucket = s3(refusal=client_error("AccessDenied", "not authorized"))
    message = r"AccessDenied \(not authorized\); the environment's `source_buckets` must name"
    with pytest.raises(SourceFault, match=message) as error:
        read_source(bucket, work)
    assert "no engine was published" not in str(error.value)


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
    file, data, words, tmp_path, theirs, work
):
    sha256 = "0" * 64
    if data is not None:
        (tmp_path / file).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
    with pytest.raises(SourceFault, match=words):
        plugin(theirs, work, file=file, sha256=sha256, root=tmp_path)


def test_library_of_a_bucket_and_of_the_tree_is_copied(tmp_path, theirs, work):
    assert plugin(theirs, work).read_bytes() == FIXTURE.read_bytes()
    shutil.copyfile(FIXTURE, tmp_path / "libscale.so")
    path = plugin(theirs, work, file="libscale.so", root=tmp_path)
    assert path == work / "libscale.so" and path.read_bytes() == FIXTURE.read_bytes()


@pytest.mark.parametrize(
    ("content", "words"),
    [("[1]", r"holds list, not an object; fetch or"), ("{", "is no JSON"), ("[" * 9**5, "no JSON")],
)
def test_refuses_a_configuration_that_is_no_object(content, words, tmp_path):
    assert read_json(tmp_path / "config.json", {}) == {}
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SourceFault, match=f"config.json of the checkpoint .*{words}"):
        read_json(tmp_path / "config.json", {})
