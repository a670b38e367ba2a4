"""Secrets that open private sources, and those that cannot be used."""

from __future__ import annotations

import pytest

from engine_build.errors import SourceFault
from engine_build.sources.private import PrivateSources, secret_reader
from onboarding.source_access import SourceSecretsSpec
from tests.unit.engine_build.bucket import client_error

ARN = "arn:aws:secretsmanager:us-east-1:111122223333:secret:hub-AbCdEf"


@pytest.mark.parametrize("text", ["", "two words", "tokén", '{"token": "x"}'.replace(":", ": ")])
def test_refuses_a_token_that_is_none_without_showing_it(text):
    spec = SourceSecretsSpec.model_validate({"huggingface": {"secret_arn": ARN}})
    sources = PrivateSources(spec=spec, read=lambda arn: text)
    with pytest.raises(SourceFault, match=f"{ARN} is no token; store the token alone") as caught:
        sources.huggingface_token()
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
        secret_reader("us-east-1", Client(answer))(ARN)
