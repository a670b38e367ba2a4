"""Every way that botocore fails before or while it connects is one sentence with the way out."""

from __future__ import annotations

import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from roundhouse.aws.clients import (
    aws_clients,
    bucket_exists,
    calling,
    object_bytes,
    object_exists,
    object_sha256,
)
from roundhouse.cli import app as cli
from roundhouse.errors import AwsError
from tests.unit.roundhouse.aws_shells import KEYS, SHELLS


@pytest.fixture
def shell(monkeypatch, tmp_path):
    """Sets this process's AWS variables, and no others.

    `~` in a value is a folder of files given by their texts.
    """

    def set_shell(variables: dict[str, str], files: dict[str, bytes] | None = None) -> None:
        for name in [
            name
            for name in os.environ
            if name.startswith("AWS_") or name.lower().endswith("_proxy")
        ]:
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


class Page(BaseHTTPRequestHandler):
    """Answers everything as a proxy's welcome page does."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "17")
        self.end_headers()
        self.wfile.write(b"<html>hello</html"[:17])

    do_POST = do_GET

    def log_message(self, *words):
        """Says nothing."""


@pytest.fixture
def page():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", SHELLS)
def test_refuses_a_shell_that_cannot_reach_aws_in_one_sentence(shell, name):
    case = SHELLS[name]
    shell(case.variables, case.files)
    with pytest.raises(AwsError) as raised:
        bucket_exists(aws_clients("us-east-1")("s3"), "bucket")
    message = str(raised.value)
    assert raised.value.reason == case.reason and case.says in message and case.way_out in message
    assert "\n" not in message and message[-1] in ".?"


@pytest.mark.parametrize("verb", ["deploy", "build", "prune", "images"])
def test_refuses_an_address_that_is_none_before_anything_is_done(shell, monkeypatch, capsys, verb):
    shell({**KEYS, "AWS_ENDPOINT_URL": "garbage"})
    monkeypatch.setattr("sys.argv", ["roundhouse", verb, "--env", "dev"])
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


def test_refuses_what_is_not_aws(shell, page):
    shell({**KEYS, "AWS_ENDPOINT_URL": page})
    with pytest.raises(AwsError, match="something else than AWS"), calling("SageMaker"):
        _ = aws_clients("us-east-1")("sagemaker").describe_endpoint(EndpointName="a")[
            "EndpointStatus"
        ]


def test_refuses_an_archive_whose_bytes_break_off(shell):
    shell(KEYS)
    for read in (object_bytes, object_sha256):
        with _breaking_off() as address, pytest.raises(AwsError, match="try again"):
            os.environ["AWS_ENDPOINT_URL"] = address
            read(aws_clients("us-east-1")("s3"), "bucket", "key")


@pytest.mark.parametrize(
    ("status", "code", "way_out"),
    [
        (403, "ExpiredToken", "log in again"),
        (403, "InvalidAccessKeyId", "the environment's own account"),
        (403, "RequestTimeTooSkewed", "clock"),
        (503, "SlowDown", "try again later"),
    ],
)
def test_a_refusal_says_the_way_out(status, code, way_out):
    from botocore.exceptions import ClientError

    answer = {
        "Error": {"Code": code, "Message": "No."},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    with pytest.raises(AwsError) as raised, calling("S3"):
        raise ClientError(answer, "GetObject")
    assert raised.value.is_answer and raised.value.reason == code
    assert str(raised.value).startswith(f"S3: AWS answered {code}: No; ") and way_out in str(
        raised.value
    )


def test_an_object_that_is_not_there_is_no_fault():
    from botocore.exceptions import ClientError

    class Empty:
        def head_object(self, **_):
            raise ClientError({"Error": {"Code": "404", "Message": "Not Found"}}, "HeadObject")

    assert not object_exists(Empty(), "bucket", "key")


class _breaking_off:
    """A server that promises more bytes than it sends."""

    def __enter__(self) -> str:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._answer)
        self.thread.start()
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def _answer(self) -> None:
        connection, _ = self.socket.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")

    def __exit__(self, *of_it: object) -> None:
        self.thread.join()
        self.socket.close()
        os.environ.pop("AWS_ENDPOINT_URL", None)
