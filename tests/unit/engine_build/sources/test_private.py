"""Secrets that open private sources, and those that cannot be used."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat

import pytest

from engine_build.errors import SourceFault
from engine_build.sources.bucket_checkpoint import BucketAccess
from engine_build.sources.plugin_source import fetch_plugin
from engine_build.sources.private import PUBLIC, PrivateSources, secret_reader
from engine_build.sources.source import FetchContext
from engine_build.store import FolderStore, S3Store
from onboarding.names import source_copy_path
from onboarding.plugin_spec import PluginSpec
from onboarding.source_access import SourceSecretsSpec
from tests.shared_libraries import FIXTURE, of_aarch64
from tests.unit.engine_build.bucket import Bucket, client_error

ARN = "arn:aws:secretsmanager:us-east-1:111122223333:secret:hub-AbCdEf"
INDEX = "https://packages.example.com/simple/"
GIVEN = {
    "huggingface": {"secret_arn": ARN},
    "package_index": {"url": INDEX, "credentials": {"secret_arn": ARN}},
}


def private(text):
    return PrivateSources(spec=SourceSecretsSpec.model_validate(GIVEN), read=lambda arn: text)


def test_public_sources_read_nothing(tmp_path):
    assert PUBLIC.huggingface_token() is None
    with PUBLIC.package_index(tmp_path) as given:
        assert given == ((), {})


def test_password_stands_in_a_file_of_the_owner_while_the_download_lasts(tmp_path):
    text = json.dumps({"username": "me", "password": "s3cret"})
    with private(text).package_index(tmp_path) as (options, variables):
        path = tmp_path / "netrc"
        assert variables == {"NETRC": str(path)}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_text() == "machine packages.example.com\nlogin me\npassword s3cret\n"
        assert options == ("--index-url", INDEX, "--no-input")
    assert not path.exists()


def test_index_without_credentials_needs_no_file(tmp_path):
    spec = SourceSecretsSpec.model_validate({"package_index": {"url": INDEX}})
    with PrivateSources(spec=spec, read=pytest.fail).package_index(tmp_path) as given:
        assert given == (("--index-url", INDEX, "--no-input"), {})


@pytest.mark.parametrize("text", ["", "two words", "tokén", '{"token": "x"}'.replace(":", ": ")])
def test_refuses_a_token_that_is_none_without_showing_it(text):
    with pytest.raises(SourceFault, match=f"{ARN} is no token; store the token alone") as caught:
        private(text).huggingface_token()
    assert text == "" or text not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("hunter2", "holds no username and password"),
        ('["hunter2"]', "holds no username and password"),
        ('{"username": "hunter2"}', "holds no username and password"),
        ('{"username": "me", "password": "hunter2 machine x"}', "holds what a netrc file cannot"),
        ('{"username": "me", "password": 7}', "holds what a netrc file cannot"),
    ],
)
def test_refuses_credentials_that_are_none_without_showing_them(text, fault, tmp_path):
    with (
        pytest.raises(SourceFault, match=f"{ARN} {fault}; store {{") as caught,
        private(text).package_index(tmp_path),
    ):
        pytest.fail("the download began")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None and not any(tmp_path.iterdir())


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
        secret_reader("us-east-1", Client(answer))(ARN)


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
