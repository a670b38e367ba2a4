"""Where requests go, and how they are signed."""

from __future__ import annotations

import pytest

from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.load_test.destination import Destination, Requests, server_url, signer
from roundhouse.load_test.inputs import Body

BODIES = tuple(
    Body(data=text.encode(), content_type="application/json", rows=1) for text in ("a", "bb", "ccc")
)
SERVER = Destination(url="http://h/", headers={"X-A": "b"})


def test_a_request_has_its_body_and_headers():
    found = Requests(SERVER, BODIES[:1], 1, None).next()
    assert found == (b"a", {"Content-Type": "application/json", "X-A": "b"})


def test_every_body_has_its_turn_in_an_order_of_the_seed():
    both = [Requests(SERVER, BODIES, 1, None) for _ in range(2)]
    first, second = ([requests.next()[0] for _ in range(6)] for requests in both)
    assert first == second == first[:3] * 2
    assert len(set(first)) == 3


def test_a_signature_is_made_once_for_each_body():
    signed = []
    requests = Requests(SERVER, BODIES, 1, lambda body: signed.append(body.data) or {"A": "s"})
    headers = [requests.next()[1] for _ in range(6)]
    assert sorted(signed) == [b"a", b"bb", b"ccc"]
    assert headers[5]["A"] == "s"


def test_a_request_to_sagemaker_is_signed_with_what_it_carries(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    to = Destination(
        url="https://h/endpoints/e/invocations",
        headers={"X-Amzn-SageMaker-Target-Model": "m"},
        region="eu-west-1",
    )
    sign = signer(to)
    headers = sign(BODIES[0])
    assert "/eu-west-1/sagemaker/aws4_request" in headers["Authorization"]
    assert (
        "content-type;host;x-amz-date;x-amz-security-token;x-amzn-sagemaker-target-model"
        in headers["Authorization"]
    )
    assert headers["X-Amz-Security-Token"] == "token"
    assert headers["Authorization"] != sign(BODIES[1])["Authorization"]


def test_requests_to_a_server_have_no_signature():
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
    expected = "http://h:8080/invocations"
    assert server_url("http://h:8080") == server_url("http://h:8080/") == expected
    assert server_url("https://h/v2/models/m/infer") == "https://h/v2/models/m/infer"


URLS = (
    "", "h:8080", "ftp://h", "http://", "http://h:x", "http://u:p@h", "http://h:99999",
    "http://h/#a",
)  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_refuses_a_url_of_no_server(url):
    with pytest.raises(RoundhouseError, match="no server's address"):
        server_url(url)
