"""Requests as bytes, and where they go."""

from __future__ import annotations

import pytest

from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.load_test.requests.destination import Body, Destination, Requests, server_url
from roundhouse.load_test.requests.signing import signer

BODIES = tuple(
    Body(data=text.encode(), content_type="application/json", rows=1) for text in ("a", "bb", "ccc")
)


def test_a_request_is_whole_http():
    to = Destination(url="http://h:81/endpoints/e/invocations?x=1", headers=(("X-A", "b"),))
    head, _, body = Requests(to, BODIES[:1], 1).next().partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /endpoints/e/invocations?x=1 HTTP/1.1", b"Host: h:81", b"Content-Type: application/json", b"Content-Length: 1",
        b"X-A: b",
    ]  # fmt: skip
    assert body == b"a"


def test_every_body_has_its_turn_in_an_order_of_the_seed():
    found = [Requests(Destination(url="http://h/"), BODIES, 1) for _ in range(2)]
    first, second = ([each.next()[-3:] for _ in range(6)] for each in found)
    assert first == second == first[:3] * 2
    assert len(set(first)) == 3


def test_a_signature_is_made_once_for_each_body():
    asked = []
    requests = Requests(
        Destination(url="http://h/"),
        BODIES,
        1,
        lambda body: asked.append(body.data) or (("A", "s"),),
    )
    data = [requests.next() for _ in range(6)]
    assert sorted(asked) == [b"a", b"bb", b"ccc"]
    assert b"\r\nA: s\r\n" in data[5]


def test_a_request_to_sagemaker_is_signed_with_what_it_carries(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    to = Destination(
        url="https://h/endpoints/e/invocations",
        headers=(("X-Amzn-SageMaker-Target-Model", "m"),),
        region="eu-west-1",
    )
    signed = signer(to)
    headers = dict(signed(BODIES[0]))
    assert "/eu-west-1/sagemaker/aws4_request" in headers["Authorization"]
    assert (
        "content-type;host;x-amz-date;x-amz-security-token;x-amzn-sagemaker-target-model"
        in headers["Authorization"]
    )
    assert headers["X-Amz-Security-Token"] == "token"
    assert headers["Authorization"] != dict(signed(BODIES[1]))["Authorization"]


def test_a_bare_server_is_asked_without_a_signature():
    assert signer(Destination(url="http://h/")) is None


def test_refuses_to_sign_without_credentials(monkeypatch, tmp_path):
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_PROFILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(NotReadyError, match="no AWS credentials were found; set AWS_PROFILE"):
        signer(Destination(url="https://h/", region="eu-west-1"))


def test_a_url_without_a_path_means_sagemakers():
    assert (
        server_url("http://h:8080") == server_url("http://h:8080/") == "http://h:8080/invocations"
    )
    assert server_url("https://h/v2/models/m/infer") == "https://h/v2/models/m/infer"
    assert Destination(url="https://h/x").address == ("h", 443)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:8080",
        "ftp://h",
        "http://",
        "http://h:x",
        "http://u:p@h",
        "http://h:99999",
        "http://h/#a",
    ],
)
def test_refuses_what_is_no_url(url):
    with pytest.raises(RoundhouseError, match="no server's address"):
        server_url(url)
