"""A web page of a proxy, or of a login, never passes for an answer of AWS."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from roundhouse.aws.clients import aws_clients, bucket_exists, calling, object_bytes, object_exists
from roundhouse.cli import app as cli
from roundhouse.errors import AwsError

LOGIN = b"<!DOCTYPE html><html><body>Log in to the company's network<br></body></html>"


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """Starts a server that gives every request one answer, and points this process's AWS clients at
    it.
    """
    servers = []

    def start(headers: dict[str, str], *, status: int = 200, body: bytes = LOGIN) -> None:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_POST = do_HEAD = do_PUT = do_GET

            def log_message(self, *words):
                """Says nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")

    for name in [
        name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")
    ]:
        monkeypatch.delenv(name)
    settings = {
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
        "CONFIG_FILE": str(tmp_path / "none"),
        "MAX_ATTEMPTS": "1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("kind", ["text/html", "text/html; charset=utf-8", "Text/HTML"])
@pytest.mark.parametrize("status", [200, 302, 403])
def test_refuses_a_page_in_place_of_an_answer(answers, kind, status):
    answers({"Content-Type": kind}, status=status)
    s3 = aws_clients("us-east-1")("s3")
    for look in (
        lambda: bucket_exists(s3, "bucket"),
        lambda: object_exists(s3, "bucket", "key"),
        lambda: object_bytes(s3, "bucket", "key"),
    ):
        with pytest.raises(AwsError) as raised:
            look()
        assert raised.value.reason == "HtmlResponseError" and not raised.value.is_answer
        assert (
            f"a web page came in place of AWS's answer (HTTP {status}); a proxy or a login page"
            in str(raised.value)
        )


def test_a_page_of_the_bucket_is_no_fault(answers):
    """An engine's card is HTML, and AWS's headers come with it."""
    answers({"Content-Type": "text/html", "x-amz-request-id": "1"})
    s3 = aws_clients("us-east-1")("s3")
    assert (
        object_exists(s3, "bucket", "card.html")
        and object_bytes(s3, "bucket", "card.html") == LOGIN
    )


def test_refuses_an_answer_that_is_no_xml(answers):
    answers({"Content-Type": "text/xml"})
    with (
        pytest.raises(
            AwsError, match=r"Stacks: the answer cannot be read; .*something else than AWS"
        ),
        calling("Stacks"),
    ):
        aws_clients("us-east-1")("cloudformation").list_stacks()


@pytest.mark.parametrize(
    "verb",
    [
        ("build", "--env", "dev"),
        ("build", "--images", "--env", "dev"),
        ("prune", "--env", "dev"),
        ("status", "sentence-embedder", "--card", "--env", "dev"),
        ("invoke", "sentence-embedder", "--env", "dev", "a cat"),
    ],
    ids=lambda verb: " ".join(verb[:2]),
)
def test_every_verb_says_that_it_was_a_page(answers, monkeypatch, capsys, verb):
    answers({"Content-Type": "text/html"})
    monkeypatch.setattr("sys.argv", ["roundhouse", *verb])
    assert cli.exit_code() == 5
    output = capsys.readouterr()
    assert (
        "a web page came in place of AWS's answer" in output.err
        and "Unforeseen" not in output.err
        and not output.out
    )


def test_refuses_an_answer_of_json_that_is_not_the_build_machines(answers, monkeypatch, capsys):
    answers({"Content-Type": "application/json"}, body=b'{"hello": 1}')
    monkeypatch.setattr("sys.argv", ["roundhouse", "build", "--env", "dev"])
    assert cli.exit_code() == 5
    output = capsys.readouterr().err
    assert (
        "the answer has no 'executionArn'; is there a proxy between" in output
        and "Unforeseen" not in output
    )
