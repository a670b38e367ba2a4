"""Every way that botocore fails before or while it connects is one sentence with the way out."""

from __future__ import annotations

import os

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    UnauthorizedSSOTokenError,
)

from roundhouse.aws.clients import (
    CONNECT_SECONDS,
    COPIES,
    COPY_SECONDS,
    READ_SECONDS,
    aws_clients,
    bucket_exists,
    calling,
    object_bytes,
    object_exists,
    object_sha256,
    write_once,
)
from roundhouse.cli import app as cli
from roundhouse.errors import AwsError
from tests.unit.roundhouse.aws_shells import KEYS, SHELLS
from tests.unit.roundhouse.measure.answering import Answer, serve
from tests.unit.roundhouse.memory_s3 import MemoryS3, refusal


@pytest.fixture
def shell(monkeypatch, tmp_path):
    """Sets this process's AWS variables, and no others.

    `~` in a value is a folder of files given by their texts.
    """

    def set_shell(variables: dict[str, str], files: dict[str, bytes] | None = None) -> None:
        for name in tuple(os.environ):
            if name.startswith("AWS_") or name.lower().endswith("_proxy"):
                monkeypatch.delenv(name)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        monkeypatch.setenv("HOME", str(tmp_path))
        for name, text in (files or {}).items():
            (tmp_path / name).write_bytes(text)
        for name, value in variables.items():
            monkeypatch.setenv(name, value.replace("~", str(tmp_path)))

    return set_shell


@pytest.mark.parametrize("name", SHELLS)
def test_refuses_a_shell_that_cannot_reach_aws_in_one_sentence(shell, name):
    case = SHELLS[name]
    shell(case.variables, case.files)
    with pytest.raises(AwsError) as raised:
        bucket_exists(aws_clients("us-east-1")("s3"), "bucket")
    message = str(raised.value)
    assert type(raised.value.__cause__).__name__ == case.cause
    assert case.message in message and case.way_out in message
    assert "\n" not in message and message[-1] in ".?"


@pytest.mark.parametrize("verb", ["deploy", "build", "prune", "build --images", "status"])
def test_refuses_an_address_that_is_none_before_anything_is_done(shell, monkeypatch, capsys, verb):
    shell({**KEYS, "AWS_ENDPOINT_URL": "garbage"})
    monkeypatch.setattr("sys.argv", ["roundhouse", *verb.split(), "--env", "dev"])
    assert cli.exit_code() == 5
    message = capsys.readouterr().err
    assert (
        "Invalid endpoint: garbage" in message
        and "AWS_ENDPOINT_URL" in message
        and "Unforeseen" not in message
    )


def test_a_client_that_nobody_asks_for_is_no_fault(shell):
    shell({"AWS_PROFILE": "nope"})
    aws_clients("us-east-1")


def test_copies_alone_wait_for_late_answers(shell):
    shell(KEYS)
    clients = aws_clients("us-east-1")
    waits = {name: clients(name).meta.config for name in ("s3", COPIES, "sagemaker")}
    seconds = {name: config.read_timeout for name, config in waits.items()}
    assert seconds == {"s3": READ_SECONDS, COPIES: COPY_SECONDS, "sagemaker": READ_SECONDS}
    assert {config.connect_timeout for config in waits.values()} == {CONNECT_SECONDS}
    assert clients(COPIES).meta.service_model.service_name == "s3"


@pytest.mark.parametrize("service", ["sagemaker", "cloudformation"])
def test_refuses_an_answer_that_is_not_of_aws(shell, service):
    with serve(lambda number: Answer(body=b"<html>hello<br></html>")) as server:
        shell({**KEYS, "AWS_ENDPOINT_URL": server.url.removesuffix("/invocations")})
        client = aws_clients("us-east-1")(service)
        with pytest.raises(AwsError, match="something else than AWS"), calling(service):
            if service == "cloudformation":
                client.list_stacks()
            _ = client.describe_endpoint(EndpointName="a")["EndpointStatus"]


@pytest.mark.parametrize("read", [object_bytes, object_sha256])
def test_refuses_an_archive_whose_bytes_break_off(shell, read):
    half = Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
    with serve(lambda number: half) as server:
        shell({**KEYS, "AWS_ENDPOINT_URL": server.url.removesuffix("/invocations")})
        with pytest.raises(AwsError, match="try again"):
            read(aws_clients("us-east-1")("s3"), "bucket", "key")


@pytest.mark.parametrize(
    ("status", "code", "way_out", "is_temporary"),
    [
        (403, "ExpiredToken", "log in again", False),
        (403, "InvalidAccessKeyId", "the environment's own account", False),
        (403, "RequestTimeTooSkewed", "clock", False),
        (400, "AccessDeniedException", "may do this", False),
        (400, "ThrottlingException", "try again later", True),
        (503, "SlowDown", "try again later", True),
        (500, "InternalServerException", "", True),
    ],
)
def test_a_refusal_says_the_way_out(status, code, way_out, is_temporary):
    metadata = {"HTTPStatusCode": status}
    answer = {"Error": {"Code": code, "Message": "No."}, "ResponseMetadata": metadata}
    with pytest.raises(AwsError) as error, calling("S3"):
        raise ClientError(answer, "GetObject")
    assert error.value.is_temporary is is_temporary
    text = str(error.value)
    assert text.startswith(f"S3: AWS answered {code}: No") and way_out in text


@pytest.mark.parametrize(
    ("error", "is_temporary"),
    [
        (EndpointConnectionError(endpoint_url="https://a.example"), True),
        (ReadTimeoutError(endpoint_url="https://a.example"), True),
        (NoCredentialsError(), False),
        (UnauthorizedSSOTokenError(), False),
        (ProfileNotFound(profile="a"), False),
    ],
)
def test_a_failure_is_temporary_where_aws_was_not_reached(error, is_temporary):
    with pytest.raises(AwsError) as raised, calling("S3"):
        raise error
    assert raised.value.is_temporary is is_temporary


def test_an_object_that_is_not_there_is_no_fault():
    assert not object_exists(MemoryS3(), "bucket", "key")


class Taken:
    """An S3 that refuses a write by an error code."""

    def __init__(self, code: str) -> None:
        self.code = code

    def put_object(self, Bucket, Key, Body, IfNoneMatch):
        assert IfNoneMatch == "*"
        raise refusal(self.code, "PutObject")


def test_an_object_that_is_there_is_not_replaced_and_another_refusal_is_one():
    assert not write_once(Taken("PreconditionFailed"), "bucket", "key", b"", "Publishing")
    with pytest.raises(AwsError, match="Publishing"):
        write_once(Taken("AccessDenied"), "bucket", "key", b"", "Publishing")
