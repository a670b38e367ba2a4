"""A forge that refuses, is busy, fails, or is not there: one sentence, an exit code, no half."""

from __future__ import annotations

import socket

import pytest

from roundhouse.gitops.forge.rest import (
    ATTEMPTS,
    LONGEST_WAIT_SECONDS,
    ForgeNotReadyError,
    ForgeRefusedError,
    RestApi,
    field,
)

pytestmark = pytest.mark.unit


@pytest.fixture
def waits():
    return []


def api_at(url, waits, timeout_seconds=5.0):
    return RestApi(
        url=url,
        headers={"Authorization": "Bearer t"},
        token_name="GITHUB_TOKEN",
        rights="`issues: write`",
        sleep=waits.append,
        timeout_seconds=timeout_seconds,
    )


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (401, ForgeNotReadyError, "does not accept GITHUB_TOKEN"),
        (403, ForgeNotReadyError, "must be allowed `issues: write`"),
        (404, ForgeRefusedError, "has no such thing, or GITHUB_TOKEN may not read it"),
        (422, ForgeRefusedError, "refuses this: too long"),
        (301, ForgeNotReadyError, "moved or renamed"),
    ],
)
def test_refusal_is_one_sentence_and_not_repeated(server, waits, status, kind, message):
    server.responses = [(status, {"Location": "http://127.0.0.1:1/"}, '{"message": "too\\nlong."}')]
    with pytest.raises(kind, match=message) as refused:
        api_at(server.url, waits).send("PATCH", "/x", {})
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == (1 if kind is ForgeRefusedError else 5)
    assert (len(server.requests), waits) == (1, [])


@pytest.mark.parametrize("status", [429, 500, 503])
def test_busy_forge_is_called_again_when_it_says(server, waits, status):
    server.responses = [(status, {"Retry-After": "7"}, ""), (200, {}, "{}")]
    assert api_at(server.url, waits).send("PATCH", "/x", {}) == {}
    assert waits == [7.0]


def test_waits_are_bounded_and_end(server, waits):
    server.responses = [(503, {"Retry-After": "86400"}, "<html>")] * ATTEMPTS
    with pytest.raises(ForgeNotReadyError, match=r"503.*try again later"):
        api_at(server.url, waits).send("GET", "/x")
    assert waits == [LONGEST_WAIT_SECONDS] * (ATTEMPTS - 1)


def test_what_creates_is_sent_once_where_the_forge_may_have_done_it(server, waits):
    server.responses = [(502, {}, "")]
    with pytest.raises(ForgeNotReadyError, match="502"):
        api_at(server.url, waits).send("POST", "/x", {})
    server.responses = [(429, {}, ""), (201, {}, "{}")]
    assert api_at(server.url, waits).send("POST", "/x", {}) == {}


def test_nobody_listens(waits):
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ForgeNotReadyError, match=r"did not respond \(.*refused"):
        api_at(url, waits).send("GET", "/x")
    assert len(waits) == ATTEMPTS - 1


def test_nobody_answers(waits):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ForgeNotReadyError, match="did not respond"):
            api_at(url, waits, timeout_seconds=0.1).send("POST", "/x", {})
    assert waits == []


@pytest.mark.parametrize("text", ["<html>", "[1, 2", "\x00"])
def test_refuses_what_is_no_json(server, waits, text):
    server.responses = [(200, {}, text)]
    with pytest.raises(ForgeNotReadyError, match="is no JSON"):
        api_at(server.url, waits).send("GET", "/x")


@pytest.mark.parametrize("text", ["{}", "[1]"])
def test_refuses_a_list_that_is_none(server, waits, text):
    server.responses = [(200, {}, text)]
    with pytest.raises(ForgeNotReadyError, match="is no list"):
        list(api_at(server.url, waits).pages("/x"))


def test_refuses_an_object_without_its_field():
    with pytest.raises(ForgeNotReadyError, match="has no 'html_url'"):
        field({"url": "x"}, "html_url")


def test_token_is_sent_to_no_other_host(server, waits):
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.2)
        place = f"http://127.0.0.1:{other.getsockname()[1]}/"
        server.responses = [(302, {"Location": place}, "")]
        with pytest.raises(ForgeNotReadyError, match="moved or renamed"):
            api_at(server.url, waits).send("GET", "/x")
        with pytest.raises(TimeoutError):
            other.accept()
