"""Bearer tokens of the OpenAI path: a presigned call, signed for the region."""

from __future__ import annotations

import base64
from urllib.parse import parse_qs, urlsplit

import pytest

from roundhouse.aws.bearer_token import bearer_token
from roundhouse.errors import AwsError


@pytest.fixture
def credentials(monkeypatch, tmp_path):
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    for name, value in (
        ("ACCESS_KEY_ID", "AKIA"),
        ("SECRET_ACCESS_KEY", "s"),
        ("SESSION_TOKEN", "t"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    return monkeypatch


def test_token_is_a_presigned_call_of_the_region(credentials):
    token = bearer_token("eu-central-1", 900)
    assert token.startswith("sagemaker-api-key-")
    text = base64.b64decode(token.removeprefix("sagemaker-api-key-")).decode()
    assert text.startswith("sagemaker.amazonaws.com/?") and text.endswith("&Version=1")
    query = parse_qs(urlsplit(f"https://{text}").query)
    assert query["Action"] == ["CallWithBearerToken"] and query["X-Amz-Expires"] == ["900"]
    assert query["X-Amz-Security-Token"] == ["t"]
    assert "/eu-central-1/sagemaker/aws4_request" in query["X-Amz-Credential"][0]


def test_refuses_without_credentials(credentials):
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        credentials.delenv(f"AWS_{name}")
    with pytest.raises(AwsError, match="Signing a bearer token"):
        bearer_token("eu-central-1")
