"""Secrets that open private sources, and those that cannot be used."""

from __future__ import annotations

import json
import stat

import pytest

from engine_build.errors import SourceFault
from engine_build.sources.private import PUBLIC, PrivateSources, secret_reader
from onboarding.source_access import SourceSecretsSpec
from tests.unit.engine_build.bucket import client_error

ARN = "arn:aws:secretsmanager:us-east-1:111122223333:secret:hub-AbCdEf"
INDEX = "https://packages.example.com/simple/"
GIVEN = {
    "huggingface": {"secret_arn": ARN},
    "package_index": {"url": INDEX, "credentials": {"secret_arn": ARN}},
}


def private(text):
    return PrivateSources(spec=SourceSecretsSpec.model_validate(GIVEN), read=lambda arn: text)


def test_places_without_a_secret_read_none(tmp_path):
    assert PUBLIC.huggingface_token() is None
    spec = SourceSecretsSpec.model_validate({"package_index": {"url": INDEX}})
    index = ("--index-url", INDEX, "--no-input")
    for sources, options in ((PUBLIC, ()), (PrivateSources(spec=spec, read=pytest.fail), index)):
        with sources.package_index(tmp_path) as given:
            assert given == (options, {})


def test_password_stands_in_a_file_of_the_owner_while_the_download_lasts(tmp_path):
    text = json.dumps({"username": "me", "password": "s3cret"})
    with private(text).package_index(tmp_path) as (options, variables):
        path = tmp_path / "netrc"
        assert variables == {"NETRC": str(path)}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_text() == "machine packages.example.com\nlogin me\npassword s3cret\n"
        assert options == ("--index-url", INDEX, "--no-input")
    assert not path.exists()


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
