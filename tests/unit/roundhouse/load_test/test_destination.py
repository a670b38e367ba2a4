"""Where requests go, and how they are signed."""

from __future__ import annotations

import pytest

from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.load_test.destination import Destination, Requests, server_url, signer
from roundhouse.load_test.inputs import Body

BODIES = tuple(Body(text, "application/json") for text in (b"a", b"bb", b"ccc"))
SERVER = Destination(url="http://h/", headers={"X-A": "b"})


def test_a_request_has_its_body_and_headers():
    request = Requests(SERVER, BODIES[:1], 1, None).next()
    assert request == (b"a", {"Content-Type": "application/json", "X-A": "b"})


def test_every_body_has_its_turn_in_an_order_of_the_seed():
    both = [Requests(SERVER, BODIES, 1, None) for _ in range(2)]
    first, second = ([requests.next()[0] for _ in range(6)] for requests in both)
    assert first == second == first[:3] * 2
    assert len(set(first)) == 3


def test_a_body_is_signed_once():
    signed = []
    requests = Requests(SERVER, BODIES, 1, lambda body: signed.append(body.data) or {"A": "s"})
    headers = [requests.next()[1] for _ in range(6)]
    assert sorted(signed) == [b"a", b"bb", b"ccc"]
    assert headers[5]["A"] == "s"


def test_a_request_to_sagemaker_is_signed_with_its_body_and_headers(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    headers = {"X-Amzn-SageMaker-Target-Model": "m"}
    url = "https://h/endpoints/e/invocations"
    sign = signer(Destination(url=url, headers=headers, region="eu-west-1"))
    signature = sign(BODIES[0])
    names = "content-type;host;x-amz-date;x-amz-security-token;x-amzn-sagemaker-target-model"
    assert "/eu-west-1/sagemaker/aws4_request" in signature["Authorization"]
    assert names in signature["Authorization"]
    assert signature["X-Amz-Security-Token"] == "token"
    assert signature["Authorization"] != sign(BODIES[1])["Authorization"]


def test_requests_to_a_server_have_no_signature():
    assert signer(Destination(url="http://h/")) is None


def test_refuses_to_sign_without_credentials(monkeypatch, tmp_path):
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(NotReadyError, match="no AWS credentials were found; set AWS_PROFILE"):
        signer(Destination(url="https://h/", region="eu-west-1"))


def test_a_url_without_a_path_means_sagemakers():
    expected = "http://h:8080/invocations"
    assert server_url("http://h:8080") == server_url("http://h:8080/") == expected
    assert server_url("https://h/v2/models/m/infer") == "https://h/v2/models/m/infer"


WRONG_PORTS = ("http://h:x", "http://h:99999")


@pytest.mark.parametrize(
    "url", ["", "h:8080", "ftp://h", "http://", "http://u:p@h", "http://h/#a", *WRONG_PORTS]
)
def test_refuses_a_url_of_no_server(url):
    with pytest.raises(RoundhouseError, match="no server's address"):
        server_url(url)
